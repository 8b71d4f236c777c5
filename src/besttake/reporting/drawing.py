"""A figure as a list of shapes, drawn as SVG on the page and in files.

Colours are roles ("ink", "accent", "s2"); a theme turns a role into a colour, so that the page can follow light and
dark while a file for a paper has fixed colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

PRINT: dict[str, str] = {
    "paper": "#ffffff", "ink": "#1d1f23", "muted": "#6a6f78", "faint": "#e3e5e8", "accent": "#0b66b0",
    "warn": "#b35c00", "s0": "#0072b2", "s1": "#d55e00", "s2": "#009e73", "s3": "#a05195", "s4": "#8c6d00",
    "s5": "#3aa0d8",
}  # fmt: skip
"""Colours for files. The series s0..s5 are after Okabe and Ito, darkened where needed for contrast on white."""

PAGE: dict[str, str] = {role: f"var(--{role})" for role in PRINT}
"""Colours for the page: CSS variables, so that a figure follows light and dark."""

SERIES = 6
SHAPES = ("circle", "square", "diamond", "triangle", "down", "cross")
Point = tuple[float, float]


@dataclass(frozen=True)
class Element:
    """What all shapes share: ``tip`` is shown on hover, ``data`` becomes ``data-…`` attributes of the SVG."""

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
    """A marker of radius ``r``; ``hollow`` ones are filled with the paper's colour."""

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
    """A drawing of ``width`` x ``height`` units. ``title`` tells what it shows, to those who cannot see it too."""

    width: float
    height: float
    title: str
    shapes: tuple[Element, ...]

    def svg(self, theme: Mapping[str, str] = PRINT, *, standalone: bool = True) -> str:
        """SVG text. A ``standalone`` file has its own background and font."""
        head = f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" role="img" aria-label="{escape(self.title)}"'
        body = "".join(_svg(shape, theme) for shape in self.shapes)
        if not standalone:
            return f'<svg {head} class="fig" style="max-width:{_n(self.width)}px">{body}</svg>'
        size = f'width="{_n(self.width)}" height="{_n(self.height)}" font-family="Helvetica, Arial, sans-serif"'
        ground = f'<rect width="100%" height="100%" style="fill:{theme["paper"]}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {head}>'
            f"<title>{escape(self.title)}</title>{ground}{body}</svg>\n"
        )

    def _repr_svg_(self) -> str:
        """The figure in a notebook."""
        return self.svg()


def marker(series: int) -> str:
    """The marker of a series, by its place in the legend."""
    return SHAPES[series % len(SHAPES)]


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)


def _outline(mark: Mark) -> list[Point]:
    """The corners of a marker that is not a circle, of about a circle's area."""
    x, y, r = mark.x, mark.y, mark.r
    if mark.shape == "square":
        s = r * 0.9
        return [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    if mark.shape == "diamond":
        s = r * 1.25
        return [(x, y - s), (x + s, y), (x, y + s), (x - s, y)]
    if mark.shape in ("triangle", "down"):
        s = r * 1.2 * (1 if mark.shape == "triangle" else -1)
        return [(x, y - s), (x + r * 1.15, y + s * 0.75), (x - r * 1.15, y + s * 0.75)]
    a, b = r * 1.15, r * 0.4
    cross = ((b, b), (b, a), (-b, a), (-b, b), (-a, b), (-a, -b), (-b, -b), (-b, -a), (b, -a), (b, -b), (a, -b), (a, b))
    return [(x + dx, y + dy) for dx, dy in cross]


def _svg(shape: Element, theme: Mapping[str, str]) -> str:
    extra = "".join(f' data-{name}="{escape(value)}"' for name, value in shape.data.items())
    if shape.tip:
        named = escape(" ".join(shape.tip.split()))
        extra += f' data-tip="{escape(shape.tip)}" role="img" aria-label="{named}" tabindex="0"'
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
            return f'<text {place}{anchor} style="{style}"{extra}>{escape(shape.text)}</text>'
    raise TypeError(f"no drawing for {type(shape).__name__}")
