"""The tables about how well verdicts hold: errors, what stays open, and takes to a decision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats as sps

from bench.zoo import decide
from bench.zoo.cells import Cell, cells
from bench.zoo.decide import PARTS, Count, Counts
from bench.zoo.tables import table, truth
from bench.zoo.takes import WORTH, Policy
from bench.zoo.until import run_until_decided
from besttake.files import short_hash

BUDGET = 1500
RUNS = 25
"""Simulated runs of each cell and kind."""
FIXED = (20, 60, 100)
ASKED = {
    "takes alone": ("reuse",),
    "takes and retrieval": ("reuse", "retrieve"),
    "all three": ("reuse", "retrieve", "combine"),
}


@dataclass(frozen=True)
class Simulated:
    """Verdicts of simulated runs, counted by kind of run; and, until decided, the mean takes of each cell."""

    counts: dict[str, Counts]
    takes: dict[str, list[float]]


def simulate(directory: Path, zoo: Sequence[Policy], config: str) -> Simulated:
    """`RUNS` runs of each cell and kind; those of a policy are kept in ``directory/simulated`` once they were made."""
    counts: dict[str, Counts] = {}
    takes: dict[str, list[float]] = {}
    for policy in zoo:
        populations = list(cells(policy, config))
        values = [q.values.tobytes() for cell in populations for q in cell.questions]
        kept = directory / "simulated" / f"{policy.name}-{RUNS}-{short_hash(*values)}.json"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(_simulated(populations)))
        made = json.loads(kept.read_text())
        for kind, rows in made["counts"].items():
            own = counts.setdefault(kind, {})
            for part, said, many, bad in rows:
                count = own.setdefault((part, said), Count())
                count.said, count.wrong = count.said + many, count.wrong + bad
        for kind, means in made["takes"].items():
            takes.setdefault(kind, []).extend(means)
    return Simulated(counts, takes)


def _simulated(populations: Sequence[Cell]) -> dict[str, Any]:
    counts = {f"{starts} starts": decide.fixed(populations, starts, RUNS) for starts in FIXED}
    takes = {}
    for name, asked in ASKED.items():
        kind = f"until decided: {name}"
        counts[kind], takes[kind] = until_decided(populations, RUNS, asked)
    rows = {kind: [[*key, c.said, c.wrong] for key, c in own.items()] for kind, own in counts.items()}
    return {"counts": rows, "takes": takes}


def until_decided(populations: Sequence[Cell], runs: int, asked: Sequence[str]) -> tuple[Counts, list[float]]:
    """Simulated runs until the parts ``asked`` are settled: answers counted, and the mean takes of each cell.

    Reuse alone is asked of base takes; everything else of base, cooled and retrieve.
    """
    counts: Counts = {}
    takes: list[float] = []
    for index, cell in enumerate(populations):
        rng, true, spent = np.random.default_rng(index), cell.truth, []
        arms = {"base": cell.arms["base"]} if tuple(asked) == ("reuse",) else cell.arms
        for _ in range(runs):
            order = rng.integers(cell.starts, size=BUDGET // 3).tolist()
            run = run_until_decided(arms, 3, worth=WORTH, budget=BUDGET, order=order, parts=asked)
            spent.append(run.takes)
            for part in asked:
                said = getattr(run.decided, part).answer
                settled = said in decide.OPEN or part not in run.unsettled
                decide.tally(counts, part, said if settled else "undecided", 1, true)
        takes.append(float(np.mean(spent)))
    return counts, takes


def errors(studies: Mapping[str, Counts]) -> str:
    """By part and answer: how often it was given, how often wrongly, and the upper end of a 95 % interval."""
    rows = []
    for part in PARTS:
        own = [{said: count for (p, said), count in counts.items() if p == part} for counts in studies.values()]
        kinds = sorted({said for counts in own for said in counts} - {*decide.OPEN, *decide.CLEAR})
        rows += [[part, kind, *(_share(counts.get(kind, Count())) for counts in own)] for kind in kinds]
        decided = [[counts[kind] for kind in kinds if kind in counts] for counts in own]
        rows.append([part, "**all decided**", *(_share(_sum(each)) for each in decided)])
        left = [_sum([counts[kind] for kind in decide.OPEN if kind in counts]).said for counts in own]
        rows.append([part, "open", *(_percent(n, n + _sum(each).said) for n, each in zip(left, decided, strict=True))])
        if part == "retrieve":
            acts = [counts.get("cool-or-retrieve", Count()) for counts in own]
            rows.append([part, "of these cool-or-retrieve", *(_share(count) for count in acts)])
        clear = [[counts.get(kind, Count()).said for kind in decide.CLEAR] for counts in own]
        cells = [f"{_percent(still, of)} of {of}" if of else "–" for still, of in clear]
        rows.append([part, "open where the truth is 2 points from a border", *cells])
    return table("6. Answers of simulated runs, and how many were wrong", ["part", "answer", *studies], rows)


def takes_needed(populations: Sequence[Cell], takes: Mapping[str, Sequence[float]]) -> str:
    """Takes to the end of a run, beside what an ideal test would need."""
    rows = [
        [
            name,
            f"{np.mean(means):.0f}",
            f"{np.median(means):.0f}",
            f"{np.percentile(means, 90):.0f}",
            "–",
        ]
        for name, means in takes.items()
    ]
    return table(
        f"7. Takes per cell, at most {BUDGET} (a fixed protocol of 500 starts x 3 seeds: 1500 per arm)",
        _HEADER,
        [*rows, *_ideal(populations)],
    )


def bound(populations: Sequence[Cell]) -> str:
    """The takes that no test can do without: one that knows every mean and variance (`decide.ideal_takes`)."""
    return table(f"Takes per cell of an ideal test, at most {BUDGET}", _HEADER, _ideal(populations))


_HEADER = ["", "mean", "median cell", "90 % of cells below", "cells that it cannot decide"]


def _ideal(populations: Sequence[Cell]) -> list[list[str]]:
    rows = []
    for part in ("reuse", "retrieve"):
        ideal = np.array([decide.ideal_takes(cell, part, truth(cell.truth)) for cell in populations])
        held = np.minimum(ideal, BUDGET)
        row = [
            f"an ideal test: {part}",
            f"{held.mean():.0f}",
            f"{np.median(held):.0f}",
            f"{np.percentile(held, 90):.0f}",
        ]
        rows.append([*row, f"{100 * np.mean(ideal > BUDGET):.0f} %"])
    return rows


def _sum(counts: Sequence[Count]) -> Count:
    return Count(sum(count.said for count in counts), sum(count.wrong for count in counts))


def _share(count: Count) -> str:
    if not count.said:
        return "–"
    whole = count.wrong == count.said
    upper = 1.0 if whole else float(sps.beta.ppf(0.975, count.wrong + 1, count.said - count.wrong))
    return f"{count.said}, wrong {count.wrong} ({100 * count.wrong / count.said:.1f} %, at most {100 * upper:.1f} %)"


def _percent(some: int, of: int) -> str:
    return f"{100 * some / of:.0f} %" if of else "–"
