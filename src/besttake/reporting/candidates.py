"""Classify the starts of a run by their outcomes, and order them for the films of the report.

`film_order` takes starts from each cell in turn, in the order of the run, so that no start is picked by hand.
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
    """A start whose films could be shown: its takes by arm (base first), the seed of the ``picked`` base take, and its
    ``kind``, a key of `KINDS`. ``cell_index`` is the place of its cell in ``result.cells``.
    """

    cell: Cell
    cell_index: int
    arms: dict[str, tuple[Row, ...]]
    picked: int | None
    kind: str

    @property
    def key(self) -> TakeKey:
        """The key of one of its takes."""
        return next(rows[0].key for rows in self.arms.values() if rows)

    def pick_of(self, arm: str, scores: Scores | None) -> int | None:
        """Return the seed of the picked take of an arm."""
        if arm == BASE:
            return self.picked
        return picked_seed(self.arms[arm], scores, ScoreName(self.cell.scorer, self.cell.window))


def candidates(cells: Sequence[Cell], rows: Sequence[Row], scores: Scores | None) -> dict[int, list[Candidate]]:
    """Return the starts of each cell (by its place in ``cells``), in canonical order."""
    index_of = {(cell.policy, line.env, line.task): i for i, cell in enumerate(cells) for line in cell.tasks}
    starts: dict[tuple[str, str, str, int], dict[str, list[Row]]] = {}
    for row in rows:
        arms = starts.setdefault((row.key.policy, row.key.env, row.key.task, row.key.start), {BASE: []})
        arms.setdefault(row.key.arm, []).append(row)
    by_cell: dict[int, list[Candidate]] = {}
    for (policy, env, task, _), arms in starts.items():
        i = index_of.get((policy, env, task))
        if i is not None:
            by_cell.setdefault(i, []).append(_judge(cells[i], i, arms, scores))
    return by_cell


def film_order(by_cell: Mapping[int, Sequence[Candidate]]) -> Iterator[Candidate]:
    """Yield starts in the order in which their films should enter the page.

    First come the most informative ones (`_ROUNDS`), one per cell and round, then all others in the order of the run.
    Starts without a finished take are left out.
    """
    queues = {(i, kind): [c for c in starts if c.kind == kind] for i, starts in by_cell.items() for kind in KINDS}
    for kind in _ROUNDS:
        for i in sorted(by_cell):
            if queues[i, kind]:
                yield queues[i, kind].pop(0)
    left = {id(candidate) for (_, kind), queue in queues.items() if kind != "broken" for candidate in queue}
    rest = [[candidate for candidate in by_cell[i] if id(candidate) in left] for i in sorted(by_cell)]
    for row in zip_longest(*rest):
        yield from (candidate for candidate in row if candidate is not None)


def picked_seed(rows: Sequence[Row], scores: Scores | None, name: ScoreName) -> int | None:
    """Return the seed of the take that a score picks; None if no take has a score."""
    values = np.array([[score_of(scores, row.key, name) for row in rows]])
    if not np.isfinite(values).any():
        return None
    outcomes = np.array([[float(row.success) if row.success is not None else np.nan for row in rows]])
    return rows[int(pick(values, outcomes).index[0])].key.seed


def score_of(scores: Scores | None, key: TakeKey, name: ScoreName) -> float:
    """Return a take's score by one scorer on one window; NaN if it has none."""
    score = scores.get(key) if scores is not None else None
    return score.scores.get(name, math.nan) if score is not None else math.nan


def _judge(cell: Cell, cell_index: int, arms: Mapping[str, Sequence[Row]], scores: Scores | None) -> Candidate:
    rows = arms[BASE]
    outcomes = {row.key.seed: row.success for row in rows if row.success is not None}
    picked = picked_seed(rows, scores, ScoreName(cell.scorer, cell.window)) if rows else None
    if not outcomes:
        kind = "broken"
    elif all(outcomes.values()):
        kind = "succeeded"
    elif not any(outcomes.values()):
        kind = "failed"
    elif picked is None:
        kind = "unscored"
    else:
        kind = "rescued" if outcomes.get(picked) else "missed"
    return Candidate(cell, cell_index, {arm: tuple(takes) for arm, takes in arms.items()}, picked, kind)
