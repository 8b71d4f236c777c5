"""The tables of docs/libero-object.md, in Markdown: ``python -m bench.libero_tables runs/libero-object``

Of a run that is not finished: the arms of those policies that have all their takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bench.testbed_tables import RATES, SHORTEST, Column, arm, auc, fit, gain, picked, plain, points
from besttake.core.stats import difference_scale, mean_interval
from besttake.reporting.words import needs_text
from besttake.result import Cell, Result
from besttake.takes.store import Store

TABLES: dict[str, list[Column]] = {
    "1. Selection: success in %, gain over pass@1 in points": [
        *RATES,
        ("headroom", lambda c: points(c.headroom.headroom)),  # type: ignore[union-attr]
        ("mixed starts", lambda c: f"{c.headroom.mixed} of {c.headroom.starts}"),  # type: ignore[union-attr]
        ("manifold, full", gain("manifold", "full")),
        ("manifold, common", gain("manifold", "common")),
        ("coverage, full", gain("coverage", "full")),
        SHORTEST,
        ("capture, coverage", lambda c: plain(c.selectors.scored["coverage"]["full"].capture)),  # type: ignore[union-attr]
        ("within-start AUC, coverage", auc("within", "coverage", "full")),
    ],
    "2. Arms: gain over base in points, paired by start": [
        *((name, arm(name)) for name in ("cooled", "retrieve")),
        ("content", lambda c: points(c.arms.content)),  # type: ignore[union-attr]
        ("retrieve + select - select", lambda c: points(c.arms.combine)),  # type: ignore[union-attr]
        ("cooled + select", picked("cooled")),
        ("retrieve + select", picked("retrieve")),
    ],
    "3. Demonstration fit, and the verdict at a worth of 3 points": [
        ("DFE", fit("dfe")),
        ("floor", fit("floor")),
        ("DFE/floor", fit("ratio")),
        ("recommended", needs_text),
        ("takes", lambda c: c.verdict.takes.answer),  # type: ignore[union-attr]
        ("demonstrations", lambda c: c.verdict.demonstrations.answer),  # type: ignore[union-attr]
        ("both", lambda c: c.verdict.both.answer),  # type: ignore[union-attr]
    ],
}


def name(cell: Cell) -> str:
    return Path(cell.policy).stem


def so_far(run: Path) -> None:
    """Success and gains of the policies whose starts all have the same takes in every arm."""
    with Store.inspect(run) as store:
        rows = [row for row in store.rows() if row.status == "done"]
    print(
        "| | pass@1, pass@3: base | cooled | retrieve | cooled - base | retrieve - base | content |\n|" + " --- |" * 7
    )
    for policy in dict.fromkeys(row.key.policy for row in rows):
        taken: dict[str, dict[tuple[str, int], list[float]]] = {}
        for row in sorted((row for row in rows if row.key.policy == policy), key=lambda row: row.key.seed):
            taken.setdefault(row.key.arm, {}).setdefault((row.key.task, row.key.start), []).append(bool(row.success))
        starts = sorted(taken["base"])
        if {len(own.get(start, ())) for own in taken.values() for start in starts} != {len(taken["base"][starts[0]])}:
            continue
        outcomes = {arm: np.array([own[start] for start in starts], float) for arm, own in taken.items()}
        rates = [f"{100 * y.mean():.1f}, {100 * y.any(axis=1).mean():.1f}" for y in outcomes.values()]
        means = {arm: y.mean(axis=1) for arm, y in outcomes.items()}
        pairs = ("cooled", "base"), ("retrieve", "base"), ("retrieve", "cooled")
        scale = difference_scale(outcomes["base"].shape[1])
        gains = [points(mean_interval(means[one] - means[other], scale)) for one, other in pairs]
        print(f"| {Path(policy).stem} | " + " | ".join([*rates, *gains]) + " |")


def main() -> None:
    if not (Path(sys.argv[1]) / "result.json").is_file():
        so_far(Path(sys.argv[1]))
        return
    result = Result.load(Path(sys.argv[1]) / "result.json")
    took = ", ".join(f"{stage} {seconds / 60:.1f}" for stage, seconds in result.cost.seconds.items())
    print(f"{result.cost.takes} takes, {result.policies[0].starts} starts per policy, digest `{result.digest[:12]}`;")
    print(f"minutes: {took}.")
    for title, columns in TABLES.items():
        print(f"\n**{title}**\n\n| | " + " | ".join(head for head, _ in columns) + " |")
        print("|" + " --- |" * (len(columns) + 1))
        for cell in result.policies:
            print(f"| {name(cell)} | " + " | ".join(of(cell) for _, of in columns) + " |")
    print("\n**4. Tasks: success of base in %, one take and the best of three**\n")
    tasks = [line.task for line in result.policies[0].tasks]
    print("| | " + " | ".join(task.removeprefix("pick_up_the_").partition("_and_")[0] for task in tasks) + " |")
    print("|" + " --- |" * (len(tasks) + 1))
    for cell in result.policies:
        rates = {line.task: (line.pass_1.value or 0, line.pass_n.value or 0) for line in cell.tasks}
        shown = [f"{100 * rates[task][0]:.0f}, {100 * rates[task][1]:.0f}" for task in tasks]
        print(f"| {name(cell)} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    main()
