"""Every start of a run as the report knows it: its takes by arm, which one was picked, and what became of it.

`choose` puts starts into the order in which films enter the page: per cell and in the order of the starts, so that
nothing is hand-picked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from besttake.arms import BASE
from besttake.core.select import pick
from besttake.result import Cell
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
