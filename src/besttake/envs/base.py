"""The contract of an environment, which ``besttake.testing.check_env`` checks, and checks that environments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.types import F32, EnvSpec, Observation, Start, Step


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


@runtime_checkable
class Placeable(Protocol):
    """An env that can be set to a recorded simulator state, so that recorded actions can be replayed."""

    def place(self, task: str, state: NDArray[np.float64]) -> None:
        """Go to the simulator's ``state`` (n,) of ``task``; no step is taken."""
        ...


_LISTED = 8


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


def named_task(word: str, known: Sequence[str], uri: str) -> str:
    """The one of the ``known`` tasks that ``word`` gives by name or index."""
    name = known[int(word)] if word.isdecimal() and int(word) < len(known) else word
    if name not in known:
        raise ComponentError(f"{uri}: no task {word!r}; {suggestion(word, known)}")
    return name


def suggestion(word: str, known: Sequence[str]) -> str:
    """A hint for an unknown ``word``: the most similar known one, else a list of the known ones."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"it has {', '.join(known[:_LISTED])}{more}"


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
