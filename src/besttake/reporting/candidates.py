"""Every start of a run as the report knows it: its takes by arm, which one was picked, and what became of it.

`choose` puts starts into the order in which films enter the page: per cell and in the order of the starts, so that
nothing is hand-picked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from besttake.arms import BASE
from besttake.core.select import pick
from besttake.core.stats import mean_interval, unit_scale
from besttake.result import Cell, Estimate
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import ScoreName, Scores

KINDS = {
    "rescued": "Rescued: a failure avoided",
    "missed": "Missed: the pick failed",
    "failed": "All takes failed",
    "succeeded": "All takes succeeded",
    "unscored": "Without a score",
    "broken": "No take was finished",
}
_POINTS = 16
"""Steps of a curve."""
_ROUNDS = ("rescued", "missed", "failed", "succeeded", "unscored", "rescued", "missed", "rescued", "missed")


@dataclass(frozen=True)
class Candidate:
    """A start that could be shown: its takes by arm, the plain policy's first; which of those was picked, and what
    became of it. ``place`` is that of its cell in ``result.cells``.
    """

    cell: Cell
    place: int
    arms: dict[str, tuple[Row, ...]]
    picked: int | None
    kind: str

    @property
    def key(self) -> TakeKey:
        """The name of one of its takes."""
        return next(rows[0].key for rows in self.arms.values() if rows)

    def pick_of(self, arm: str, scores: Scores | None) -> int | None:
        """The seed of the take of an arm that is picked."""
        if arm == BASE:
            return self.picked
        return picked_seed(self.arms[arm], scores, ScoreName(self.cell.scorer, self.cell.window))


def candidates(cells: Sequence[Cell], rows: Sequence[Row], scores: Scores | None) -> dict[int, list[Candidate]]:
    """Starts per cell (by its place in ``cells``), in canonical order."""
    cell_of = {(cell.policy, line.env, line.task): i for i, cell in enumerate(cells) for line in cell.tasks}
    starts: dict[tuple[str, str, str, int], dict[str, list[Row]]] = {}
    for row in rows:
        arms = starts.setdefault((row.key.policy, row.key.env, row.key.task, row.key.start), {BASE: []})
        arms.setdefault(row.key.arm, []).append(row)
    by_cell: dict[int, list[Candidate]] = {}
    for (policy, env, task, _), arms in starts.items():
        place = cell_of.get((policy, env, task))
        if place is not None:
            by_cell.setdefault(place, []).append(_judge(cells[place], place, arms, scores))
    return by_cell


def choose(by_cell: Mapping[int, Sequence[Candidate]]) -> Iterator[Candidate]:
    """Candidates in the order in which they should enter the page: round by round, every cell in each.

    After the telling ones come all others, in the order of the starts; those without a finished take never do.
    """
    queues = {(i, kind): [c for c in own if c.kind == kind] for i, own in by_cell.items() for kind in KINDS}
    for kind in _ROUNDS:
        for i in sorted(by_cell):
            if queues[i, kind]:
                yield queues[i, kind].pop(0)
    left = {id(candidate) for (_, kind), queue in queues.items() if kind != "broken" for candidate in queue}
    rest = [[candidate for candidate in by_cell[i] if id(candidate) in left] for i in sorted(by_cell)]
    for row in zip_longest(*rest):
        yield from (candidate for candidate in row if candidate is not None)


def picked_seed(rows: Sequence[Row], scores: Scores | None, name: ScoreName) -> int | None:
    """The seed of the take that a score picks; None where no take has one."""
    values = np.array([[score_of(scores, row.key, name) for row in rows]])
    if not np.isfinite(values).any():
        return None
    outcomes = np.array([[float(row.success) if row.success is not None else np.nan for row in rows]])
    return rows[int(pick(values, outcomes).index[0])].key.seed


def score_of(scores: Scores | None, key: TakeKey, name: ScoreName) -> float:
    """A take's score by one scorer on one window; NaN where it has none."""
    score = scores.get(key) if scores is not None else None
    return score.scores.get(name, math.nan) if score is not None else math.nan


def _judge(cell: Cell, place: int, arms: Mapping[str, Sequence[Row]], scores: Scores | None) -> Candidate:
    rows = arms[BASE]
    outcome = {row.key.seed: row.success for row in rows if row.success is not None}
    picked = picked_seed(rows, scores, ScoreName(cell.scorer, cell.window)) if rows else None
    if not outcome:
        kind = "broken"
    elif all(outcome.values()):
        kind = "succeeded"
    elif not any(outcome.values()):
        kind = "failed"
    elif picked is None:
        kind = "unscored"
    else:
        kind = "rescued" if outcome.get(picked) else "missed"
    return Candidate(cell, place, {arm: tuple(own) for arm, own in arms.items()}, picked, kind)


@dataclass(frozen=True)
class Curve:
    """How soon the takes of an arm succeed: which part had by some steps (``at``), each with its interval."""

    arm: str
    at: dict[int, Estimate]


def success_curves(starts: Iterable[Candidate]) -> list[Curve]:
    """How soon takes succeed, a curve per arm of the given starts; none where the step of some success is not known.

    A take that ends without success, at the last step or before it, is not censored: it can no longer succeed, so it
    stays among the takes that are counted, and the curve ends at pass@1. (To treat it as censored, as a Kaplan-Meier
    curve does, would give it the chances of the takes that went on, and promise more successes than there were.)
    """
    by_arm: dict[str, list[list[float]]] = {}
    last = 0
    for start in starts:
        for arm, rows in start.arms.items():
            done = [row for row in rows if row.success is not None]
            if any(row.success and row.success_step is None for row in done):
                return []
            if done:
                times = [float(row.success_step) if row.success_step is not None else np.inf for row in done]
                by_arm.setdefault(arm, []).append(times)
                last = max(last, *(row.steps for row in done))
    return [_curve(arm, times, last) for arm, times in by_arm.items()]


def policy_curves(cell: Cell, starts: Sequence[Candidate]) -> list[tuple[str, list[Curve]]]:
    """The curves of a policy under its name; of a run until decided those of each of its cells.

    Its cells stop at different times, and pass@1 of the policy leaves out what was made after the first of them did.
    """
    if cell.path is None:
        return [(cell.policy, success_curves(starts))]
    places = {start.place: f"{cell.policy}, {start.cell.group}" for start in starts}
    return [
        (name, success_curves(one for one in starts if one.place == place)) for place, name in sorted(places.items())
    ]


def _curve(arm: str, times: Sequence[Sequence[float]], last: int) -> Curve:
    """A start counts once, with the part of its takes that had succeeded: as pass@1 does."""

    def parts(step: int) -> list[float]:
        return [sum(time <= step for time in own) / len(own) for own in times]

    grid = sorted({round(step) for step in np.linspace(0, last, _POINTS + 1)})
    return Curve(arm, {step: mean_interval(parts(step), unit_scale()) for step in grid})
