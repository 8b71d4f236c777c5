"""Which OpenGL MuJoCo renders with on a machine without a display."""

from __future__ import annotations

import ctypes.util
import os
import sys


def choose_gl() -> str:
    """Set ``MUJOCO_GL`` to a back end that is installed, unless the user has; must precede the simulator's import."""
    if not os.environ.get("MUJOCO_GL") and sys.platform == "linux":
        if ctypes.util.find_library("EGL"):
            os.environ["MUJOCO_GL"] = "egl"
        elif ctypes.util.find_library("OSMesa"):
            os.environ["MUJOCO_GL"] = "osmesa"
    chosen = os.environ.get("MUJOCO_GL", "")
    if chosen in ("egl", "osmesa"):
        os.environ.setdefault("PYOPENGL_PLATFORM", chosen)
    return chosen
