"""``ingest``, ``rank``, ``plan``, ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.options import Json, command, show


def ingest(
    results: Annotated[list[Path], typer.Argument(help="Result files, or directories of them.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write result.json and a report here.")] = None,
    policy: Annotated[str, typer.Option(help="Name of the policy where the files do not say.")] = "",
    column: Annotated[
        list[str] | None, typer.Option(help="Of a table: success=done, start=episode, …; repeatable.")
    ] = None,
    worth: Annotated[float, typer.Option(help="Smallest effect worth acting on, in points.")] = 3.0,
    as_json: Json = False,
) -> None:
    """Headroom without rollouts: outcomes that vla-eval, lerobot-eval or a table (CSV, Parquet) already have.

    Several files of the same starts are repeated seeds.

    Examples:
      besttake ingest results/ -o runs/ingested
      besttake ingest seed1.csv seed2.csv seed3.csv --column success=done --column start=episode
    """
    from besttake.errors import PlanError
    from besttake.reporting.html import make_html
    from besttake.reporting.terminal.ingest import render
    from besttake.verbs.ingest import ingest as read

    named = dict(pair.split("=", 1) for pair in column or () if "=" in pair)
    if len(named) != len(column or ()):
        raise PlanError("--column takes NAME=COLUMN, e.g. --column success=done")
    ingested = read(list(results), out, policy=policy, columns=named or None, worth=worth, command=command())
    show(render(ingested), ingested.result.model_dump_json(indent=1), as_json)
    if out is not None:
        page = make_html(out)
        if not as_json:
            show(f"Report: {page}", "", False)


def rank(
    takes: Annotated[list[str], typer.Argument(help="Videos, folders of pictures, or LeRobot episodes (DATASET#3).")],
    demos: Annotated[str, typer.Option(help="Library directory, demonstrations (URI), or a folder of videos.")],
    task: Annotated[str, typer.Option(help="Compare with the demonstrations of this task only.")] = "",
    window: Annotated[
        str, typer.Option(help="common (default): up to the shortest take's end; or episode.")
    ] = "common",
    scorer: Annotated[str, typer.Option(help="manifold (default) or coverage.")] = "manifold",
    encoder: Annotated[str | None, typer.Option(help="Encoder (default: the library's, else pixels).")] = None,
    stride: Annotated[int, typer.Option(min=1, help="Score every so many frames.")] = 1,
    html: Annotated[Path | None, typer.Option(help="Also write a page with the score traces.")] = None,
    as_json: Json = False,
) -> None:
    """Rank takes you already recorded by how close they stay to demonstrations.

    Examples:
      besttake rank take1.mp4 take2.mp4 --demos libraries/mine --html ranking.html
      besttake rank my_dataset#0 my_dataset#1 --demos lerobot:org/demos --encoder dinov2+siglip
    """
    from besttake.reporting.ranking import make_html
    from besttake.reporting.terminal.rank import render
    from besttake.verbs.rank import rank as order

    result = order(
        takes, demos, task=task, window=window, scorer=scorer, encoder=encoder, stride=stride
    )  # fmt: skip
    if html is not None:
        make_html(result, html)
    show(render(result), result.to_json(), as_json)


def plan(
    pass1: Annotated[float | None, typer.Option(help="Success of a single take, e.g. 0.64.")] = None,
    pilot: Annotated[Path | None, typer.Option(help="A run to learn from instead.")] = None,
    worth: Annotated[float, typer.Option(help="Smallest effect worth acting on, in points.")] = 3.0,
    seeds: Annotated[int | None, typer.Option(help="Takes per start (the pilot's, else 3).")] = None,
    best_of: Annotated[int | None, typer.Option(help="Takes that one is kept of (3, or all of fewer seeds).")] = None,
    gain: Annotated[float | None, typer.Option(help="The gain you hope for, in points.")] = None,
    budget: Annotated[
        int | None, typer.Option(help="Takes you can afford: what is the smallest effect they show?")
    ] = None,
    as_json: Json = False,
) -> None:
    """How many starts and seeds will settle the question, before running anything.

    Examples:
      besttake plan --pass1 0.64 --worth 3
      besttake plan --pilot runs/demo --budget 1500
    """
    from besttake.reporting.terminal.plan import render
    from besttake.verbs.plan import plan as work_out

    plans = work_out(pass1=pass1, pilot=pilot, worth=worth, seeds=seeds, best_of=best_of, gain=gain, budget=budget)
    show(render(plans), f"[{', '.join(one.to_json() for one in plans)}]", as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also write a report (HTML) here.")] = None,
    as_json: Json = False,
) -> None:
    """Many runs: does headroom predict the gain over all their cells?

    Example:
      besttake compare runs/* -o comparison.html
    """
    from besttake.reporting.comparison import make_html
    from besttake.reporting.terminal.compare import render
    from besttake.verbs.compare import compare as relate

    result = relate(runs, command())
    if out is not None:
        make_html(result, out)
    show(render(result), result.to_json(), as_json)
