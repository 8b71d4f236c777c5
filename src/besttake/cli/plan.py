"""``besttake plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.options import Json, Worth, show


def plan(
    pass1: Annotated[float | None, typer.Option(help="Success rate of a single take, e.g. 0.64.")] = None,
    pilot: Annotated[Path | None, typer.Option(help="Learn from this run instead.")] = None,
    worth: Worth = 3.0,
    seeds: Annotated[int | None, typer.Option(help="Takes per start (default: the pilot's, else 3).")] = None,
    best_of: Annotated[
        int | None, typer.Option(help="Keep the best of this many takes (default: the pilot's, else 3 or all seeds).")
    ] = None,
    gain: Annotated[float | None, typer.Option(help="The gain you hope for, in percentage points.")] = None,
    budget: Annotated[int | None, typer.Option(help="Takes you can afford: how small an effect can they show?")] = None,
    as_json: Json = False,
) -> None:
    """Work out how many starts and seeds will settle the question, before running anything.

    Examples:
      besttake plan --pass1 0.64 --worth 3
      besttake plan --pilot runs/demo --budget 1500
    """
    from besttake.reporting.terminal.plan import render
    from besttake.verbs.plan import plan as work_out

    plans = work_out(pass1=pass1, pilot=pilot, worth=worth, seeds=seeds, best_of=best_of, gain=gain, budget=budget)
    show(render(plans), plans.to_json(), as_json)
