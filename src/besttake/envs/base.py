"""The contract of an environment, which ``besttake.testing.check_env`` checks, and what adapters of simulators share.

They share checks of tasks, cameras and actions, what only a URI can declare, and settings of the whole process: the
OpenGL back end, and the global random generators.
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
        ...

    def reset(self, start: Start) -> None:
        """Go to ``start``. The same start must give the same state, bit for bit, every time."""
        ...

    def step(self, action: F32) -> Step:
        """Execute one action, float32 (action_dim,), and return the outcome. This must not render."""
        ...

    def observe(self, cameras: Sequence[str]) -> Observation:
        """Return the state, the instruction and the images of ``cameras``, and render no other camera.

        Observing must not change what later steps do.
        """
        ...

    def close(self) -> None:
        """Free the simulator and its graphics context."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """An env whose whole state can be saved and restored exactly, so that the takes of a start share one reset."""

    def save(self) -> Any:
        """An opaque snapshot of the state after ``reset``; `restore` on any env of the same URI accepts it."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Restore ``snapshot``; later steps are bit for bit those that would follow the reset it was saved after."""
        ...


_VISIBLE, _DRAWS_ON = "CUDA_VISIBLE_DEVICES", "MUJOCO_EGL_DEVICE_ID"


def check_task(spec: EnvSpec, task: str) -> None:
    """ComponentError when the env has no such task."""
    known = [each.name for each in spec.tasks]
    if task not in known:
        raise ComponentError(f"{spec.name}: no task {task!r}; {suggestion(task, known)}")


def check_cameras(spec: EnvSpec, cameras: Sequence[str]) -> None:
    """ComponentError when the env has no camera of one of these names."""
    for camera in cameras:
        if camera not in spec.cameras:
            raise ComponentError(f"{spec.name}: no camera {camera!r}; it has {', '.join(spec.cameras)}")


def check_action(spec: EnvSpec, action: F32) -> None:
    """ComponentError unless ``action`` is a vector of ``action_dim`` finite numbers."""
    if action.shape != (spec.action_dim,) or not np.isfinite(action).all():
        raise ComponentError(f"{spec.name}: an action is {spec.action_dim} finite numbers, got {action!r}")


def checked_step(step: Step) -> tuple[bool, bool]:
    """Whether ``step`` was a success, and whether the env cannot go on; ComponentError unless both are booleans."""
    for name in ("success", "done"):
        flag: Any = getattr(step, name, None)
        whole = isinstance(flag, np.ndarray) and flag.ndim == 0 and flag.dtype == bool
        if not whole and not isinstance(flag, bool | np.bool_):
            raise ComponentError(f"step gave {name} {flag!r:.60}, which is neither true nor false")
    return bool(step.success), bool(step.done)


def said_success(who: str, value: Any, what: str = "success") -> bool:
    """What a simulator of others says of success: a boolean, or the number 1 or 0; ComponentError for all else."""
    given = np.asarray(value)
    if given.size != 1 or given.dtype.kind not in "biuf" or given.item() not in (0, 1):
        raise ComponentError(f"{who}: {what} is {value!r:.60}, which is neither true nor false")
    return bool(given.item())


def checked_state(spec: EnvSpec, state: Any) -> F32:
    """``state`` as float32; ComponentError unless it is a vector of ``state_dim`` finite numbers."""
    given = np.asarray(state)
    if given.dtype.kind not in "fiub" or given.shape != (spec.state_dim,):
        raise ComponentError(f"a state is {spec.state_dim} numbers, this one is {given.dtype} of shape {given.shape}")
    if not np.isfinite(given).all():
        raise ComponentError(f"a state is finite numbers, this one has {given[~np.isfinite(given)][0]}")
    return given.astype(np.float32, copy=False)


def checked_picture(camera: str, picture: Any) -> U8:
    """``picture`` as it is; ComponentError unless it is uint8 (H, W, 3)."""
    given: Array = np.asarray(picture)
    if given.dtype != np.uint8 or given.ndim != 3 or given.shape[2] != 3 or not given.size:
        raise ComponentError(f"image {camera!r} must be uint8 (H, W, 3), not {given.dtype} {given.shape}")
    return given


def named_task(word: str, known: Sequence[str], uri: str) -> str:
    """The one of the ``known`` tasks that ``word`` gives by name or index."""
    name = known[int(word)] if word.isdecimal() and int(word) < len(known) else word
    if name not in known:
        raise ComponentError(f"{uri}: no task {word!r}; {suggestion(word, known)}")
    return name


@dataclass(frozen=True)
class Declared:
    """Properties of a `gym:` or `vla-eval:` env that only its URI can declare; None if it does not.

    ``body`` says where gripper and end effector are, as in `EnvSpec`; ``rebuild``: create a new env at each reset.
    """

    starts: int | None
    horizon: int | None
    body: Mapping[str, Any]
    fps: float | None
    rebuild: bool


def declared(read: Reader, options: Mapping[str, Any]) -> tuple[Declared, dict[str, Any]]:
    """Split ``options`` into what they declare and those left for the env's own constructor."""
    left = dict(options)
    fps = left.pop("fps", None)
    starts = read.optional_whole("starts", left.pop("starts", None))
    horizon = read.optional_whole("horizon", left.pop("horizon", None))
    body = {
        "gripper_dim": read.optional_whole("gripper_dim", left.pop("gripper_dim", None), least=0),
        "gripper_open": int(read.choice("gripper_open", str(left.pop("gripper_open", -1)), ("-1", "1"))),
        "eef_dims": read.indexes("eef_dims", left.pop("eef_dims", None)) or None,
    }
    rate, rebuild = None if fps is None else read.number("fps", fps), read.flag("rebuild", left.pop("rebuild", False))
    return Declared(starts, horizon, body, rate, rebuild), left


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
