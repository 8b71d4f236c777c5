"""What envs refuse in the same words (tasks, cameras, actions), and what the URI of a wrapped env declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.types import F32, EnvSpec

_LISTED = 8


def check_task(spec: EnvSpec, task: str) -> None:
    """ComponentError when the env has no such task."""
    known = [each.name for each in spec.tasks]
    if task not in known:
        raise ComponentError(f"{spec.name}: no task {task!r}; {what_there_is(task, known)}")


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
        raise ComponentError(f"{uri}: no task {word!r}; {what_there_is(word, known)}")
    return name


def what_there_is(word: str, known: Sequence[str]) -> str:
    """A hint for a wrong ``word``: the known one that it resembles, else the known ones."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"it has {', '.join(known[:_LISTED])}{more}"


@dataclass(frozen=True)
class Declared:
    """Options that `gym:` and `vla-eval:` share, because neither library says it; None where the URI does not.

    ``body`` says where gripper and end effector are, as `EnvSpec` does; ``rebuild``: make the env anew at each reset.
    """

    starts: int | None
    horizon: int | None
    body: Mapping[str, Any]
    fps: float | None
    rebuild: bool


def declared(read: Reader, options: Mapping[str, Any]) -> tuple[Declared, dict[str, Any]]:
    """What ``options`` declare, and those that are left for the env's own constructor."""
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
