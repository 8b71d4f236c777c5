"""How well the answers hold: starts are resampled from a policy's own, judged, and compared with all of them.

A cell is a policy on one task, or on all four. Its 75 (300) starts are the population; a simulated run draws starts
from them with replacement, so what is true of it is known. A yes is wrong where the mean is not above 0, a no where it
is at least worth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats as sps

from bench.zoo.cells import Cell, cells
from bench.zoo.tables import TRUTH, table
from bench.zoo.takes import WORTH, Policy
from besttake.files import short_hash
from besttake.measure.until import ROUND, CellTracks, first_arms
from besttake.measure.verdict import answer, answers_of

BUDGET, RUNS, MARGIN = 1500, 25, 0.02
"""Takes of a run until decided, simulated runs of each cell and kind, and how far a clear mean is from 0 and worth."""
FIXED = (20, 60, 100)
UNTIL = "until decided"


@dataclass
class Count:
    """Answers of one kind: how many, how many of them wrong."""

    said: int = 0
    wrong: int = 0


Counts = dict[tuple[str, str], Count]


@dataclass(frozen=True)
class Simulated:
    """Answers of simulated runs, counted by kind of run; and, until decided, the mean takes of each cell."""

    counts: dict[str, Counts]
    takes: list[float]


def wrong(said: str, mean: float) -> bool:
    """Whether an answer claims what is not so of the population."""
    return mean <= 0 if said == "yes" else said == "no" and mean >= WORTH


def clear(mean: float) -> bool:
    """Whether a mean lies at least two points from the borders, 0 and worth."""
    return min(abs(mean), abs(mean - WORTH)) >= MARGIN


def tally(counts: Counts, question: str, said: str, mean: float) -> None:
    """Count an answer, and whether it stayed open although the truth is clear."""
    kinds = [said, *(["clear", *(["open although clear"] if said == "open" else [])] if clear(mean) else [])]
    for kind in kinds:
        count = counts.setdefault((question, kind), Count())
        count.said, count.wrong = count.said + 1, count.wrong + (kind == said and wrong(said, mean))


def simulate(directory: Path, zoo: Sequence[Policy], config: str) -> Simulated:
    """`RUNS` runs of each cell and kind; those of a policy are kept in ``directory/simulated`` once they were made."""
    counts: dict[str, Counts] = {}
    takes: list[float] = []
    for policy in zoo:
        populations = list(cells(policy, config))
        values = [q.values.tobytes() for cell in populations for q in cell.questions]
        kept = directory / "simulated" / f"{policy.name}-answers-{RUNS}-{short_hash(*values)}.json"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(_simulated(populations)))
        made = json.loads(kept.read_text())
        for kind, rows in made["counts"].items():
            own = counts.setdefault(kind, {})
            for question, said, many, bad in rows:
                count = own.setdefault((question, said), Count())
                count.said, count.wrong = count.said + many, count.wrong + bad
        takes += made["takes"]
    return Simulated(counts, takes)


def _simulated(populations: Sequence[Cell]) -> dict[str, Any]:
    counts = {f"{starts} starts": fixed(populations, starts, RUNS) for starts in FIXED}
    counts[UNTIL], takes = until_decided(populations, RUNS)
    rows = {kind: [[*key, c.said, c.wrong] for key, c in own.items()] for kind, own in counts.items()}
    return {"counts": rows, "takes": takes}


def fixed(populations: Sequence[Cell], starts: int, runs: int) -> Counts:
    """Answers of ``runs`` simulated fixed samples of each cell."""
    counts: Counts = {}
    rng = np.random.default_rng(0)
    for cell in populations:
        for _ in range(runs):
            findings = answer(cell.drawn(rng.integers(cell.starts, size=starts)), WORTH, draws=1000)
            for name, one in answers_of(findings, 3, 3).items():
                tally(counts, name, one.answer, TRUTH[name](cell.truth))
    return counts


def until_decided(populations: Sequence[Cell], runs: int) -> tuple[Counts, list[float]]:
    """Answers of ``runs`` simulated runs until decided of each cell, and the mean takes of each cell."""
    counts: Counts = {}
    takes: list[float] = []
    for index, cell in enumerate(populations):
        rng, spent = np.random.default_rng(index), []
        for _ in range(runs):
            order = rng.integers(cell.starts, size=BUDGET // 3)
            watch, seen, cost = CellTracks.of(cell.arms, order, 3, WORTH), dict.fromkeys(cell.arms, 0), 0
            needed, position = first_arms(cell.arms), 0
            while needed and cost + 3 * ROUND * len(needed) <= BUDGET and position + ROUND <= len(order):
                position, cost = position + ROUND, cost + 3 * ROUND * len(needed)
                seen |= dict.fromkeys(needed, position)
                needed = frozenset[str]().union(*watch.open_parts(seen, cell.arms).values())
            spent.append(cost)
            for name, one in answers_of(watch.findings(seen), 3, 3).items():
                tally(counts, name, one.answer, TRUTH[name](cell.truth))
        takes.append(float(np.mean(spent)))
    return counts, takes


def errors(studies: Mapping[str, Counts]) -> str:
    """By question and answer: how often it was given, how often wrongly, and the upper end of a 95 % interval."""
    rows = []
    for question in TRUTH:
        for kind in ("yes", "no"):
            rows.append([question, kind, *(_share(own.get((question, kind), Count())) for own in studies.values())])
        for kind, of in (("open", ("yes", "no", "open")), ("open although clear", ("clear",))):
            parts = [
                (own.get((question, kind), Count()).said, sum(own.get((question, k), Count()).said for k in of))
                for own in studies.values()
            ]
            rows.append([question, kind, *(f"{100 * some / every:.0f} %" if every else "–" for some, every in parts)])
    return table("6. Answers of simulated runs, and how many were wrong", ["question", "answer", *studies], rows)


def takes_needed(takes: Sequence[float]) -> str:
    """Takes to the end of a run until decided."""
    row = [f"{np.mean(takes):.0f}", f"{np.median(takes):.0f}", f"{np.percentile(takes, 90):.0f}"]
    title = (
        f"7. Takes per cell of a run until decided, at most {BUDGET} (a fixed protocol of 500 starts x 3 seeds: 1500 \
per arm)"
    )
    return table(title, ["mean", "median cell", "90 % of cells below"], [row])


def _share(count: Count) -> str:
    if not count.said:
        return "–"
    whole = count.wrong == count.said
    upper = 1.0 if whole else float(sps.beta.ppf(0.975, count.wrong + 1, count.said - count.wrong))
    return f"{count.said}, wrong {count.wrong} ({100 * count.wrong / count.said:.1f} %, at most {100 * upper:.1f} %)"
