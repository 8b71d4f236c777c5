"""Dot plots: one row per way of doing things, a dot with its interval, the number at the right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from besttake.reporting.axes import Axis, datum, horizontal, shorten
from besttake.reporting.drawing import Area, Element, Figure, Label, Mark, Polyline
from besttake.reporting.numbers import interval

if TYPE_CHECKING:
    from besttake.result import Estimate

WIDTH = 460.0
_ROW = 24.0
_GAP = 10.0
_LEFT = 160.0
_RIGHT = 144.0


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
