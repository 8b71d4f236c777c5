"""Until decided, simulated: many runs of one cell at once, with arms dropped when what they are asked is settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.zoo.cells import Cell
from bench.zoo.takes import WORTH
from besttake.core.sequential import wealth
from besttake.measure.questions import Question

FIRST, BATCH, SEEDS, ALPHA = 30, 10, 3, 0.05
"""Starts before the first look, and from one look to the next."""

Codes = NDArray[np.int8]
NO, OPEN, YES = -1, 0, 1
PARTS = ("reuse", "retrieve", "combine")
UNSETTLED = ("undecided", "cool-or-retrieve")
"""Answers that a run goes on from: it never stops at a provisional one."""


@dataclass(frozen=True)
class Runs:
    """What R simulated runs of a cell said: by part its answer (R,) and the takes at which it fell (R,; 0 if never).

    ``takes`` (R,): how many were made in all.
    """

    answers: dict[str, NDArray[np.str_]]
    when: dict[str, NDArray[np.int64]]
    takes: NDArray[np.int64]


def simulate(cell: Cell, runs: int, budget: int, seed: int = 0, asked: Sequence[str] = PARTS) -> Runs:
    """Runs of ``cell`` with at most ``budget`` takes, its starts drawn with replacement.

    ``asked``: the parts of the verdict that have to be settled; reuse alone needs base takes only.
    """
    most = budget // SEEDS
    rows = np.random.default_rng(seed).integers(cell.starts, size=(most, runs))
    codes = {q.name: _codes(q, rows) for q in cell.questions}
    looks = [t for t in range(FIRST, most + 1) if (t - FIRST) % BATCH == 0]
    answers = {part: np.full(runs, "undecided", dtype="<U20") for part in asked}
    when = {part: np.zeros(runs, np.int64) for part in asked}
    takes, before, over = np.zeros(runs, np.int64), 0, np.zeros(runs, bool)
    for t in looks:
        unsettled = {part: np.isin(said, UNSETTLED) for part, said in answers.items()}
        others = np.any([left for part, left in unsettled.items() if part != "reuse"] or [np.zeros(runs, bool)], axis=0)
        cost = (t - before) * SEEDS * np.where(others, 3, 1)
        over |= ~np.any(list(unsettled.values()), axis=0) | (takes + cost > budget)
        if over.all():
            break
        takes += np.where(over, 0, cost)
        before = t
        said_now = parts({name: code[t - 1] for name, code in codes.items()})
        for part, left in unsettled.items():
            said, moves = said_now[part], left & ~over
            answers[part] = np.where(moves, said, answers[part])
            when[part] = np.where(moves & ~np.isin(said, UNSETTLED), takes, when[part])
    return Runs(answers, when, takes)


def parts(now: dict[str, Codes]) -> dict[str, NDArray[np.str_]]:
    """The three answers (R,) from the codes (R,) of the questions, by the tables of `besttake.core.verdict`."""
    h, g, full, cooled, content = (now[name] for name in ("headroom", "gain", "retrieve", "cooled", "content"))
    reuse = np.select(
        [h == NO, g == YES, (g == NO) & (h == YES), g == NO], ["none", "select", "unranked", "none"], "undecided"
    )
    retrieve = np.select(
        [
            (content == YES) & ((full == YES) | (cooled == YES)) & (full != NO),
            (full == YES) & (cooled == NO),
            (cooled == YES) & ((content == NO) | (full == NO)),
            (full == NO) & (cooled == NO),
            (full == YES) | (cooled == YES),
        ],
        ["retrieve", "retrieve", "cool", "none", "cool-or-retrieve"],
        "undecided",
    )
    pairs = [(now["combine"], now["retrieve_selection"]), (now["combine_cooled"], now["cooled_selection"])]
    both = [(a == YES) & (b == YES) for a, b in pairs]
    neither = [(a == NO) | (b == NO) for a, b in pairs]
    combine = np.select([both[0] | both[1], neither[0] & neither[1]], ["yes", "no"], "undecided")
    return {"reuse": reuse, "retrieve": retrieve, "combine": combine}


def _codes(question: Question, rows: NDArray[np.int64]) -> Codes:
    """The answer (T, R) to a question after each start: it stays once it was given at a look."""
    values = question.values[rows]
    most = len(rows)
    lo, hi, stake = question.scale.lo, question.scale.hi, question.stake
    above, below = (
        np.maximum.accumulate(wealth(values, null, sign, lo, hi, fixed=stake, horizon=most) >= 2 / ALPHA, axis=0)
        for null, sign in ((0.0, 1), (WORTH, -1))
    )
    mean = np.cumsum(values, axis=0) / np.arange(1, most + 1)[:, None]
    given = np.where(below, NO, np.where(above & (mean >= WORTH - 1e-12), YES, OPEN)).astype(np.int8)
    steps = np.arange(1, most + 1)
    looked = (steps >= FIRST) & ((steps - FIRST) % BATCH == 0)
    given[~looked] = OPEN
    kept = np.zeros(rows.shape[1], np.int8)
    for t in np.flatnonzero(looked):
        kept = np.where(kept == OPEN, given[t], kept)
        given[t] = kept
    return given
