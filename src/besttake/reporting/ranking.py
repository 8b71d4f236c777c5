"""Ranked takes: their scores over time as a figure, and the page of `besttake rank --html`."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from markupsafe import Markup

from besttake.reporting.drawing import Element, Figure, Frame, Label, Mark, Polyline, horizontal, shorten, spread
from besttake.reporting.numbers import count, sentence
from besttake.reporting.page import Page, Section, block, picture, prose

if TYPE_CHECKING:
    from pathlib import Path

    from besttake.verbs.rank import RankedTake, RankResult

_TIPS = 40
"""At most about so many points of a line say their numbers on hover."""


def make_html(result: RankResult, out: str | Path) -> Path:
    """Write the page of a ranking."""
    of = f" of {result.task}" if result.task and result.matched != "all" else ""
    known = f"{count(result.frames, 'frame')} of {count(result.demos, 'demonstration')}{of} ({result.library})"
    about = f"By {result.scorer} on the window {result.window}, against {known}, embedded by {result.encoder}."
    notes = [prose(sentence(note), "note") for note in result.notes]
    named = [(f"{take.place}. {take.name}", take) for take in result.takes]
    strips = [picture(None, name, _strip(take)) for name, take in named if take.pictures]
    lines = [picture(drawn, name) for name, take in named if (drawn := trace(result, take)) is not None]
    seen = "Frames of each take, spread over what was scored, and below each the demonstration frame that it is most \
like."
    sections = [Section("ranking", "", [prose(about), *notes, result.table.section(name="places")])]
    sections += [Section("seen", "What was seen", [prose(seen), *strips])] if strips else []
    sections += [Section("time", "Over time", [block("pair", *lines)])] if lines else []
    heading = f"{count(len(result.takes), 'take')} ranked"
    return Page(heading, "besttake rank", heading, sections).save(out)


def _strip(take: RankedTake) -> Markup:
    """Frames of a take, each above the demonstration frame that it is most like."""
    image = Markup('<img src="data:image/jpeg;base64,{}" alt="{}">')
    shown = []
    for one in take.pictures:
        when = f"{one.seconds:.1f} s"
        both = [image.format(b64encode(one.frame).decode(), f"take at {when}")]
        if one.nearest:
            both.append(image.format(b64encode(one.nearest).decode(), "demonstration frame most like it"))
        shown.append(Markup('<div>{}<span class="none">{}</span></div>').format(Markup("").join(both), when))
    return block("strip", *shown)


def trace(result: RankResult, take: RankedTake) -> Figure | None:
    """The cosine of a take's frames to their nearest demonstration frames; all figures of a ranking have one scale."""
    if not take.best:
        return None
    last = max([0.1, *(second for one in result.takes for second in one.seconds)])
    values = [value for one in result.takes for value in one.best]
    low, high = spread(values, low=max(values), high=min(values))
    frame = Frame.of((460, 166), (44, 24, 14, 34), (0, last), (low, max(high, low + 0.01)))
    color = "accent" if take.place == 1 else "ink"
    points = [frame.at(second, best) for second, best in zip(take.seconds, take.best, strict=True)]
    shapes: list[Element] = [
        *frame.grid(about=3, scale=1),
        *horizontal(frame.x, frame.y.end, frame.y.start, scale=1),
        Label(frame.x.end, frame.height - 4, "seconds", "muted", 11.5, "end"),
        Label(frame.x.start, 14, "cosine to the nearest demonstration frame", "muted", 11.5),
        Polyline(points, color, 1.8),
    ]
    for i in range(0, len(points), max(1, len(points) // _TIPS)):
        tip = f"{take.seconds[i]:.2f} s: cosine {take.best[i]:.3f} to library frame {take.nearest[i]}"
        shapes.append(Mark(*points[i], 2.4, color, tip=tip))
    return Figure(frame.width, frame.height, f"Score of {shorten(take.name, 60)} over time", tuple(shapes))
