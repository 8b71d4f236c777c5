"""``besttake plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.options import Json, Worth, show


def plan(
    pass1: Annotated[
        float | None, typer.Option(metavar="RATE", help="Success rate of a single take, e.g. 0.64.")
    ] = None,
    pilot: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start from the results of this run instead.")
    ] = None,
    worth: Worth = 3.0,
    seeds: Annotated[int | None, typer.Option(help="Takes per start (default: the pilot's, else 3).")] = None,
    best_of: Annotated[
        int | None, typer.Option(help="Pick the best of this many takes (default: the pilot's, else 3 or all seeds).")
    ] = None,
    gain: Annotated[
        float | None, typer.Option(metavar="POINTS", help="Gain that you expect, in percentage points.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(metavar="TAKES", help="Takes you can afford; shows how small an effect they can show.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute how many starts and seeds a diagnosis needs, before running anything.

    Give either the success rate of a single take or a pilot run.

    Examples:
      besttake plan --pass1 0.64 --worth 3
      besttake plan --pilot runs/demo --budget 1500
    """
    from besttake.reporting.terminal import plans as sized
    from besttake.verbs.plan import plan as work_out

    plans = work_out(pass1=pass1, pilot=pilot, worth=worth, seeds=seeds, best_of=best_of, gain=gain, budget=budget)
    show(sized(plans), plans.to_json(), as_json)
