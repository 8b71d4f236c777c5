"""What every reader returns: episodes with their outcomes, and where they came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from besttake.errors import BestTakeError

_YES = {"1", "1.0", "true", "yes", "success", "succeeded", "successful", "s", "y", "t"}
_NO = {"0", "0.0", "false", "no", "fail", "failure", "failed", "f", "n"}
_NOTHING = {"", "nan", "none", "null", "n/a", "na"}


class IngestError(BestTakeError):
    """A file of outcomes is damaged, of an unknown format, or lacks what headroom needs."""


class UnknownFormat(IngestError):
    """No reader knows the file. In a directory it is passed over."""


@dataclass(frozen=True)
class Episode:
    """One episode. ``start`` names its initial state within the task; ``seed`` tells repeats apart, where known.

    ``success`` is None where the episode could not be run (``error`` says why). ``uid`` names this one execution where
    the file does: two files that hold it hold the same episode. One that begins with ``~`` names it almost surely:
    only files that share all of them are taken for the same.
    """

    task: str
    start: str
    success: bool | None
    policy: str = ""
    env: str = ""
    seed: str = ""
    steps: int | None = None
    error: str = ""
    uid: str = ""


@dataclass(frozen=True)
class Recording:
    """One evaluation as a file or folder holds it.

    ``server`` is what it says of its policy without saying which checkpoint: a server's class, a model family.
    Recordings of one ``origin`` are surely of one policy. ``words`` are the parts of its name that a person chose, by
    which policies may be told apart. ``evaluation`` is its name, where it has one.
    """

    path: str
    format: str
    episodes: tuple[Episode, ...]
    evaluation: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    server: str = ""
    origin: str = ""
    words: str = ""


def outcome(value: Any) -> bool | None:
    """Success as a file says it: True, False, or None where it holds no outcome (null, NaN, an empty cell).

    Booleans, 0 and 1, and the words for them are outcomes. Anything else (0.5, -1, "maybe", a list) is a ValueError:
    no file may make a success of what is none.

    >>> outcome("false"), outcome(1.0), outcome(float("nan"))
    (False, True, None)
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _NOTHING:
            return None
        if text in _YES or text in _NO:
            return text in _YES
    elif hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return outcome(value.item())
    elif isinstance(value, Real) or type(value).__name__ == "Decimal":
        if value != value:  # NaN
            return None
        if value in (0, 1):
            return bool(value == 1)
    raise ValueError(f"success = {value!r:.60} is neither yes nor no; use 1 and 0, or true and false")


def outcome_at(place: str, value: Any) -> bool | None:
    """`outcome` of what a file has at ``place``; IngestError, which begins with it, where that is none."""
    try:
        return outcome(value)
    except ValueError as error:
        raise IngestError(f"{place} has {error}") from error


def whole(value: Any) -> int | None:
    """A count such as a number of steps; None where it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number >= 0 and not isinstance(value, bool) else None
