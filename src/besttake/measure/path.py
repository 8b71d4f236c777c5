"""How a run until decided went: the estimate and bounds of each question against takes, and why it stopped."""

from __future__ import annotations

import numpy as np

from besttake import result as r
from besttake.core.sequential import bounds_along, tracks
from besttake.measure.cells import CellData, Settings, Stop
from besttake.measure.looks import looks_until
from besttake.measure.questions import questions_of

SHOWN = ("headroom", "gain", "retrieve", "cooled", "content")
"""The questions whose path is kept: those that the first two answers rest on."""
PAPER_STARTS = 500
"""Starts of a cell in the paper's protocol: 50 of each of 10 tasks."""
_STEP = 10


def path_of(data: CellData, settings: Settings, stop: Stop) -> r.CellPath:
    """The path of a cell along its starts, a point every `_STEP` of them and at the end."""
    assert settings.places is not None
    order = looks_until(data.units, settings.places).order
    made = np.stack([np.isfinite(arm.outcomes).sum(axis=1) for arm in data.arms.values()])
    spent = np.cumsum(made.sum(axis=0)[order])
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
    points, settled = {}, {}
    for question in questions_of(arms, settings.n):
        if question.name not in SHOWN or question.reason:
            continue
        values = question.values[order]
        valid = np.flatnonzero(np.isfinite(values))
        if not valid.size:
            continue
        ruling = question.ruling[order][:, None]
        (track,) = tracks(values[:, None], [question.widest], [question.stake], settings.worth, ruling=ruling)
        first = min(track.yes, track.no)
        if first <= len(values):
            settled[question.name] = int(spent[max(0, first - 1)])
        counts = sorted({*range(_STEP, valid.size + 1, _STEP), valid.size})
        ends = bounds_along(values[valid], question.widest, question.stake, counts)
        points[question.name] = [
            r.PathPoint(
                starts=count, takes=int(spent[valid[count - 1]]), value=float(values[valid[:count]].mean()),
                low=float(low), high=float(high),
            )
            for count, (low, high) in zip(counts, ends, strict=True)
        ]  # fmt: skip
    # A policy's takes are those that its cells ran alike, which no protocol compares with.
    run = [name for name, arm in data.arms.items() if arm.takes]
    paper = 0 if data.group == "*" else PAPER_STARTS * settings.seeds * len(run)
    return r.CellPath(
        stopped=stop.reason, unsettled=list(stop.unsettled), takes=int(spent[-1]) if len(spent) else 0,
        paper_takes=paper, settled=settled, points=points,
    )  # fmt: skip
