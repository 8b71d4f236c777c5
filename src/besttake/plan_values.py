"""What a plan's values mean: text in, the value out, ValueError or PlanError where it means none."""

from __future__ import annotations

from typing import Any

from besttake.errors import PlanError


def as_tuple(value: Any) -> Any:
    """A lone string is a tuple of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def count(most: int, value: Any) -> int | str:
    """A number of at least 1, or ``auto``."""
    text = str(value).strip()
    if text == "auto":
        return text
    if isinstance(value, bool) or not text.isdecimal() or not 1 <= int(text[:6]) <= most:
        raise ValueError(f"must be a number from 1 to {most}, or auto")
    return int(text)


def split(value: Any) -> Any:
    """As `as_tuple`, but commas separate the parts of a string."""
    return as_tuple([part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value)


def parse_dims(text: Any) -> Any:
    """``"0,1,2"`` -> (0, 1, 2); anything but a string passes."""
    if not isinstance(text, str):
        return as_tuple(text)
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError("dimensions are whole numbers with commas between them, e.g. 0,1,2") from None


_TUNING = "tuning:"


def is_tuning(starts: int | str) -> bool:
    """Whether ``starts`` are those that an env keeps apart for choosing and learning, as in ``tuning:40``."""
    return str(starts).strip().startswith(_TUNING)


def parse_starts(value: int | str) -> tuple[int, int]:
    """``"20"`` -> (0, 20); ``"20:60"`` -> (20, 60): positions among the starts an env offers, end excluded.

    With ``tuning:`` before it, positions among those that it keeps apart.
    """
    text = str(value).strip().removeprefix(_TUNING)
    first, colon, end = text.partition(":")
    try:
        span = (int(first), int(end)) if colon else (0, int(first))
    except ValueError:
        raise ValueError(f"{text[:40]!r} is neither a count (20) nor a range (20:60)") from None
    if not 0 <= span[0] < span[1]:
        raise ValueError(f"{text[:40]!r} holds no start")
    return span


def check_worth(worth: float) -> None:
    """PlanError unless ``worth`` is a number of points as in a plan."""
    try:
        points(worth)
    except ValueError as error:
        raise PlanError(f"`worth` {worth:g}: {error}") from None


_LEAST_WORTH = 0.25


def points(worth: float) -> float:
    """A number of percentage points; ValueError for one that is out of range, or looks like a fraction."""
    if 0 < worth < _LEAST_WORTH:
        raise ValueError(f"points, of which no run can show fewer than {_LEAST_WORTH}; did you mean {100 * worth:g}?")
    if not 0 < worth < 100:
        raise ValueError("must be above 0 and below 100 points, e.g. 3")
    return worth
