#!/bin/sh
# Makes the environment of the simulator adapters: LIBERO, ManiSkill, MetaWorld and vla-eval live in one.
# LIBERO, ManiSkill and MetaWorld go in without their dependencies: they pin a mujoco, a torch or a renderer that the
# others cannot share, and what the adapters use of them needs none of those pins.
set -eu
dir=$1
python3.11 -m venv "$dir"
if command -v uv >/dev/null 2>&1; then
    install() { uv pip install --quiet --python "$dir/bin/python" "$@"; }
else
    install() { "$dir/bin/python" -m pip install --quiet "$@"; }
fi
# uv does not see a CPU-only torch that pip is configured to find.
"$dir/bin/python" -m pip install --quiet torch==2.13.0
install "mujoco==3.8.1" "numpy>=1.26" "scipy>=1.12" "safetensors>=0.4.3" "pydantic>=2.7" "pyyaml>=6" "typer>=0.12" \
    "rich>=13.7" "jinja2>=3.1" "pillow>=10.3" "pyarrow>=15" "av>=12" "h5py>=3.10" "pytest>=8" \
    "numba" "matplotlib" "opencv-python-headless" "easydict" "future" "cloudpickle" "termcolor" "PyOpenGL" \
    "gymnasium>=1.1" "imageio" "vla-eval==0.8.0" "msgpack>=1.0" "websockets>=12" \
    "dacite" "tqdm" "GitPython" "tabulate" "transforms3d" "trimesh" "IPython" "defusedxml" "nvidia-ml-py" "tyro" \
    "huggingface_hub" "sapien>=3.0.0" "pytorch_kinematics==0.7.6"
install --no-deps "hf-libero==0.1.4" "robosuite==1.4.0" "bddl==1.0.1" "metaworld==3.1.1" "mani-skill==3.0.1"
