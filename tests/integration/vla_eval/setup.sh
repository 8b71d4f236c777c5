#!/usr/bin/env bash
# The harness and the client that other people run: vla-eval and openpi-client (which pins numpy below 2).
set -euo pipefail
dir="$1"
packages=(
  -r "$2"
  "vla-eval==0.8.0" "openpi-client==0.1.2" "numpy<2"
  "websockets>=15" "msgpack>=1.0" "pytest>=8"
)
if command -v uv >/dev/null; then
  uv venv -q --allow-existing --python 3.11 "$dir"
  uv pip install -q --python "$dir/bin/python" "${packages[@]}"
else
  python3.11 -m venv "$dir"
  "$dir/bin/python" -m pip install -q "${packages[@]}"
fi
