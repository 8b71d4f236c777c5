"""``python -m bench.campaign [STAGE ...]``: a bounded part; ``--full``: all tries, added up in docs/reliability.md.

``--full --minutes 10`` runs a piece, and the next one goes on from there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable

from bench.campaign import components, kills, libraries, mutations, parsers
from bench.campaign.run import Outcome, forget, keep, kept, run_stage, table
from bench.campaign.stage import STAGES, Stage

FILES = (kills, components, libraries, mutations, parsers)
"""Where stages are: importing a file registers its own."""


def main() -> int:
    asked = _asked()
    names = asked.stages or list(STAGES)
    end = time.monotonic() + 60 * (asked.minutes or (1e6 if asked.full else 8))
    if asked.afresh:
        forget(names)
    outcomes: list[Outcome] = []
    for position, name in enumerate(names):
        numbers = list(_numbers(STAGES[name], asked))
        if not numbers:
            continue
        now = time.monotonic()
        until = now + (end - now) / (len(names) - position)  # what a stage leaves over is the later ones'
        print(f"{name}: {len(numbers)} tries", file=sys.stderr, flush=True)
        outcomes.append(run_stage(STAGES[name], asked.seed, numbers, until))
        if asked.full and asked.only is None:
            keep(outcomes[-1])
    print(table(outcomes))
    broken = [line for one in outcomes for line in one.broken.values()]
    idle = "; no time for a try of " + ", ".join(one.name for one in outcomes if not one.tries)
    print("\n".join(["", *broken]) if broken else f"\nnothing broke{idle if idle[-1] != ' ' else ''}")
    return 1 if broken else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.campaign", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"which stages (default: all): {', '.join(STAGES)}")
    parser.add_argument(
        "--full", action="store_true", help="all tries that are still to be made; their outcome is kept"
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other tries (default 0)")
    parser.add_argument("--minutes", type=float, help="stop after about this long (default 8, none with --full)")
    parser.add_argument("--try", dest="only", type=int, metavar="N", help="only this try of each stage, to repeat it")
    parser.add_argument("--broken", action="store_true", help="with --full: make the tries again that were broken")
    parser.add_argument("--afresh", action="store_true", help="with --full: forget what was kept of these stages")
    asked = parser.parse_args()
    unknown = [name for name in asked.stages if name not in STAGES]
    if unknown:
        parser.error(f"there is no stage {unknown[0]}; there are {', '.join(STAGES)}")
    return asked


def _numbers(stage: Stage, asked: argparse.Namespace) -> Iterable[int]:
    """Which tries to make."""
    if asked.only is not None:
        return range(asked.only, asked.only + 1)
    if not asked.full:
        return range(stage.ci)
    pieces = [one for one in kept().values() if one.name == stage.name]
    own = next((one for one in pieces if one.seed == asked.seed), Outcome(stage.name, asked.seed))
    if asked.broken:
        return sorted(map(int, own.broken))
    left = stage.full * stage.each - sum(one.attacks for one in pieces)
    return range(own.tries, own.tries + max(0, -(-left // stage.each)))


if __name__ == "__main__":
    sys.exit(main())
