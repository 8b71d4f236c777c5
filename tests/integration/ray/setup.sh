#!/usr/bin/env bash
# Ray beside the base install.
set -euo pipefail
dir="$1"
packages=(-r "$2" "ray>=2.30" "pytest>=8")
if command -v uv >/dev/null; then
  uv venv -q --allow-existing --python 3.11 "$dir"
  uv pip install -q --python "$dir/bin/python" "${packages[@]}"
else
  python3.11 -m venv "$dir"
  "$dir/bin/python" -m pip install -q "${packages[@]}"
fi
