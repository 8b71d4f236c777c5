#!/usr/bin/env bash
# LeRobot's policies and the vision encoders share one environment: torch and transformers are most of both. LIBERO is
# beside them, so that a checkpoint meets its own simulator, and so are PushT and ALOHA; without their pins, as in
# tests/integration/sims.
set -euo pipefail
dir="$1"
packages=(
  -r "$2"
  "lerobot[smolvla,pi,dataset,evaluation,diffusion,training]==0.6.1" "mujoco==3.8.1"
  "faker>=33,<35" "qwen-vl-utils>=0.0.11,<0.1" "peft>=0.18,<1" "torchdiffeq>=0.2.4,<0.3" "dm-tree>=0.1.8,<1"
  "timm==1.0.30"
  "numba" "matplotlib" "easydict" "future" "h5py>=3.10" "PyOpenGL"
  "dm-control==1.0.41" "pymunk<7" "pygame" "shapely" "scikit-image"
  "websockets>=15" "msgpack>=1.0" "pytest>=8" "trackio==0.43.0"
)
unpinned=("hf-libero==0.1.4" "robosuite==1.4.0" "bddl==1.0.1" "gym-pusht==0.1.8" "gym-aloha==0.1.5")
python="${BESTTAKE_PYTHON312:-}"
for candidate in python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python; do
  [ -z "$python" ] && command -v "$candidate" >/dev/null && "$candidate" -c 'pass' 2>/dev/null && python="$candidate"
done
if command -v uv >/dev/null; then
  uv venv -q --seed --allow-existing --python "${python:-3.12}" "$dir"
  uv pip install -q --python "$dir/bin/python" "${packages[@]}"
  uv pip install -q --python "$dir/bin/python" --no-deps "${unpinned[@]}"
elif [ -n "$python" ]; then
  "$python" -m venv "$dir"
  "$dir/bin/python" -m pip install -q "${packages[@]}"
  "$dir/bin/python" -m pip install -q --no-deps "${unpinned[@]}"
else
  echo "lerobot 0.6.1 needs Python 3.12: put python3.12 on the PATH or set BESTTAKE_PYTHON312" >&2
  exit 77
fi
