"""What every env refuses in the same words: unknown tasks and cameras, and actions of the wrong size."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np

from besttake.errors import ComponentError
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


def what_there_is(word: str, known: Sequence[str]) -> str:
    """A hint for a wrong ``word``: the known one that it resembles, else the known ones."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"it has {', '.join(known[:_LISTED])}{more}"
