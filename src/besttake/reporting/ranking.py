"""A small page with the score traces of ranked takes (`besttake rank --html`)."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING

from besttake.reporting.axes import Scale, shorten, spread, vertical
from besttake.reporting.drawing import Area, Figure, Label, Line, Mark, Shape
from besttake.reporting.page import Page, save, svg

if TYPE_CHECKING:
    from pathlib import Path

    from besttake.verbs.rank import RankedTake, RankResult


def make_html(result: RankResult, out: str | Path) -> Path:
    """Write the page of a ranking."""
    page = Page({"besttake": version("besttake"), **asdict(result)})
    known = [value for take in result.takes for value in take.best]
    last = max([1, *(step for take in result.takes for step in take.steps)])
    low, high = spread(known, low=1.0, high=1.0) if known else (0.0, 1.0)
    rows = [(i, take, svg(_trace(take, result, low, high, last))) for i, take in enumerate(result.takes)]
    return save(page.render("rank.html.j2", result=result, rows=rows), out)


def _trace(take: RankedTake, result: RankResult, low: float, high: float, last: int) -> Figure | None:
    """The take's cosine to its nearest demonstration frame over time; grey: not part of the score."""
    if not take.best:
        return None
    width, height, left, top, right, bottom = 460.0, 150.0, 44.0, 8.0, 10.0, 26.0
    x_scale, y_scale = Scale(0, last, left, width - right), Scale(low, max(high, low + 0.01), height - bottom, top)
    shapes: list[Shape] = [*vertical(y_scale, left, width - right, about=3)]
    shapes.append(Label(width - right, height - 6, f"frame {last}", "muted", 11.5, "end"))
    shapes.append(Label(left, height - 6, "cosine to the nearest demonstration frame", "muted", 11.5))
    counted = take.steps[take.scored - 1] if take.scored else 0
    if take.steps[-1] > counted:
        edges = [(x_scale(counted), top), (x_scale(take.steps[-1]), top)]
        edges += [(x_scale(take.steps[-1]), height - bottom), (x_scale(counted), height - bottom)]
        shapes.append(Area(edges, "muted", opacity=0.12, tip=f"not scored: beyond the window {result.window}"))
    points = [(x_scale(step), y_scale(best)) for step, best in zip(take.steps, take.best, strict=True)]
    color = "accent" if take.place == 1 else "ink"
    shapes.append(Line(points, color, 1.8))
    every = max(1, len(points) // 40)
    for i in range(0, len(points), every):
        tip = f"frame {take.steps[i]}: cosine {take.best[i]:.3f} to library frame {take.nearest[i]}"
        shapes.append(Mark(*points[i], 2.4, color, tip=tip))
    return Figure(width, height, f"Score of {shorten(take.name, 60)} over time", tuple(shapes))
