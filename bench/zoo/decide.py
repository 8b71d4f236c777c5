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
retrieve   none          cooled - base or retrieve - base is at least worth
combine    yes           for no arm both its questions are above 0
combine    no            for some arm both its questions are at least worth
=========  ============  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.zoo.cells import Cell
from bench.zoo.takes import WORTH
from besttake.core.verdict import Decided, decide
from besttake.measure.questions import answer

PARTS = ("reuse", "retrieve", "combine")
PAIRS = (("combine", "retrieve_selection"), ("combine_cooled", "cooled_selection"))
MARGIN = 0.02


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
        ("retrieve", "none"): max(full, cooled) >= WORTH,
        ("combine", "yes"): all(min(pair) <= 0 for pair in pairs),
        ("combine", "no"): any(min(pair) >= WORTH for pair in pairs),
    }
    return claims[part, said]


def near_border(part: str, true: Mapping[str, float]) -> bool:
    """Whether a mean that the part reads lies within two points of a border, 0 or worth."""
    names = {
        "reuse": ("gain",),
        "retrieve": ("retrieve", "cooled", "content"),
        "combine": ("combine", "combine_cooled"),
    }
    return any(min(abs(true[n]), abs(true[n] - WORTH)) < MARGIN for n in names[part] if n in true)


@dataclass
class Count:
    """Answers of one kind: how many, how many of them wrong."""

    said: int = 0
    wrong: int = 0


def fixed(populations: Sequence[Cell], starts: int, runs: int, seed: int = 0) -> dict[tuple[str, str], Count]:
    """Verdicts of ``runs`` simulated fixed samples of each cell, counted by part and answer."""
    counts: dict[tuple[str, str], Count] = {}
    rng = np.random.default_rng(seed)
    for cell in populations:
        true = cell.truth
        for _ in range(runs):
            rows = rng.integers(cell.starts, size=starts)
            decided = decide(answer(cell.drawn(rows), WORTH, draws=1000), 3)
            tally(counts, decided, true)
    return counts


def tally(counts: dict[tuple[str, str], Count], decided: Decided, true: Mapping[str, float]) -> None:
    for part in PARTS:
        said = getattr(decided, part).answer
        count = counts.setdefault((part, said), Count())
        count.said += 1
        if "undecided" not in said and said != "cool-or-retrieve":
            count.wrong += wrong(part, said, true)
