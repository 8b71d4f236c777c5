"""Draw figures, which are lists of shapes, as SVG; with the axes and dot plots that the figures share.

Colours are roles ("ink", "accent", "s2"). A theme maps roles to colours, so that figures on the page follow light and
dark mode while files have fixed colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from besttake.core.stats import Estimate
from besttake.reporting.numbers import MINUS, interval
from besttake.sanitize import xml

PRINT: dict[str, str] = {
    "paper": "#ffffff", "ink": "#1d1f23", "muted": "#6a6f78", "faint": "#e3e5e8", "accent": "#0b66b0",
    "warn": "#b35c00", "s0": "#7a4cc2", "s1": "#d23f7e", "s2": "#807500", "s3": "#59636f", "s4": "#43296b",
    "s5": "#94618a",
}  # fmt: skip
"""Colours for files. Policies have s0 to s5, which mean nothing else."""

PAGE: dict[str, str] = {role: f"var(--{role})" for role in PRINT}
"""Colours for the page: CSS variables, which follow light and dark mode."""

SERIES = 6
SHAPES = ("circle", "square", "diamond")
Point = tuple[float, float]
WIDTH = 460.0
_ROW = 22.0
_LEFT = 170.0
_RIGHT = 144.0


@dataclass(frozen=True)
class Element:
    """Base of all shapes: ``tip`` is shown on hover, ``data`` becomes ``data-…`` attributes of the SVG."""

    tip: str = field(default="", kw_only=True)
    data: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    opacity: float = field(default=1.0, kw_only=True)


@dataclass(frozen=True)
class Polyline(Element):
    """A line through ``points``."""

    points: Sequence[Point]
    color: str = "ink"
    width: float = 1.0
    dash: tuple[float, float] | None = None


@dataclass(frozen=True)
class Area(Element):
    """A filled polygon."""

    points: Sequence[Point]
    color: str = "accent"


@dataclass(frozen=True)
class Mark(Element):
    """A marker of radius ``r``; a ``hollow`` one is only an outline."""

    x: float
    y: float
    r: float = 4.0
    color: str = "accent"
    shape: str = "circle"
    hollow: bool = False


@dataclass(frozen=True)
class Label(Element):
    """A line of text; ``anchor`` is start, middle or end."""

    x: float
    y: float
    text: str
    color: str = "ink"
    size: float = 13.0
    anchor: str = "start"
    bold: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing of ``width`` x ``height`` units; screen readers read its ``title``."""

    width: float
    height: float
    title: str
    shapes: tuple[Element, ...]

    def svg(self, theme: Mapping[str, str] = PRINT, *, standalone: bool = True) -> str:
        """Return SVG text; a ``standalone`` file has its own background and font."""
        head = f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" role="img" aria-label="{xml(self.title)}"'
        body = "".join(_svg(shape, theme) for shape in self.shapes)
        if not standalone:
            return f'<svg {head} class="fig" style="max-width:{_n(self.width)}px">{body}</svg>'
        size = f'width="{_n(self.width)}" height="{_n(self.height)}" font-family="Helvetica, Arial, sans-serif"'
        ground = f'<rect width="100%" height="100%" style="fill:{theme["paper"]}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {head}>'
            f"<title>{xml(self.title)}</title>{ground}{body}</svg>\n"
        )

    def _repr_svg_(self) -> str:
        """Show the figure in a notebook."""
        return self.svg()


def marker(series: int) -> str:
    """Return the marker of a series, by its place in the legend."""
    return SHAPES[series % len(SHAPES)]


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)


def _outline(mark: Mark) -> list[Point]:
    """Return the corners of a square or a diamond with about the area of a circle."""
    x, y, r = mark.x, mark.y, mark.r
    if mark.shape == "square":
        s = r * 0.9
        return [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    s = r * 1.25
    return [(x, y - s), (x + s, y), (x, y + s), (x - s, y)]


def _svg(shape: Element, theme: Mapping[str, str]) -> str:
    extra = "".join(f' data-{name}="{xml(value)}"' for name, value in shape.data.items())
    if shape.tip:
        named = xml(" ".join(shape.tip.split()))
        extra += f' data-tip="{xml(shape.tip)}" role="img" aria-label="{named}" tabindex="0"'
    fade = f";opacity:{_n(shape.opacity)}" if shape.opacity < 1 else ""
    match shape:
        case Polyline():
            dash = f";stroke-dasharray:{_n(shape.dash[0])} {_n(shape.dash[1])}" if shape.dash else ""
            style = f"fill:none;stroke:{theme[shape.color]};stroke-width:{_n(shape.width)}{dash}{fade}"
            return f'<polyline points="{_points(shape.points)}" style="{style}"{extra}/>'
        case Area():
            return f'<polygon points="{_points(shape.points)}" style="fill:{theme[shape.color]}{fade}"{extra}/>'
        case Mark():
            fill = theme["paper"] if shape.hollow else theme[shape.color]
            style = f"fill:{fill};stroke:{theme[shape.color]};stroke-width:{1.8 if shape.hollow else 0}{fade}"
            if shape.shape == "circle":
                return f'<circle cx="{_n(shape.x)}" cy="{_n(shape.y)}" r="{_n(shape.r)}" style="{style}"{extra}/>'
            return f'<polygon points="{_points(_outline(shape))}" style="{style}"{extra}/>'
        case Label():
            weight = ";font-weight:600" if shape.bold else ""
            style = f"fill:{theme[shape.color]};font-size:{_n(shape.size)}px{weight}{fade}"
            anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            place = f'x="{_n(shape.x)}" y="{_n(shape.y)}"'
            return f'<text {place}{anchor} style="{style}"{extra}>{xml(shape.text)}</text>'
    raise TypeError(f"no drawing for {type(shape).__name__}")


@dataclass(frozen=True)
class Axis:
    """A linear map from values [low, high] to positions [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of ``value``."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def clip(self, value: float) -> float:
        """Return the position of ``value``, moved into the range if it lies outside."""
        return self(min(max(value, self.low), self.high))


@dataclass(frozen=True)
class Frame:
    """The two axes of a drawing."""

    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> Point:
        """Return the position of a point; one above or below the frame is moved to its edge."""
        return self.x(x), self.y.clip(y)

    def band(self, ranges: Sequence[tuple[float, float, float]], color: str, opacity: float) -> Area:
        """Return the area between the lower and the upper end of each (x, low, high)."""
        edges = [self.at(x, high) for x, _, high in ranges] + [self.at(x, low) for x, low, _ in reversed(ranges)]
        return Area(edges, color, opacity=opacity)

    def grid(self) -> list[Element]:
        """Return horizontal grid lines with numbers at the left."""
        shapes: list[Element] = []
        for tick in ticks(self.y.low, self.y.high):
            y = self.y(tick)
            shapes.append(Polyline([(self.x.start, y), (self.x.end, y)], color="faint"))
            shapes.append(Label(self.x.start - 7, y + 4, tick_text(tick), color="muted", size=11.5, anchor="end"))
        return shapes


def padded_range(values: Sequence[float | None], *, low: float, high: float) -> tuple[float, float]:
    """Return a range that contains ``values``, with some padding, and [low, high]."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    bottom, top = min([low, *known]), max([high, *known])
    air = (top - bottom) * 0.06
    return (bottom - air if bottom < low else low), (top + air if top > high else high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about that many round values inside [low, high]."""
    raw = (high - low) / max(1, about)
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw - 1e-12)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_text(value: float) -> str:
    """``-0.05`` -> "−5"."""
    text = f"{100 * abs(value):.10g}"
    return f"{MINUS}{text}" if value < -1e-12 else text


def horizontal(axis: Axis, top: float, bottom: float, *, zero: bool = False, about: int = 5) -> list[Element]:
    """Return vertical grid lines with numbers below; with ``zero`` the line at 0 is darker."""
    shapes: list[Element] = []
    for tick in ticks(axis.low, axis.high, about):
        x = axis(tick)
        strong = zero and abs(tick) < 1e-12
        shapes.append(Polyline([(x, top), (x, bottom)], color="muted" if strong else "faint"))
        shapes.append(Label(x, bottom + 16, tick_text(tick), color="muted", size=11.5, anchor="middle"))
    return shapes


def shorten(text: str, length: int) -> str:
    """Cut ``text`` to ``length`` letters, with an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def datum(path: str, value: float | None) -> Mapping[str, str]:
    """Return SVG attributes that say which number of ``result.json`` is drawn."""
    return {} if value is None else {"path": path, "value": repr(float(value))}


@dataclass(frozen=True)
class DotRow:
    """One line of a dot plot: a label, an estimate, and its ``path`` in ``result.json``; ``best`` is highlighted."""

    label: str
    estimate: Estimate
    path: str
    color: str = "ink"
    strong: bool = False
    hollow: bool = False
    best: bool = False


Say = Callable[[Estimate], str]
"""Writes an estimate, for hovering."""


def dots(
    rows: list[DotRow], title: str, ends: tuple[float, float], text: Callable[[float | None], str], say: Say, *,
    mark: float | None = None, zero: bool = False,
) -> Figure:  # fmt: skip
    """Draw a dot plot between ``ends``, with each value written beside it by ``text``.

    There is a dashed line at ``mark``; with ``zero`` the grid line at 0 is darker.
    """
    top = 4.0
    bottom = top + _ROW * len(rows)
    axis = Axis(*ends, _LEFT, WIDTH - _RIGHT)
    shapes: list[Element] = [*horizontal(axis, top, bottom, zero=zero, about=4)]
    if mark is not None:
        shapes.append(Polyline([(axis(mark), top), (axis(mark), bottom)], "muted", 1, (3, 3)))
    for i, row in enumerate(rows):
        y = top + _ROW * (i + 1)
        if row.best:
            shapes.append(Area([(0.0, y - _ROW), (WIDTH, y - _ROW), (WIDTH, y), (0.0, y)], "accent", opacity=0.1))
        shapes += _dot(row, y - _ROW / 2, axis, text, say)
    return Figure(WIDTH, bottom + 26, title, tuple(shapes))


def _dot(row: DotRow, y: float, axis: Axis, text: Callable[[float | None], str], say: Say) -> list[Element]:
    label = Label(_LEFT - 12, y + 4.5, shorten(row.label, int(_LEFT / 7.2)), row.color, 12.5, "end", row.strong)
    value, low, high = row.estimate.value, row.estimate.low, row.estimate.high
    if value is None:
        reason = shorten(row.estimate.reason or "not measured", 48)
        return [label, Label(_LEFT + 6, y + 4.5, reason, "muted", 11.5)]
    shapes: list[Element] = [label]
    if low is not None and high is not None:
        shapes.append(Polyline([(axis.clip(low), y), (axis.clip(high), y)], row.color, 2.2 if row.strong else 1.6))
    data = datum(f"{row.path}/value", value)
    size, tip = 5.0 if row.strong else 4.2, f"{row.label}: {say(row.estimate)}, {row.estimate.n} starts"
    shapes.append(Mark(axis.clip(value), y, size, row.color, hollow=row.hollow, tip=tip, data=data))
    right = WIDTH - _RIGHT
    shapes.append(Label(right + 62, y + 4.5, text(value), row.color, 12.5, "end", row.strong))
    shapes.append(Label(right + 68, y + 4.5, interval(low, high, scale=100), "muted", 10.5))
    return shapes
