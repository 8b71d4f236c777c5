"""Scales, ticks and frames that the figures share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from besttake.reporting.drawing import Area, Element, Label, Point, Polyline
from besttake.reporting.numbers import MINUS


@dataclass(frozen=True)
class Axis:
    """A linear map of values [low, high] to positions [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The position of ``value``."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def clip(self, value: float) -> float:
        """The position of ``value``, held inside the scale."""
        return self(min(max(value, self.low), self.high))


@dataclass(frozen=True)
class Frame:
    """Where data stand in a drawing of ``width`` x ``height`` with the given margins."""

    width: float
    height: float
    x: Axis
    y: Axis

    @classmethod
    def of(
        cls,
        size: tuple[float, float],
        margins: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
    ) -> Frame:
        """A frame of ``size`` that shows the ranges ``x`` and ``y`` inside ``margins`` (left, top, right, bottom)."""
        (width, height), (left, top, right, bottom) = size, margins
        return cls(width, height, Axis(*x, left, width - right), Axis(*y, height - bottom, top))

    def at(self, x: float, y: float) -> Point:
        """The place of a point; values above or below the frame stand at its edge."""
        return self.x(x), self.y.clip(y)

    def band(self, ranges: Sequence[tuple[float, float, float]], color: str, opacity: float) -> Area:
        """The area between the lower and the upper end of each (x, low, high)."""
        edges = [self.at(x, high) for x, _, high in ranges] + [self.at(x, low) for x, low, _ in reversed(ranges)]
        return Area(edges, color, opacity=opacity)

    def grid(self, about: int = 5) -> list[Element]:
        """Horizontal grid lines with numbers at the left."""
        shapes: list[Element] = []
        for tick in ticks(self.y.low, self.y.high, about):
            y = self.y(tick)
            shapes.append(Polyline([(self.x.start, y), (self.x.end, y)], color="faint"))
            shapes.append(Label(self.x.start - 7, y + 4, tick_text(tick), color="muted", size=11.5, anchor="end"))
        return shapes


def spread(values: Sequence[float | None], *, low: float, high: float, pad: float = 0.06) -> tuple[float, float]:
    """A range that holds ``values`` and [low, high], with some air around the values."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    bottom, top = min([low, *known]), max([high, *known])
    air = (top - bottom) * pad
    return (bottom - air if bottom < low else low), (top + air if top > high else high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values inside [low, high]."""
    raw = (high - low) / max(1, about)
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw - 1e-12)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_text(value: float, scale: float = 100) -> str:
    """``-0.05`` -> "−5"."""
    text = f"{abs(value) * scale:.10g}"
    return f"{MINUS}{text}" if value < -1e-12 else text


def horizontal(
    axis: Axis, top: float, bottom: float, *, zero: bool = False, about: int = 5, scale: float = 100
) -> list[Element]:
    """Vertical grid lines with numbers below; the line at 0 stands out where ``zero``."""
    shapes: list[Element] = []
    for tick in ticks(axis.low, axis.high, about):
        x = axis(tick)
        strong = zero and abs(tick) < 1e-12
        shapes.append(Polyline([(x, top), (x, bottom)], color="muted" if strong else "faint"))
        shapes.append(Label(x, bottom + 16, tick_text(tick, scale), color="muted", size=11.5, anchor="middle"))
    return shapes


def shorten(text: str, length: int) -> str:
    """``text`` cut to ``length`` letters, with an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def datum(path: str, value: float | None) -> Mapping[str, str]:
    """The attributes by which a test (or a script) finds a drawn number in ``result.json``."""
    return {} if value is None else {"path": path, "value": repr(float(value))}
