"""Numbers as text: the one place that decides how a fraction, a difference or an interval is written."""

from __future__ import annotations

import math
from typing import Any

MINUS = "\N{MINUS SIGN}"
UNKNOWN = "not measured"


def number(value: float | None, digits: int = 1, *, signed: bool = False, scale: float = 1.0) -> str:
    """``0.1124`` -> "0.1"; with ``signed`` and ``scale=100``, "+11.2". Empty when there is no number."""
    if value is None or not math.isfinite(value):
        return ""
    scaled = round(value * scale, digits) + 0.0
    text = f"{abs(scaled):.{digits}f}"
    if scaled < 0:
        return MINUS + text
    return f"+{text}" if signed else text


def percent(value: float | None) -> str:
    """``0.642`` -> "64.2 %"."""
    text = number(value, scale=100)
    return f"{text}\N{NO-BREAK SPACE}%" if text else ""


def points(value: float | None) -> str:
    """``0.112`` -> "+11.2", a difference in percentage points."""
    return number(value, signed=True, scale=100)


def interval(low: float | None, high: float | None, *, scale: float = 1.0, digits: int = 1) -> str:
    """``[8.0, 14.3]``; empty when either end is unknown."""
    ends = number(low, digits, scale=scale), number(high, digits, scale=scale)
    return f"[{ends[0]}, {ends[1]}]" if all(ends) else ""


def spread(sd: float | None) -> str:
    """``0.021`` -> "± 2.1", a standard deviation in points; empty when there is none."""
    text = number(sd, scale=100)
    return f"± {text}" if text else ""


def estimate_points(estimate: Any) -> str:
    """``+11.2 points [8.0, 14.3]`` of an `Estimate`; empty when it has no value."""
    text = points(estimate.value)
    if not text:
        return ""
    span = interval(estimate.low, estimate.high, scale=100)
    return f"{text} points {span}".rstrip()


def bounds(point: Any) -> str:
    """``, within [60.1, 88.0] whatever the starts are like`` of a `CurvePoint`; empty where they pin nothing down.

    Moments of few starts may belong to no distribution at all; the bounds then close on one point, which says nothing.
    """
    if point.bounds is None or point.bounds[1] - point.bounds[0] < 0.005:
        return ""
    return f", within {interval(*point.bounds, scale=100)} whatever the starts are like"


def times(cost: float) -> str:
    """``3.0`` -> "3x", ``1.5`` -> "1.5x"."""
    return f"{cost:g}\N{MULTIPLICATION SIGN}"


def count(n: int, one: str, many: str | None = None) -> str:
    """``count(1, "start")`` -> "1 start", ``count(3, "start")`` -> "3 starts"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def sentence(text: str) -> str:
    """``text`` with a capital at its start and a full stop at its end."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""


def duration(seconds: float) -> str:
    """``75`` -> "1 min 15 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
