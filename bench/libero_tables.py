"""The tables of docs/libero-object.md, in Markdown: ``python -m bench.libero_tables runs/libero-object``"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from bench.zoo.tables import plain, points
from besttake.reporting.words import needs_text
from besttake.result import Cell, Result

Column = tuple[str, Callable[[Cell], str]]


def gain(scorer: str, window: str) -> Callable[[Cell], str]:
    return lambda c: points(c.selectors.scored[scorer][window].gain)  # type: ignore[union-attr]


def arm(name: str) -> Callable[[Cell], str]:
    return lambda c: points(c.arms.arms[name].gain)  # type: ignore[union-attr]


def picked(name: str) -> Callable[[Cell], str]:
    return lambda c: points(c.arms.arms[name].selected_gain)  # type: ignore[union-attr]


def fit(name: str) -> Callable[[Cell], str]:
    return lambda c: plain(getattr(c.dfe, name))


TABLES: dict[str, list[Column]] = {
    "1. Selection: success in %, gain over pass@1 in points": [
        ("pass@1", lambda c: f"{100 * (c.headroom.pass_1.value or 0):.1f}"),  # type: ignore[union-attr]
        ("pass@3", lambda c: f"{100 * (c.headroom.pass_n.value or 0):.1f}"),  # type: ignore[union-attr]
        ("headroom", lambda c: points(c.headroom.headroom)),  # type: ignore[union-attr]
        ("mixed starts", lambda c: f"{c.headroom.mixed} of {c.headroom.starts}"),  # type: ignore[union-attr]
        ("manifold, full", gain("manifold", "full")),
        ("manifold, common", gain("manifold", "common")),
        ("coverage, full", gain("coverage", "full")),
        ("shortest", lambda c: points(c.selectors.shortest.gain)),  # type: ignore[union-attr]
        ("capture, coverage", lambda c: plain(c.selectors.scored["coverage"]["full"].capture)),  # type: ignore[union-attr]
        ("within-start AUC, coverage", lambda c: plain(c.ranking.within["coverage"]["full"])),
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


def main() -> None:
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
