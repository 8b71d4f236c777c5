"""The GPUs of this machine, without loading a library that would take hold of them."""

from __future__ import annotations

import os
from pathlib import Path

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus(listed: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    if (visible := os.environ.get(_VISIBLE)) is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    try:
        return [str(index) for index, _ in enumerate(listed.iterdir())]
    except OSError:
        return []


def variables(gpu: str) -> dict[str, str]:
    """What a process needs in its environment to compute and to draw on ``gpu`` alone."""
    return {_VISIBLE: gpu, **drawing(gpu)}


def drawing(gpu: str) -> dict[str, str]:
    """What a process needs in its environment to draw on ``gpu``, where EGL can know it: by a number."""
    return {"MUJOCO_EGL_DEVICE_ID": gpu} if gpu.isdecimal() else {}
