"""Commands for what was recorded elsewhere: ``rank`` takes, ``ingest`` outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.flags import option
from besttake.cli.options import Json, Worth, command, pairs, show
from besttake.config import SCORER


def rank(
    takes: Annotated[list[str], typer.Argument(help="Videos, folders of pictures, or LeRobot episodes (DATASET#3).")],
    demos: Annotated[str, typer.Option(help="Library directory, demonstrations (URI), or a folder of videos.")],
    task: Annotated[str, typer.Option(help="Compare with the demonstrations of this task only.")] = "",
    window: Annotated[
        str, typer.Option(help="What to score: common (the time that all takes have) or episode (all of each).")
    ] = "common",
    scorer: Annotated[
        str, typer.Option(help=f"The scorer that orders takes: coverage, manifold, or a URI (default {SCORER}).")
    ] = SCORER,
    encoder: Annotated[str | None, option("encoder")] = None,
    stride: Annotated[int, typer.Option(min=1, help="Score every n-th frame.")] = 1,
    fps: Annotated[float, typer.Option(help="Frames a second of takes that are folders of pictures.")] = 10.0,
    html: Annotated[Path | None, typer.Option(help="Also write a page with pictures and the score traces.")] = None,
    as_json: Json = False,
) -> None:
    """Rank takes you already recorded by how close they stay to demonstrations.

    Takes are compared by time, whatever their frame rates. Takes within each other's error share a place; a take that
    scores below every demonstration held out, or no better than shuffled pixels, is marked. Exits with 2 when no take
    could be ranked.

    Examples:
      besttake rank take1.mp4 take2.mp4 --demos libraries/mine --html ranking.html
      besttake rank my_dataset#0 my_dataset#1 --demos lerobot:org/demos --encoder dinov2+siglip
    """
    from besttake.reporting.ranking import make_html
    from besttake.reporting.terminal.rank import render
    from besttake.verbs.rank import rank as order

    result = order(takes, demos, task=task, window=window, scorer=scorer, encoder=encoder, stride=stride, fps=fps)
    if html is not None:
        make_html(result, html)
    show(render(result), result.to_json(), as_json)
    if all(take.place is None for take in result.takes):
        raise typer.Exit(2)


def ingest(
    results: Annotated[list[Path], typer.Argument(help="Result files, or directories of them.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write result.json and a report here.")] = None,
    policy_name: Annotated[
        list[str] | None,
        typer.Option(
            "--policy-name",
            help="Policy, where files do not say: NAME of all, or PATH=NAME of a file or folder. Repeatable.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", help="How a table names a column, e.g. success=done. Repeatable.")
    ] = None,
    worth: Worth = 3.0,
    as_json: Json = False,
) -> None:
    """Headroom without rollouts: outcomes that other harnesses recorded.

    Reads vla-eval, lerobot-eval, the logs and videos of OpenVLA, openpi and SimplerEnv, ManiSkill's trajectory JSON,
    and tables (CSV, Parquet, JSON lines). Several recordings of one policy from the same starts are repeated seeds.

    Examples:
      besttake ingest results/ -o runs/ingested
      besttake ingest seed1.csv seed2.csv seed3.csv --policy-name pi0 --column success=done
      besttake ingest evals/ --policy-name evals/a=pi0 --policy-name evals/b=smolvla
    """
    from besttake.reporting.terminal.ingest import render
    from besttake.verbs.ingest import ingest as read
    from besttake.verbs.report import report

    named = pairs("columns", columns or [], "NAME=COLUMN", "success=done")
    result = read(
        list(results), out, policy_name=_policy_names(policy_name or []), columns=named or None, worth=worth,
        command=command(),
    )  # fmt: skip
    show(render(result), result.to_json(), as_json)
    if out is not None:
        page = report(out)
        if not as_json:
            show(f"Report: {page}")


def _policy_names(given: list[str]) -> str | dict[str, str]:
    """One name, or names of files and folders."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs("policy_name", given, "NAME once, or PATH=NAME", "evals/a=pi0")
