"""Scales, frames and dot plots that the figures share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from besttake.reporting.drawing import Area, Element, Figure, Label, Mark, Point, Polyline
from besttake.reporting.numbers import MINUS, interval

if TYPE_CHECKING:
    from besttake.result import Estimate

WIDTH = 460.0
_ROW = 24.0
_GAP = 10.0
_LEFT = 160.0
_RIGHT = 144.0


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


@dataclass(frozen=True)
class DotRow:
    """One line of a dot plot: a label, a number with its interval, and where ``result.json`` has it.

    A ``heading`` is a label alone; the ``best`` row stands on a ground of its own.
    """

    label: str
    estimate: Estimate
    path: str
    color: str = "ink"
    strong: bool = False
    hollow: bool = False
    gap: bool = False
    heading: bool = False
    best: bool = False


@dataclass(frozen=True)
class Style:
    """How numbers of a plot are written: beside the dot, on hover, and by how much the axis is scaled.

    The whole is ``width`` wide, of which the labels have ``left``; a row is ``row`` high.
    """

    text: Callable[[float | None], str]
    tip: Callable[[DotRow], str]
    scale: float = 100.0
    width: float = WIDTH
    left: float = _LEFT
    row: float = _ROW


def dots(
    rows: list[DotRow],
    title: str,
    ends: tuple[float, float],
    style: Style,
    *,
    mark: float | None = None,
    zero: bool = False,
) -> Figure:
    """A dot plot between ``ends``; ``mark`` is where a dashed line stands, ``zero`` makes the one at 0 stand out."""
    top = 4.0
    height = top + sum(style.row + (_GAP if row.gap else 0) for row in rows) + 26
    axis = Axis(*ends, style.left, style.width - _RIGHT)
    bottom = height - 26
    shapes: list[Element] = [*horizontal(axis, top, bottom, zero=zero, about=4, scale=style.scale)]
    if mark is not None:
        shapes.append(Polyline([(axis(mark), top), (axis(mark), bottom)], "muted", 1, (3, 3)))
    y = top
    for row in rows:
        y += style.row + (_GAP if row.gap else 0)
        if row.best:
            ground = [(0.0, y - style.row), (style.width, y - style.row), (style.width, y), (0.0, y)]
            shapes.append(Area(ground, "accent", opacity=0.1))
        shapes += _heading(row, y - style.row / 2) if row.heading else _dot(row, y - style.row / 2, axis, style)
    return Figure(style.width, height, title, tuple(shapes))


def _heading(row: DotRow, y: float) -> list[Element]:
    return [Label(6, y + 4.5, shorten(row.label, 60), row.color, 12.5, "start", True)]


def _dot(row: DotRow, y: float, axis: Axis, style: Style) -> list[Element]:
    room = int(style.left / 7.2)
    label = Label(style.left - 12, y + 4.5, shorten(row.label, room), row.color, 12.5, "end", row.strong)
    value, low, high = row.estimate.value, row.estimate.low, row.estimate.high
    if value is None:
        return [
            label,
            Label(style.left + 6, y + 4.5, shorten(row.estimate.reason or "not measured", 48), "muted", 11.5),
        ]
    shapes: list[Element] = [label]
    if low is not None and high is not None:
        shapes.append(Polyline([(axis.clip(low), y), (axis.clip(high), y)], row.color, 2.2 if row.strong else 1.6))
    data = datum(f"{row.path}/value", value)
    size = 5.0 if row.strong else 4.2
    shapes.append(Mark(axis.clip(value), y, size, row.color, hollow=row.hollow, tip=style.tip(row), data=data))
    span = interval(low, high, scale=style.scale, digits=2 if style.scale == 1 else 1)
    right = style.width - _RIGHT
    shapes.append(Label(right + 62, y + 4.5, style.text(value), row.color, 12.5, "end", row.strong))
    shapes.append(Label(right + 68, y + 4.5, span, "muted", 10.5))
    return shapes
