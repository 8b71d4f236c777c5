from __future__ import annotations

import argparse
from pathlib import Path

import bench.zoo
from bench.zoo import decide, tables, verdicts
from bench.zoo.cells import cells
from bench.zoo.foretell import foretell_all
from bench.zoo.roll import deficits, roll, train, uri_of
from bench.zoo.takes import load

RUNS = 40
"""Simulated runs of each cell and kind."""
CONFIG = "frame .3"
"""The retrieval that the verdicts of the study are about."""


def study(directory: Path) -> None:
    """Every table of docs/zoo.md, to ``DIRECTORY/tables.md``."""
    zoo = [
        load(directory, name, deficit)
        for name, deficit in deficits().items()
        if (directory / "runs" / name / "result.json").is_file()
    ]
    populations = [cell for policy in zoo for cell in cells(policy, CONFIG)]
    foretold = foretell_all(directory, {policy.name: uri_of(directory, policy.name) for policy in zoo})
    asked = {
        "takes alone": ("reuse",),
        "takes and retrieval": ("reuse", "retrieve"),
        "all three": ("reuse", "retrieve", "combine"),
    }
    ran = {name: verdicts.until_decided(populations, RUNS, parts) for name, parts in asked.items()}
    studies = {f"{n} starts": decide.fixed(populations, n, RUNS) for n in (20, 60, 100)}
    studies |= {f"until decided: {name}": counts for name, (counts, _) in ran.items()}
    parts = [
        f"{len(zoo)} policies, {sum(a.size for p in zoo for a in p.outcomes.values())} takes.",
        tables.selection(zoo),
        tables.arms(zoo),
        tables.best_options(zoo),
        tables.correlations(zoo, foretold),
        tables.answers(populations, CONFIG),
        verdicts.errors(studies),
        verdicts.takes_needed(populations, {name: takes for name, (_, takes) in ran.items()}),
        tables.held_out(zoo, foretold),
    ]
    text = "\n\n".join(parts)
    (directory / "tables.md").write_text(text + "\n")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.zoo", description=bench.zoo.__doc__)
    stages = {"train": train, "roll": roll, "study": study}
    parser.add_argument("stages", nargs="+", choices=stages, help="what to do, in this order")
    parser.add_argument("--dir", type=Path, default=Path("zoo"), help="where policies, runs and tables are kept")
    asked = parser.parse_args()
    for stage in asked.stages:
        stages[stage](asked.dir)


if __name__ == "__main__":
    main()
