from __future__ import annotations

import argparse
from pathlib import Path

import bench.zoo
from bench.zoo import tables, verdicts
from bench.zoo.cells import cells
from bench.zoo.checks import check_all, picks
from bench.zoo.forecasts import forecasts
from bench.zoo.foretell import foretell_all
from bench.zoo.roll import deficits, roll, train, uri_of
from bench.zoo.takes import load

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
    uris = {policy.name: uri_of(directory, policy.name) for policy in zoo}
    foretold, chosen = foretell_all(directory, uris), check_all(directory, uris)
    simulated = verdicts.simulate(directory, zoo, CONFIG)
    parts = [
        f"{len(zoo)} policies, {sum(a.size for p in zoo for a in p.outcomes.values())} takes.",
        tables.selection(zoo),
        tables.arms(zoo),
        tables.beyond_cooling(zoo),
        tables.best_options(zoo),
        tables.correlations(zoo, foretold),
        tables.answers(populations, CONFIG),
        verdicts.errors(simulated.counts),
        verdicts.takes_needed(populations, simulated.takes),
        tables.held_out(zoo, foretold),
        picks(zoo, chosen),
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
