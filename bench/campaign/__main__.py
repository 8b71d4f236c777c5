"""``python -m bench.campaign [STAGE ...]``: a bounded part; ``--full``: all tries, kept in docs/reliability.md."""

from __future__ import annotations

import argparse
import sys
import time

from bench.campaign import kills, libraries, mutations, parsers
from bench.campaign.run import Outcome, keep, run_stage, table
from bench.campaign.stage import STAGES

FILES = (kills, libraries, mutations, parsers)
"""Where stages are: importing a file registers its own."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.campaign", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"which stages (default: all): {', '.join(STAGES)}")
    parser.add_argument("--full", action="store_true", help="all tries; the outcome is kept in docs/reliability.md")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other tries (default 0)")
    parser.add_argument("--minutes", type=float, help="stop after about this long (default 8, none with --full)")
    parser.add_argument("--try", dest="only", type=int, metavar="N", help="only this try of each stage, to repeat it")
    asked = parser.parse_args()
    unknown = [name for name in asked.stages if name not in STAGES]
    if unknown:
        parser.error(f"there is no stage {unknown[0]}; there are {', '.join(STAGES)}")
    names = asked.stages or list(STAGES)
    end = time.monotonic() + 60 * (asked.minutes or (1e6 if asked.full else 8))
    outcomes: list[Outcome] = []
    for position, name in enumerate(names):
        stage, now = STAGES[name], time.monotonic()
        numbers = range(stage.full if asked.full else stage.ci)
        if asked.only is not None:
            numbers = range(asked.only, asked.only + 1)
        until = now + (end - now) / (len(names) - position)  # what a stage leaves over is the later ones'
        print(f"{name}: {len(numbers)} tries", file=sys.stderr, flush=True)
        outcomes.append(run_stage(stage, asked.seed, numbers, until))
        if asked.full and asked.only is None:
            keep(outcomes, list(STAGES))
    print(table(outcomes))
    broken = [line for one in outcomes for line in one.broken]
    print("\n".join(["", *broken]) if broken else "\nnothing broke")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
