"""Commands for recordings: ``rank`` takes, ``ingest`` outcomes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.console import command_line, show
from besttake.cli.flags import Json, Worth, pairs, plan_option
from besttake.config import SCORER
from besttake.errors import PlanError


def rank(
    takes: Annotated[
        list[str],
        typer.Argument(metavar="TAKE", help="Videos, folders of pictures, or LeRobot episodes (DATASET#3)."),
    ],
    demos: Annotated[
        str | None, typer.Option(metavar="PATH|URI", help="Library, data set or folder of videos to compare with.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Judge the last take by the score and threshold of this run.")
    ] = None,
    policy: Annotated[str, typer.Option(metavar="NAME", help="Policy of the run, where it has several.")] = "",
    task: Annotated[str, typer.Option(metavar="TASK", help="Compare only with demonstrations of this task.")] = "",
    window: Annotated[
        str, typer.Option(metavar="common|episode", help="Time to score: common to all takes, or each whole episode.")
    ] = "common",
    scorer: Annotated[
        str,
        typer.Option(metavar="URI", help=f"Scorer that orders the takes (default {SCORER}).", show_default=False),
    ] = SCORER,
    encoder: Annotated[str | None, plan_option("encoder")] = None,
    stride: Annotated[int, typer.Option(min=1, help="Score every Nth frame.")] = 1,
    fps: Annotated[float, typer.Option(help="Frame rate of takes that are folders of pictures.")] = 10.0,
    as_json: Json = False,
) -> None:
    """Rank recorded takes by how close they stay to demonstrations. Needs no policy and no simulator.

    Takes are aligned by time, whatever their frame rates, and takes that the error bars cannot separate share a place.
    Takes that score below every held-out demonstration, or no better than their own pixels shuffled, are marked. Exits
    with code 2 if no take could be ranked.

    With --run, give the takes of one start in the order in which they were played. The last one is accepted (exit code
    0), or another take is needed (exit code 4).

    Examples:
      besttake rank take1.mp4 take2.mp4 --demos libraries/mine
      besttake rank my_dataset#0 my_dataset#1 --demos lerobot:org/demos --encoder dinov2+siglip
      besttake rank take1.mp4 --run runs/mine
    """
    if run is not None:
        raise typer.Exit(_judged(takes, run, policy, task, fps, as_json))
    if demos is None:
        raise PlanError("`demos` is missing: name what to compare takes with, or a `run` whose score judges them")
    from besttake.reporting.terminal import ranking
    from besttake.verbs.rank import rank as rank_takes

    result = rank_takes(takes, demos, task=task, window=window, scorer=scorer, encoder=encoder, stride=stride, fps=fps)
    show(ranking(result), result.to_json(), as_json)
    if all(take.place is None for take in result.takes):
        raise typer.Exit(2)


def _judged(takes: list[str], run: Path, policy: str, task: str, fps: float, as_json: bool) -> int:
    """Print whether the gate of a run accepts the last take, and return the exit code."""
    from besttake.reporting.words import gate_decision
    from besttake.serving.gate import Gate

    gate = Gate.open(run, policy)
    for take in takes:
        judgement = gate.judge_recording(take, task, fps)
        if judgement.accept:
            break
    show(gate_decision(judgement, takes), asdict(judgement), as_json)
    return 0 if judgement.accept else 4


def ingest(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT", help="Result files, or directories of them.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Write result.json and a report here.")
    ] = None,
    policy_name: Annotated[
        list[str] | None,
        typer.Option(
            "--policy-name",
            metavar="NAME|PATH=NAME",
            help="Policy, if the files do not say: one for all, or one for each file or folder. Repeatable.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="OURS=THEIRS", help="Column, e.g. success=done; or start=scene/. Repeatable."),
    ] = None,
    patterns: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern",
            metavar="REGEX|FILE.yaml",
            help="Lines of a log, with named groups such as (?P<start>...) and (?P<success>...). Repeatable.",
        ),
    ] = None,
    group_by: Annotated[str, typer.Option(metavar="COLUMN", help="Column by which tasks are grouped in tables.")] = "",
    timeouts: Annotated[
        str, typer.Option(metavar="failures|missing", help="How to count episodes that ran out of time.")
    ] = "failures",
    worth: Worth = 3.0,
    as_json: Json = False,
) -> None:
    """Measure headroom from outcomes that other tools recorded. Plays no takes.

    Reads vla-eval, lerobot-eval, logs (OpenVLA, openpi, Cosmos, Xiaomi, RoboTwin), videos of SimplerEnv, and tables
    (CSV, Parquet, JSON, JSON lines). Several recordings of one policy from the same starts count as seeds.

    Examples:
      besttake ingest results/ -o runs/ingested
      besttake ingest seed1.csv seed2.csv seed3.csv --policy-name pi0 --column success=done
      besttake ingest evals/ --policy-name evals/a=pi0 --policy-name evals/b=smolvla
    """
    from besttake.reporting.terminal import ingested
    from besttake.verbs.ingest import ingest as read
    from besttake.verbs.report import report

    named = pairs("columns", columns or [], "NAME=COLUMN", "success=done")
    if timeouts not in ("failures", "missing"):
        raise PlanError(f"--timeouts {timeouts}: give failures or missing")
    result = read(
        list(results), out, policy_name=_policy_names(policy_name or []),
        columns=named | ({"group": group_by} if group_by else {}), patterns=patterns or (),
        timeouts="failures" if timeouts == "failures" else "missing", worth=worth, command=command_line(),
    )  # fmt: skip
    show(ingested(result), result.to_json(), as_json)
    if out is not None:
        page = report(out)
        if not as_json:
            show(f"Report: {page}")


def _policy_names(given: list[str]) -> str | dict[str, str]:
    """Return one name, or the names of files and folders."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs("policy_name", given, "NAME once, or PATH=NAME", "evals/a=pi0")
