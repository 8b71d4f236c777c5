"""The contract of an environment, which ``besttake.testing.check_env`` checks, and what adapters of simulators share.

They share checks of tasks, cameras and actions, the properties that a URI can declare, and settings of the whole
process: the OpenGL back end, the graphics device and the global random generators.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from besttake.errors import ComponentError, suggestion
from besttake.options import Reader
from besttake.types import F32, U8, Array, EnvSpec, Observation, Start, Step


class Env(Protocol):
    """One simulator or robot.

    `step` never renders; `observe` renders the cameras that it is asked for. `besttake.testing.check_env` checks an
    implementation.
    """

    @property
    def spec(self) -> EnvSpec:
        """The tasks, starts, cameras and sizes of this environment."""

    def reset(self, start: Start) -> None:
        """Go to ``start``. The same start must give the same state, bit for bit, every time."""

    def step(self, action: F32) -> Step:
        """Execute one action, float32 (action_dim,), and return the outcome. This must not render."""

    def observe(self, cameras: Sequence[str]) -> Observation:
        """Return the state, the instruction and the images of ``cameras``, and render no other camera.

        Observing must not change what later steps do.
        """

    def close(self) -> None:
        """Free the simulator and its graphics context."""


@runtime_checkable
class Restorable(Protocol):
    """An env whose whole state can be saved and restored exactly, so that the takes of a start share one reset."""

    def save(self) -> Any:
        """An opaque snapshot of the state after ``reset``; `restore` on any env of the same URI accepts it."""

    def restore(self, snapshot: Any) -> None:
        """Restore ``snapshot``; later steps must be bit for bit those that follow the reset before `save`."""


_VISIBLE_GPUS, _RENDER_DEVICE = "CUDA_VISIBLE_DEVICES", "MUJOCO_EGL_DEVICE_ID"


def check_task(spec: EnvSpec, task: str) -> None:
    """Raise ComponentError if the env has no such task."""
    known = [each.name for each in spec.tasks]
    if task not in known:
        raise ComponentError(f"{spec.name}: no task {task!r}; {suggestion(task, known)}")


def check_cameras(spec: EnvSpec, cameras: Sequence[str]) -> None:
    """Raise ComponentError if the env lacks one of these cameras."""
    for camera in cameras:
        if camera not in spec.cameras:
            raise ComponentError(f"{spec.name}: no camera {camera!r}; it has {', '.join(spec.cameras)}")


def check_action(spec: EnvSpec, action: F32) -> None:
    """Raise ComponentError unless ``action`` is a vector of ``action_dim`` finite numbers."""
    if action.shape != (spec.action_dim,) or not np.isfinite(action).all():
        raise ComponentError(f"{spec.name}: an action is {spec.action_dim} finite numbers, got {action!r}")


def checked_step(step: Step) -> tuple[bool, bool]:
    """``success`` and ``done`` of ``step``; ComponentError unless both are booleans."""
    for name in ("success", "done"):
        flag: Any = getattr(step, name, None)
        is_scalar = isinstance(flag, np.ndarray) and flag.ndim == 0 and flag.dtype == bool
        if not is_scalar and not isinstance(flag, bool | np.bool_):
            raise ComponentError(f"step gave {name} {flag!r:.60}, which is neither true nor false")
    return bool(step.success), bool(step.done)


def checked_flag(env: str, value: Any, name: str = "success") -> bool:
    """``value`` as a boolean; ComponentError unless it is a boolean or the number 1 or 0, as simulators return it."""
    flag = np.asarray(value)
    if flag.size != 1 or flag.dtype.kind not in "biuf" or flag.item() not in (0, 1):
        raise ComponentError(f"{env}: {name} is {value!r:.60}, which is neither true nor false")
    return bool(flag.item())


def checked_state(spec: EnvSpec, state: Any) -> F32:
    """``state`` as float32; ComponentError unless it is a vector of ``state_dim`` finite numbers."""
    vector = np.asarray(state)
    if vector.dtype.kind not in "fiub" or vector.shape != (spec.state_dim,):
        raise ComponentError(f"a state is {spec.state_dim} numbers, this one is {vector.dtype} of shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise ComponentError(f"a state is finite numbers, this one has {vector[~np.isfinite(vector)][0]}")
    return vector.astype(np.float32, copy=False)


def checked_picture(camera: str, picture: Any) -> U8:
    """``picture`` unchanged; ComponentError unless it is uint8 (H, W, 3)."""
    image: Array = np.asarray(picture)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise ComponentError(f"image {camera!r} must be uint8 (H, W, 3), not {image.dtype} {image.shape}")
    return image


def named_task(word: str, known: Sequence[str], uri: str) -> str:
    """The name of the task that ``word`` gives by name or index; ComponentError unless it is among the ``known``."""
    name = known[int(word)] if word.isdecimal() and int(word) < len(known) else word
    if name not in known:
        raise ComponentError(f"{uri}: no task {word!r}; {suggestion(word, known)}")
    return name


@dataclass(frozen=True)
class DeclaredFacts:
    """Properties that the URI of a `gym:`, `vla-eval:` or `robot:` env declares; None if it does not.

    ``body`` says where gripper and end effector are, as in `EnvSpec`; ``rebuild``: create a new env at each reset.
    """

    starts: int | None
    horizon: int | None
    body: Mapping[str, Any]
    fps: float | None
    rebuild: bool


def declared(read: Reader, options: Mapping[str, Any]) -> tuple[DeclaredFacts, dict[str, Any]]:
    """Split ``options`` into the declared properties and the options for the env's own constructor."""
    rest = dict(options)
    fps = rest.pop("fps", None)
    starts = read.optional_whole("starts", rest.pop("starts", None))
    horizon = read.optional_whole("horizon", rest.pop("horizon", None))
    body = {
        "gripper_dim": read.optional_whole("gripper_dim", rest.pop("gripper_dim", None), least=0),
        "gripper_open": int(read.choice("gripper_open", str(rest.pop("gripper_open", -1)), ("-1", "1"))),
        "eef_dims": read.indexes("eef_dims", rest.pop("eef_dims", None)) or None,
    }
    rate, rebuild = None if fps is None else read.number("fps", fps), read.flag("rebuild", rest.pop("rebuild", False))
    return DeclaredFacts(starts, horizon, body, rate, rebuild), rest


def choose_gl() -> None:
    """Set ``MUJOCO_GL`` to an installed back end, unless the user has set it. Call it before importing a simulator."""
    if not os.environ.get("MUJOCO_GL") and sys.platform == "linux":
        if ctypes.util.find_library("EGL"):
            os.environ["MUJOCO_GL"] = "egl"
        elif ctypes.util.find_library("OSMesa"):
            os.environ["MUJOCO_GL"] = "osmesa"
    chosen = os.environ.get("MUJOCO_GL", "")
    if chosen in ("egl", "osmesa"):
        os.environ.setdefault("PYOPENGL_PLATFORM", chosen)


def choose_device() -> None:
    """Have robosuite render on the GPU on which this process computes, else on EGL's first device.

    EGL knows devices by number only, and lists only those with a graphics driver. By default robosuite reads
    ``CUDA_VISIBLE_DEVICES``, and fails unless it begins with the number of such a device.
    """
    if os.environ.get("MUJOCO_GL") != "egl":
        return
    visible = os.environ.get(_VISIBLE_GPUS)
    first = (visible or "").partition(",")[0].strip()
    if visible is None or os.environ.get(_RENDER_DEVICE, first) != first:
        return  # the simulator or the user has chosen
    known = first.isdecimal() and int(first) < (egl_devices() or sys.maxsize)
    os.environ[_RENDER_DEVICE] = first if known else "0"


def egl_devices() -> int:
    """The number of EGL devices; 0 if unknown."""
    try:
        egl = ctypes.CDLL(ctypes.util.find_library("EGL") or "libEGL.so.1")
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    except (OSError, AttributeError):
        return 0
    count = ctypes.c_int(0)
    if address:
        query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)
        query(0, None, ctypes.byref(count))
    return count.value


@contextmanager
def without_visible_gpus() -> Iterator[None]:
    """Hide ``CUDA_VISIBLE_DEVICES``: robosuite cannot be imported if it does not name the rendering device."""
    visible = os.environ.pop(_VISIBLE_GPUS, None)
    try:
        yield
    finally:
        if visible is not None:
            os.environ[_VISIBLE_GPUS] = visible


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed the global generators of numpy, Python and (if loaded) torch, and restore their states afterwards."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    torch = sys.modules.get("torch")
    torch_state = torch.random.get_rng_state() if torch is not None else None
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if torch is not None:
            torch.random.set_rng_state(torch_state)
