"""Write fractions, differences and intervals as text, in the same way everywhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from besttake.result import Estimate

MINUS = "\N{MINUS SIGN}"


def number(value: float | None, digits: int = 1, *, signed: bool = False, scale: float = 1.0) -> str:
    """``0.1124`` -> "0.1"; with ``signed`` and ``scale=100``, "+11.2". Empty if there is no number."""
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
    """``[8.0, 14.3]``; empty if either end is unknown."""
    ends = number(low, digits, scale=scale), number(high, digits, scale=scale)
    return f"[{ends[0]}, {ends[1]}]" if all(ends) else ""


def plus_minus(sd: float | None) -> str:
    """``0.021`` -> "± 2.1", a standard deviation in points; empty if there is none."""
    text = number(sd, scale=100)
    return f"± {text}" if text else ""


def estimate_plain(estimate: Estimate | None) -> str:
    """``0.88 [0.61, 0.97]``; empty, as the next two, if there is no value."""
    return _with_interval(number(estimate.value, 2), estimate, 1, 2) if estimate else ""


def estimate_percent(estimate: Estimate | None) -> str:
    """``64.2 % [58.1, 70.0]``."""
    return _with_interval(percent(estimate.value), estimate, 100, 1) if estimate else ""


def estimate_points(estimate: Estimate | None, unit: str = " points") -> str:
    """``+11.2 points [8.0, 14.3]``."""
    return _with_interval(points(estimate.value), estimate, 100, 1, unit) if estimate else ""


def _with_interval(text: str, estimate: Estimate, scale: float, digits: int, unit: str = "") -> str:
    span = interval(estimate.low, estimate.high, scale=scale, digits=digits)
    return f"{text}{unit} {span}".rstrip() if text else ""


def whole_points(fraction: float) -> str:
    """``0.03`` -> "3 points", ``0.025`` -> "2.5 points"."""
    return f"{number(fraction, scale=100).removesuffix('.0')} points"


def count(n: int, one: str, many: str | None = None) -> str:
    """``count(1, "start")`` -> "1 start", ``count(3, "start")`` -> "3 starts"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def sentence(text: str) -> str:
    """``text`` with a full stop, and with a capital unless a name such as ``gym:reach`` or ``clumsy:`` begins it."""
    text = text.strip()
    if not text:
        return ""
    first = text[:1] if ":" in text.split()[0] else text[:1].upper()
    return f"{first}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def time_text(seconds: float) -> str:
    """``75`` -> "1 min 15 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
