#!/usr/bin/env bash
# Ray beside the base install.
set -euo pipefail
dir="$1"
packages=(
  "ray>=2.30" "numpy>=1.26" "scipy>=1.12" "mujoco>=3.3,<3.9" "safetensors>=0.4.3" "pydantic>=2.7" "pyyaml>=6.0"
  "typer>=0.12" "rich>=13.7" "jinja2>=3.1" "pillow>=10.3" "pyarrow>=15" "av>=12" "threadpoolctl>=3.2" "pytest>=8"
)
if command -v uv >/dev/null; then
  uv venv -q --allow-existing --python 3.11 "$dir"
  uv pip install -q --python "$dir/bin/python" "${packages[@]}"
else
  python3.11 -m venv "$dir"
  "$dir/bin/python" -m pip install -q "${packages[@]}"
fi
