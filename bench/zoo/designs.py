"""A run as small as the demo's: does until decided settle as much as a fixed sample with the same takes?

Starts are drawn again from those of policies that the demo does not show, so that nothing is tuned on what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.zoo.cells import Cell, cells
from bench.zoo.tables import table
from bench.zoo.takes import WORTH, Policy
from bench.zoo.until import fixed_sample
from besttake.core.sequential import HORIZON
from besttake.core.until import tracks
from besttake.core.verdict import Decided
from besttake.measure.questions import ScoredTakes, questions_of
from besttake.measure.until import ROUND, Watch, needs_of

DEMO = ("half", "alt", "strong")
TAKES, SEEDS = 800, 3
"""Takes of a policy in the demo, 200 for each of its four cells."""
SEED, STARTS = 11, 280
_BASE_PART = 0.6
"""What base alone may spend of a cell's takes before the other arms begin."""

Arms = Mapping[str, ScoredTakes]


@dataclass(frozen=True)
class Design:
    """Until decided: with base alone at first or not, and bets laid out for so many starts."""

    base_first: bool = False
    horizon: int = HORIZON


DESIGNS = {
    "fixed sample": None,
    "until decided": Design(),
    "until decided, base first": Design(base_first=True),
    "until decided, bets laid out for 33 starts": Design(horizon=33),
    "until decided, base first, bets laid out for 66 starts": Design(base_first=True, horizon=66),
}


def designs(zoo: Sequence[Policy], config: str, runs: int = 2) -> str:
    """Which part of the cells each design decides, from ``runs`` runs of each policy."""
    counts = {name: np.zeros(3, dtype=int) for name in DESIGNS}
    for policy in (policy for policy in zoo if policy.name not in DEMO):
        own = [cell for cell in cells(policy, config) if cell.task != "all"]
        for run in range(runs):
            rng = np.random.default_rng([run, SEED, *policy.name.encode()])
            drawn = [_drawn(cell, rng) for cell in own]
            for name, design in DESIGNS.items():
                found = _fixed(drawn) if design is None else _until(drawn, design)
                for decided in found:
                    open_parts = [getattr(decided, part).answer == "undecided" for part in ("reuse", "retrieve")]
                    counts[name] += [1, not open_parts[0], not open_parts[1]]
    rows = [[name, f"{said / all_:.0%}", f"{tried / all_:.0%}"] for name, (all_, said, tried) in counts.items()]
    many = next(iter(counts.values()))[0]
    return table(
        f"Cells decided with {TAKES // 4} takes each, of {many} runs of a cell",
        ["", "about more takes", "about retrieval (`cool-or-retrieve` included)"],
        rows,
    )


def _drawn(cell: Cell, rng: np.random.Generator) -> dict[str, ScoredTakes]:
    rows = rng.integers(cell.starts, size=STARTS)
    return {
        name: ScoredTakes(np.asarray(arm.outcomes)[rows], np.asarray(arm.scores)[rows])
        for name, arm in cell.arms.items()
    }


def _fixed(drawn: Sequence[Arms]) -> list[Decided]:
    kept = TAKES // len(drawn) // (SEEDS * len(drawn[0]))
    return [
        fixed_sample(
            {name: ScoredTakes(np.asarray(a.outcomes)[:kept], np.asarray(a.scores)[:kept]) for name, a in arms.items()},
            SEEDS, worth=WORTH, draws=1000,
        )
        for arms in drawn
    ]  # fmt: skip


def _until(drawn: Sequence[Arms], design: Design) -> list[Decided]:
    """All cells of a policy in turn, a round at a time, until they are settled or the takes are spent."""
    watches = [_watch(arms, design.horizon) for arms in drawn]
    seen, left = [dict.fromkeys(arms, 0) for arms in drawn], TAKES
    while True:
        spent_before = left
        for watch, own in zip(watches, seen, strict=True):
            needed = _needed(watch, own, design, len(drawn))
            at = min((own[arm] for arm in needed), default=STARTS)
            missing = sum(max(0, at + ROUND - own[arm]) for arm in needed)
            if not needed or at + ROUND > STARTS or missing * SEEDS > left:
                continue
            left -= missing * SEEDS
            own |= {arm: max(own[arm], at + ROUND) for arm in needed}
        if left == spent_before:
            return [watch.verdict(own) for watch, own in zip(watches, seen, strict=True)]


def _watch(arms: Arms, horizon: int) -> Watch:
    asked = [question for question in questions_of(arms, SEEDS) if not question.reason]
    values = np.stack([question.values for question in asked], axis=1)
    made = tracks(values, [q.widest for q in asked], [q.stake for q in asked], WORTH, horizon=horizon)
    return Watch(dict(zip((q.name for q in asked), made, strict=True)), SEEDS, SEEDS)


def _needed(watch: Watch, seen: Mapping[str, int], design: Design, cell_count: int) -> frozenset[str]:
    parts = needs_of(watch.verdict(seen), seen) if seen["base"] else {"reuse": frozenset(seen)}
    alone = design.base_first and not seen["cooled"]
    if alone and "reuse" in parts and SEEDS * seen["base"] < _BASE_PART * TAKES / cell_count:
        return frozenset({"base"})
    if alone:
        return frozenset(seen)
    return frozenset[str]().union(*(arms for part, arms in parts.items() if part in ("reuse", "retrieve")))
