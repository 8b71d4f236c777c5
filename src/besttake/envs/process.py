"""Process-wide settings that envs need: the OpenGL back end and the global random generators."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_VISIBLE, _DRAWS_ON = "CUDA_VISIBLE_DEVICES", "MUJOCO_EGL_DEVICE_ID"


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


def choose_device() -> None:
    """Have robosuite draw on the GPU that this process computes on, else on EGL's first device.

    EGL knows devices by number only, and lists none but those that have a driver for graphics. robosuite reads
    ``CUDA_VISIBLE_DEVICES`` where nothing else is said, and fails unless it begins with the number of such a device.
    """
    if os.environ.get("MUJOCO_GL") != "egl":
        return
    visible = os.environ.get(_VISIBLE)
    first = (visible or "").partition(",")[0].strip()
    if visible is None or os.environ.get(_DRAWS_ON, first) != first:
        return  # the simulator's or the user's choice
    known = first.isdecimal() and int(first) < (egl_devices() or sys.maxsize)
    os.environ[_DRAWS_ON] = first if known else "0"


def egl_devices() -> int:
    """The number of EGL devices; 0 if unknown."""
    try:
        egl = ctypes.CDLL(ctypes.util.find_library("EGL") or "libEGL.so.1")
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        place = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    except (OSError, AttributeError):
        return 0
    count = ctypes.c_int(0)
    if place:
        ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(place)(
            0, None, ctypes.byref(count)
        )
    return count.value


@contextmanager
def cuda_unmentioned() -> Iterator[None]:
    """Without ``CUDA_VISIBLE_DEVICES``, which robosuite's import refuses where it does not name the device drawn on."""
    visible = os.environ.pop(_VISIBLE, None)
    try:
        yield
    finally:
        if visible is not None:
            os.environ[_VISIBLE] = visible


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
