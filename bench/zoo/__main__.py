from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import bench.zoo
from bench.zoo import tables, verdicts
from bench.zoo.cells import cells
from bench.zoo.checks import check_all, fit_all, picks
from bench.zoo.chosen import played
from bench.zoo.forecasts import forecasts
from bench.zoo.roll import PLAN, deficits, roll, train, uri_of
from bench.zoo.takes import Policy, load

CONFIG = "frame .2"
"""The retrieval that the verdicts of the study are about."""


def rolled(directory: Path) -> list[Policy]:
    """The policies whose takes are there."""
    return [
        load(directory, name, deficit)
        for name, deficit in deficits().items()
        if (directory / "runs" / name / "result.json").is_file()
    ]


def study(directory: Path) -> None:
    """Every table of docs/zoo.md, to ``DIRECTORY/tables.md``."""
    zoo = rolled(directory)
    populations = [cell for policy in zoo for cell in cells(policy, CONFIG)]
    uris = {policy.name: uri_of(directory, policy.name) for policy in zoo}
    chosen, fits = check_all(directory, uris), fit_all(directory, uris)
    zoo = [replace(policy, dfe_over_floor=fits[policy.name]) for policy in zoo]
    simulated = verdicts.simulate(directory, zoo, CONFIG)
    parts = [
        f"{len(zoo)} policies, {sum(a.size for p in zoo for a in p.outcomes.values())} takes.",
        tables.selection(zoo),
        tables.arms(zoo),
        tables.beyond_cooling(zoo),
        tables.best_options(zoo),
        tables.correlations(zoo),
        tables.answers(populations, CONFIG),
        verdicts.errors(simulated.counts),
        verdicts.takes_needed(simulated.takes),
        picks(zoo, chosen, lambda name, arm: played(directory, uris[name], PLAN, arm)),
        forecasts(directory, populations),
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
