"""Ranked takes: their scores over time as a figure, and the page of `besttake rank --html`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from besttake.files import version
from besttake.reporting.axes import Frame, shorten, spread
from besttake.reporting.drawing import SERIES, Area, Element, Figure, Label, Mark, Polyline
from besttake.reporting.page import Page, svg

if TYPE_CHECKING:
    from pathlib import Path

    from besttake.verbs.rank import RankedTake, RankResult

_TIPS = 40
"""At most about so many points of a line say their numbers on hover."""


def make_html(result: RankResult, out: str | Path) -> Path:
    """Write the page of a ranking."""
    page = Page({"besttake": version(), **asdict(result)})
    rows = [(i, take, svg(traces(result, [take]))) for i, take in enumerate(result.takes)]
    return page.save(out, "rank.html.j2", result=result, rows=rows)


def traces(result: RankResult, takes: Sequence[RankedTake]) -> Figure | None:
    """The cosine of each take's frames to their nearest demonstration frames; grey: not part of the score.

    All figures of a ranking have the same axes. With several takes each has its own colour, and its name at the top.
    """
    drawn = [take for take in takes if take.best]
    if not drawn:
        return None
    last = max([1, *(step for take in result.takes for step in take.steps)])
    low, high = spread([value for take in result.takes for value in take.best], low=1.0, high=1.0)
    legend = 16 * len(drawn) if len(drawn) > 1 else 0
    frame = Frame.of((460, 150 + legend), (44, 8 + legend, 10, 26), (0, last), (low, max(high, low + 0.01)))
    below = frame.height - 6
    shapes: list[Element] = [
        *frame.grid(about=3),
        Label(frame.x.end, below, f"frame {last}", "muted", 11.5, "end"),
        Label(frame.x.start, below, "cosine to the nearest demonstration frame", "muted", 11.5),
    ]
    for i, take in enumerate(drawn):
        color = f"s{i % SERIES}" if legend else "accent" if take.place == 1 else "ink"
        if legend:
            shapes.append(Label(frame.x.start, 16 * (i + 1), f"{take.place}. {shorten(take.name, 60)}", color, 12))
        else:
            shapes += _unscored(take, result.window, frame)
        shapes += _trace(take, color, frame)
    name = f"{len(drawn)} takes" if legend else shorten(drawn[0].name, 60)
    return Figure(frame.width, frame.height, f"Score of {name} over time", tuple(shapes))


def _trace(take: RankedTake, color: str, frame: Frame) -> list[Element]:
    points = [frame.at(step, best) for step, best in zip(take.steps, take.best, strict=True)]
    shapes: list[Element] = [Polyline(points, color, 1.8)]
    for i in range(0, len(points), max(1, len(points) // _TIPS)):
        tip = f"frame {take.steps[i]}: cosine {take.best[i]:.3f} to library frame {take.nearest[i]}"
        shapes.append(Mark(*points[i], 2.4, color, tip=tip))
    return shapes


def _unscored(take: RankedTake, window: str, frame: Frame) -> list[Element]:
    """The grey area over the frames that the window leaves out."""
    end = take.steps[take.scored - 1] if take.scored else 0
    if take.steps[-1] <= end:
        return []
    left, right, top, bottom = frame.x(end), frame.x(take.steps[-1]), frame.y.end, frame.y.start
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return [Area(corners, "muted", opacity=0.12, tip=f"not scored: beyond the window {window}")]
