#!/bin/sh
# Makes the environment of the simulator adapters: LIBERO, ManiSkill, MetaWorld and vla-eval live in one.
# LIBERO, ManiSkill and MetaWorld go in without their dependencies: they pin a mujoco, a torch or a renderer that the
# others cannot share, and what the adapters use of them needs none of those pins.
set -eu
dir=$1
base=$2
python3.11 -m venv "$dir"
if command -v uv >/dev/null 2>&1; then
    install() { uv pip install --quiet --python "$dir/bin/python" "$@"; }
else
    install() { "$dir/bin/python" -m pip install --quiet "$@"; }
fi
# uv does not see a CPU-only torch that pip is configured to find.
"$dir/bin/python" -m pip install --quiet torch==2.13.0
install -r "$base" "mujoco==3.8.1" "h5py>=3.10" "google-crc32c>=1.5" "pytest>=8" "hypothesis>=6.100" \
    "numba" "matplotlib" "opencv-python-headless" "easydict" "future" "cloudpickle" "termcolor" "PyOpenGL" \
    "gymnasium>=1.1" "imageio" "vla-eval==0.8.0" "msgpack>=1.0" "websockets>=12" \
    "dacite" "tqdm" "GitPython" "tabulate" "transforms3d" "trimesh" "IPython" "defusedxml" "nvidia-ml-py" "tyro" \
    "huggingface_hub" "sapien>=3.0.0" "pytorch_kinematics==0.7.6"
install --no-deps "hf-libero==0.1.4" "robosuite==1.4.0" "bddl==1.0.1" "metaworld==3.1.1" "mani-skill==3.0.1"

# A software Vulkan for ManiSkill's cameras, unpacked without root: lavapipe of Mesa 25 from the backports of the Debian
# release that apt is set up for. Where that cannot be had, the tests that render with it skip.
lavapipe() {
    . /etc/os-release || return 1
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | sed -n 's#/debian/$#/debian#p' | head -n 1)
    mkdir -p "$dir/lavapipe" || return 1
    curl -fsSL --max-time 60 "$mirror/dists/$VERSION_CODENAME-backports/main/binary-amd64/Packages.xz" \
        -o "$dir/lavapipe/Packages.xz" || return 1
    xz -df "$dir/lavapipe/Packages.xz" || return 1
    for package in mesa-vulkan-drivers libdrm2 libdrm-amdgpu1; do
        file=$(awk -v RS= -v p="$package" '$0 ~ "^Package: " p "\n"' "$dir/lavapipe/Packages" |
            sed -n 's/^Filename: //p' | head -n 1)
        curl -fsSL --max-time 120 "$mirror/$file" -o "$dir/lavapipe/package.deb" || return 1
        dpkg-deb -x "$dir/lavapipe/package.deb" "$dir/lavapipe" || return 1
    done
    library=$(find "$dir/lavapipe" -name libvulkan_lvp.so)
    icd=$(find "$dir/lavapipe/usr" -name 'lvp_icd*.json' | head -n 1)
    sed "s#\"library_path\": \".*\"#\"library_path\": \"$library\"#" "$icd" > "$dir/lavapipe/lvp_icd.json" || return 1
    rm -f "$dir/lavapipe/Packages" "$dir/lavapipe/package.deb"
}
if ! lavapipe; then
    rm -rf "$dir/lavapipe"
    echo "no lavapipe: the ManiSkill tests that render will skip"
fi
