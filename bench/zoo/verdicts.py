"""The tables about how well verdicts hold: errors, what stays open, and takes to a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats as sps

from bench.zoo import decide, until
from bench.zoo.cells import Cell
from bench.zoo.decide import PARTS, Count, Counts
from bench.zoo.tables import table, truth

BUDGET = 1500
Takes = dict[str, list[float]]


def until_decided(populations: Sequence[Cell], runs: int, asked: Sequence[str] = PARTS) -> tuple[Counts, Takes]:
    """Simulated runs until decided: answers counted, and for each cell the mean takes, in all and by part.

    A part that stays open counts with the budget.
    """
    counts: Counts = {}
    takes: Takes = {part: [] for part in ("all", *asked)}
    for index, cell in enumerate(populations):
        simulated, true = until.simulate(cell, runs, BUDGET, seed=index, asked=asked), cell.truth
        takes["all"].append(float(simulated.takes.mean()))
        for part in asked:
            when = simulated.when[part]
            takes[part].append(float(np.where(when > 0, when, BUDGET).mean()))
            for said, many in Counter(simulated.answers[part].tolist()).items():
                decide.tally(counts, part, said, many, true)
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
        clear = [[counts.get(kind, Count()).said for kind in decide.CLEAR] for counts in own]
        cells = [f"{_percent(still, of)} of {of}" if of else "–" for still, of in clear]
        rows.append([part, "open where the truth is 2 points from a border", *cells])
    return table("6. Answers of simulated runs, and how many were wrong", ["part", "answer", *studies], rows)


def takes_needed(populations: Sequence[Cell], takes: Takes) -> str:
    """Takes to a decision, beside what an ideal test would need."""
    rows = []
    ideal = {
        part: np.array([decide.ideal_takes(cell, part, truth(cell.truth)) for cell in populations])
        for part in ("reuse", "retrieve")
    }
    for part, means in takes.items():
        row = [part, f"{np.mean(means):.0f}", f"{np.median(means):.0f}", f"{np.percentile(means, 90):.0f}"]
        if part in ideal:
            row += [f"{np.minimum(ideal[part], BUDGET).mean():.0f}", f"{np.median(ideal[part]):.0f}"]
            row.append(f"{100 * np.mean(ideal[part] > BUDGET):.0f} %")
        else:
            row += ["–"] * 3
        rows.append(row)
    header = ["", "mean takes", "median cell", "90 % of cells", "ideal test, mean", "median cell"]
    return table(
        f"7. Takes until decided, at most {BUDGET} (the paper's protocol: 1500 per arm, 4500 for three)",
        [*header, "cells that it cannot decide within the budget"],
        rows,
    )


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
