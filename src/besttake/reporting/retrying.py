"""Retrying until a score passes, beside the best of k: the part of the verifier page that says what a take buys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from besttake.core import reject
from besttake.reporting.charts import Frame, datum, spread, tick_text, ticks
from besttake.reporting.drawing import Element, Figure, Label, Mark, Polyline
from besttake.reporting.numbers import estimate_percent, estimate_plain, estimate_points, number, percent
from besttake.reporting.page import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from besttake.measure.verifiers import Retrying, Spent, Verified

_SHOWN = 4
HEAD = ("scorer", "takes on average", "success", "gain over one take", "success, best of all")
POINTS = ("scorer", "rule", "takes on average", "success")


def ordered(cell: Verified) -> list[tuple[int, Retrying]]:
    """All scorers with their place in the cell, the one with the highest success of the best of all takes first."""
    return sorted(enumerate(cell.retrying), key=lambda pair: -pair[1].best_of[-1].success)


def rows(cell: Verified) -> list[tuple[str, ...]]:
    """A line of text per scorer, for tables."""
    return [
        (
            one.scorer, estimate_plain(one.takes), estimate_percent(one.success), estimate_points(one.gain, ""),
            percent(one.best_of[-1].success),
        )
        for _, one in ordered(cell)
    ]  # fmt: skip


def points(cell: Verified) -> list[tuple[str, ...]]:
    """The points of all curves as text: the best of 1 to n, and retrying by thresholds that so many takes pass."""
    lines: list[tuple[str, ...]] = []
    for _, one in ordered(cell):
        rules = [(f"best of {k}", point) for k, point in enumerate(one.best_of, start=1)]
        passed = zip(reject.RATES, one.curve, strict=True)
        rules += [(f"retry, {100 * rate:.0f} % pass", point) for rate, point in passed]
        lines += [(one.scorer, rule, number(point.takes, 2), percent(point.success)) for rule, point in rules]
    return lines


def context(cell: Verified, path: str) -> list[dict[str, Any]]:
    """What the page shows: every scorer, with pictures of the first few on one scale."""
    every = [point.success for one in cell.retrying for point in (*one.curve, *one.best_of)]
    shown = []
    for place, (i, one) in enumerate(ordered(cell)):
        at = f"{path}/retrying/{i}"
        figure = svg(curves(one, at, every)) if place < _SHOWN else None
        shown.append({"one": one, "at": at, "figure": figure, "last": len(one.best_of) - 1})
    return shown


def curves(one: Retrying, path: str, every: Sequence[float]) -> Figure:
    """Success against mean takes: retrying by ever stricter thresholds, and the best of 1, 2, … n. ``every``: scale."""
    n = len(one.best_of)
    frame = Frame.of((320, 260), (44, 26, 14, 40), (1, n), spread(every, low=min(every), high=max(every) + 1e-9))
    shapes: list[Element] = frame.grid(4)
    for tick in ticks(1, n, min(n - 1, 6)):
        shapes.append(Polyline([(frame.x(tick), frame.y.end), (frame.x(tick), frame.y.start)], "faint"))
        shapes.append(Label(frame.x(tick), frame.y.start + 16, tick_text(tick, 1), "muted", 11.5, "middle"))
    shapes.append(Label(frame.x.end, frame.height - 4, "takes on average", "muted", 11.5, "end"))
    shapes.append(Label(frame.x.start, 14, "success, %", "muted", 11.5))
    shapes += _line(one.best_of, f"{path}/best_of", frame, "best of", "muted", hollow=True)
    shapes += _line(one.curve, f"{path}/curve", frame, "retrying,", "accent", hollow=False)
    takes, success = one.takes.value, one.success.value
    if takes is not None and success is not None:
        tip = f"the threshold chosen: {number(takes, 2)} takes, success {percent(success)}"
        data = datum(f"{path}/success/value", success)
        shapes.append(Mark(*frame.at(takes, success), 6, "ink", "diamond", tip=tip, data=data))
    return Figure(frame.width, frame.height, f"Success against mean takes, {one.scorer}", tuple(shapes))


def _line(points: Sequence[Spent], path: str, frame: Frame, what: str, color: str, *, hollow: bool) -> list[Element]:
    """A line through the points, and a mark with its numbers at each."""
    known = [(i, point) for i, point in enumerate(points) if point.takes == point.takes]
    line = sorted((point.takes, point.success) for _, point in known)
    shapes: list[Element] = [Polyline([frame.at(*p) for p in line], color, 1.5, (4, 3) if hollow else None)]
    for i, point in known:
        tip = f"{what} {number(point.takes, 2)} takes: success {percent(point.success)}"
        data = datum(f"{path}/{i}/success", point.success)
        shapes.append(Mark(*frame.at(point.takes, point.success), 3.5, color, hollow=hollow, tip=tip, data=data))
    return shapes
