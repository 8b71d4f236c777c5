"""What changed from one run to the next, as the page of `besttake compare A B` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from besttake.reporting.axes import spread
from besttake.reporting.dots import DotRow, Style, dots
from besttake.reporting.drawing import Figure
from besttake.reporting.numbers import estimate_percent, estimate_points, points
from besttake.result import Estimate

if TYPE_CHECKING:
    from besttake.verbs.compare import Change

_COLORS = {"better": "accent", "worse": "warn"}


def figure(changes: Sequence[Change]) -> Figure | None:
    """A forest of all changes: blue where the second run is better, orange where it is worse, hollow where neither."""
    rows: list[DotRow] = []
    tips: dict[str, Change] = {}
    before = None
    for i, one in enumerate(changes):
        if one.change.value is None:
            continue
        heading = f"{names(one)}, {one.group}"
        if heading != before:
            rows.append(DotRow(heading, Estimate(), "", heading=True, gap=bool(rows)))
            before = heading
        path = f"/changes/{i}/change"
        tips[path] = one
        color = _COLORS.get(one.shown, "ink")
        label = f"{one.arm} {one.number}"
        rows.append(DotRow(label, one.change, path, color, strong=bool(one.shown), hollow=not one.shown))
    if not rows:
        return None
    ends = [end for row in rows for end in (row.estimate.low, row.estimate.high, row.estimate.value)]
    style = Style(points, lambda row: _tip(tips[row.path]), row=20, width=560, left=200)
    return dots(rows, "Change from the first run to the second", spread(ends, low=-0.1, high=0.1), style, zero=True)


def names(change: Change) -> str:
    """The policy, or both of them where they differ."""
    return " → ".join(dict.fromkeys(change.policies))


def starts(change: Change) -> str:
    """``40 shared``: over which starts a change is."""
    return f"{change.starts} shared" if change.paired else f"{change.starts}, not shared"


def _tip(change: Change) -> str:
    rates = f"{estimate_percent(change.before)} → {estimate_percent(change.after)}"
    what = f"{names(change)}, {change.group}, {change.arm} {change.number}"
    return f"{what}\n{rates}\n{estimate_points(change.change)}, {starts(change)} starts"
