#!/usr/bin/env bash
# What builds and checks the wheel; the wheel itself goes into a clean environment that the test makes.
set -euo pipefail
dir="$1"
if command -v uv >/dev/null; then
  uv venv -q --allow-existing --python 3.11 "$dir"
  uv pip install -q --python "$dir/bin/python" "build>=1.2" "pytest>=8"
else
  python3.11 -m venv "$dir"
  "$dir/bin/python" -m pip install -q "build>=1.2" "pytest>=8"
fi
