"""How well the verdicts hold: starts are resampled from a policy's own, judged, and compared with all of them.

A cell is a policy on one task, or on all four. Its 75 (300) starts are the population; a simulated run draws starts
from them with replacement, so what is true of it is known. An answer is wrong when it claims what is not so:

=========  ============  ===========================================================================
part       answer        wrong where, in the population
=========  ============  ===========================================================================
reuse      select        the gain is not above 0
reuse      unranked      the gain is at least worth
reuse      none          the gain is at least worth
retrieve   retrieve      retrieve - base is not above 0, or neither is content nor cooling below worth
retrieve   cool          cooled - base is not above 0, or content and retrieve - base are at least worth
retrieve   cool-or-…     neither cooled - base nor retrieve - base is above 0
retrieve   none          cooled - base or retrieve - base is at least worth
combine    yes           for no arm both its questions are above 0
combine    no            for some arm both its questions are at least worth
=========  ============  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from bench.zoo.cells import Cell
from bench.zoo.takes import WORTH
from besttake.core.verdict import decide
from besttake.measure.questions import answer

PARTS = ("reuse", "retrieve", "combine")
PAIRS = (("combine", "retrieve_selection"), ("combine_cooled", "cooled_selection"))
MARGIN = 0.02
OPEN = ("undecided", "cool-or-retrieve", "not-measured")
CLEAR = ("open although clear", "clear")
"""Names under which runs of clear cells are counted: those that stay open, and all."""


def wrong(part: str, said: str, true: Mapping[str, float]) -> bool:
    """Whether an answer claims what is not so of the population."""
    gain, full, cooled, content = (true[name] for name in ("gain", "retrieve", "cooled", "content"))
    pairs = [[true[name] for name in pair if name in true] for pair in PAIRS if pair[0] in true]
    claims: dict[tuple[str, str], bool] = {
        ("reuse", "select"): gain <= 0,
        ("reuse", "unranked"): gain >= WORTH,
        ("reuse", "none"): gain >= WORTH,
        ("retrieve", "retrieve"): full <= 0 or (content <= 0 and cooled >= WORTH),
        ("retrieve", "cool"): cooled <= 0 or min(content, full) >= WORTH,
        ("retrieve", "cool-or-retrieve"): max(full, cooled) <= 0,
        ("retrieve", "none"): max(full, cooled) >= WORTH,
        ("combine", "yes"): all(min(pair) <= 0 for pair in pairs),
        ("combine", "no"): any(min(pair) >= WORTH for pair in pairs),
    }
    return claims[part, said]


def clear(part: str, true: Mapping[str, float]) -> bool:
    """Whether every mean that decides a part lies at least two points from the borders, 0 and worth."""
    names = {
        "reuse": ("gain",),
        "retrieve": ("retrieve", "cooled", "content"),
        "combine": ("combine", "combine_cooled"),
    }
    return all(min(abs(true[name]), abs(true[name] - WORTH)) >= MARGIN for name in names[part] if name in true)


@dataclass
class Count:
    """Answers of one kind: how many, how many of them wrong."""

    said: int = 0
    wrong: int = 0

    def add(self, many: int, is_wrong: bool) -> None:
        self.said += many
        self.wrong += many * is_wrong


Counts = dict[tuple[str, str], Count]


def fixed(populations: Sequence[Cell], starts: int, runs: int, seed: int = 0) -> Counts:
    """Verdicts of ``runs`` simulated fixed samples of each cell, counted by part and answer."""
    counts: Counts = {}
    rng = np.random.default_rng(seed)
    for cell in populations:
        true = cell.truth
        for _ in range(runs):
            rows = rng.integers(cell.starts, size=starts)
            decided = decide(answer(cell.drawn(rows), WORTH, draws=1000), 3)
            for part in PARTS:
                tally(counts, part, getattr(decided, part).answer, 1, true)
    return counts


def tally(counts: Counts, part: str, said: str, many: int, true: Mapping[str, float]) -> None:
    """Count ``many`` answers; one that says nothing is never wrong."""
    is_wrong = said not in ("undecided", "not-measured") and wrong(part, said, true)
    counts.setdefault((part, said), Count()).add(many, is_wrong)
    if clear(part, true):
        for kind, applies in zip(CLEAR, (said in OPEN, True), strict=True):
            counts.setdefault((part, kind), Count()).add(many * applies, False)


def ideal_takes(cell: Cell, part: str, answers: tuple[str, str, str]) -> float:
    """Takes that an ideal sequential test needs for the right answer: its starts are 2 sd^2 ln(1/.05) / distance^2.

    No test that errs in 5 % of runs does better on average, with the means and variances of the population known.
    """
    true, spread = cell.truth, {q.name: float(np.var(q.values)) for q in cell.questions}

    def yes(name: str) -> float:
        return 2 * spread[name] * log(20) / true[name] ** 2 if true[name] > 0 else inf

    def no(name: str) -> float:
        return 2 * spread[name] * log(20) / (WORTH - true[name]) ** 2 if true[name] < WORTH else inf

    if part == "reuse":
        starts = {"select": yes("gain"), "unranked": no("gain"), "none": min(no("gain"), no("headroom"))}[answers[0]]
        return 3 * starts
    acts = max(yes("content"), min(yes("retrieve"), yes("cooled")))
    together = max(yes("retrieve"), no("cooled"))
    starts = {
        "retrieve": min(acts, together),
        "cool": max(yes("cooled"), min(no("content"), no("retrieve"))),
        "none": max(no("retrieve"), no("cooled")),
    }[answers[1]]
    return 9 * starts
