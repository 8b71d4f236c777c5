"""What belongs to the whole process and envs need for themselves: OpenGL's back end and the global generators."""

from __future__ import annotations

import ctypes.util
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def choose_gl() -> None:
    """Set ``MUJOCO_GL`` to a back end that is installed, unless the user has; must precede the simulator's import."""
    if not os.environ.get("MUJOCO_GL") and sys.platform == "linux":
        if ctypes.util.find_library("EGL"):
            os.environ["MUJOCO_GL"] = "egl"
        elif ctypes.util.find_library("OSMesa"):
            os.environ["MUJOCO_GL"] = "osmesa"
    chosen = os.environ.get("MUJOCO_GL", "")
    if chosen in ("egl", "osmesa"):
        os.environ.setdefault("PYOPENGL_PLATFORM", chosen)


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed numpy's, Python's and (if it is loaded) torch's global generators, and put them back afterwards."""
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002
    torch = sys.modules.get("torch")
    torchs = torch.random.get_rng_state() if torch is not None else None
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)
        if torch is not None:
            torch.random.set_rng_state(torchs)
