#!/usr/bin/env bash
# OpenVLA's modelling code lives in its checkpoints; the PyPI package vla-arena carries it, with the versions it was
# written for. The same torch as in tests/integration/lerobot, so that uv's cache gives it to both.
set -euo pipefail
dir="$1"
packages=(
  -r "$2"
  "torch==2.11.0" "torchvision==0.26.0" "transformers==4.40.1" "tokenizers==0.19.1" "timm==0.9.10" "numpy<2"
  "huggingface-hub<1" "accelerate<1"
  "pytest>=8"
)
python="${BESTTAKE_PYTHON312:-}"
for candidate in python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python; do
  [ -z "$python" ] && command -v "$candidate" >/dev/null && "$candidate" -c 'pass' 2>/dev/null && python="$candidate"
done
if command -v uv >/dev/null; then
  uv venv -q --seed --allow-existing --python "${python:-3.12}" "$dir"
  uv pip install -q --python "$dir/bin/python" "${packages[@]}"
  uv pip install -q --python "$dir/bin/python" --no-deps "vla-arena==1.0.0"
else
  "${python:-python3}" -m venv "$dir"
  "$dir/bin/python" -m pip install -q "${packages[@]}"
  "$dir/bin/python" -m pip install -q --no-deps "vla-arena==1.0.0"
fi
