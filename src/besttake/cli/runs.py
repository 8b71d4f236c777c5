"""Commands that read runs: ``runs list | show | merge | watch``, ``report``, ``score``, ``compare``, ``export``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from besttake.cli.console import command_line, reporter, show, wait
from besttake.cli.flags import Json, Quiet, RunDirectory, Verbose
from besttake.files import write_text


def runs_list(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to search for runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a directory, newest first, with the verdict for each policy.

    Examples:
      besttake runs list
      besttake runs list experiments/ --json
    """
    from besttake.verbs.runs import list_runs

    listed = list_runs(directory)
    empty = "There are no runs here; `besttake diagnose` makes one."
    show([listed.table] if listed.runs else empty, listed.to_json(), as_json)


def runs_show(directory: RunDirectory, as_json: Json = False) -> None:
    """Show the state of a run: takes done, missing and failed (with reasons), and the digest over all takes.

    Example:
      besttake runs show runs/demo --json
    """
    from besttake.reporting.terminal import run_summary
    from besttake.verbs.runs import summarise

    summary = summarise(directory)
    show(run_summary(summary), asdict(summary), as_json)


def runs_merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs, each of a part of one plan.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="New directory for the merged run.")],
    as_json: Json = False,
) -> None:
    """Merge runs of parts of one plan, split by starts, policies, tasks or arms, into one run.

    Afterwards, run the whole plan with -o on the merged directory: it finds all takes there, scores them and gives the
    verdict.

    Example:
      besttake runs merge part1 part2 -o runs/whole
    """
    from besttake.verbs.runs import merge

    merged = merge(runs, out, command=command_line())
    failed = f" ({merged.left_out} failed ones left out)" if merged.left_out else ""
    text = f"{merged.takes} takes{failed} in {merged.path}, with digest {merged.digest[:12]} (without scores)"
    then = f"To score and judge them, run the whole plan: besttake diagnose … -o {merged.path}"
    show(f"{text}\n{then}", asdict(merged), as_json)


def runs_watch(
    directory: RunDirectory,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
) -> None:
    """Serve the live page of a run on this machine, and its report once it is finished.

    The run is only read, so any number of people can watch it, even on a read-only disk. To watch from another machine,
    open a tunnel: ssh -L 8123:127.0.0.1:8123 MACHINE.

    Examples:
      besttake runs watch runs/half
      besttake runs watch runs/half --port 8123
    """
    from besttake.verbs.runs import Run
    from besttake.watch import LiveServer, RunPage

    Run.open(directory)  # raises if it is no run
    with LiveServer(RunPage(directory), port) as server:
        wait(f"{directory} at {server.url}", "the page is no longer served")


def report(
    directory: RunDirectory,
    format: Annotated[str, typer.Option(metavar="html|md|json", help="Format of the report.")] = "html",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File to write (default: in the run).")
    ] = None,
) -> None:
    """Write the report of a run as HTML, Markdown or JSON.

    Examples:
      besttake report runs/demo
      besttake report runs/demo --format md -o report.md
    """
    from besttake.verbs.report import report as make

    show(str(make(directory, out, format=format)))


def score(
    directory: RunDirectory,
    scorer: Annotated[
        list[str] | None, typer.Option(metavar="URI", help="Scorer to add: coverage, manifold, … Repeatable.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare the scorers of a run, and add scores by others. Plays no takes.

    Scores are stored in the run and never computed twice. If a scorer fails, the others are kept; run the same command
    again to retry it.

    Examples:
      besttake score runs/demo
      besttake score runs/demo --scorer smoothness --scorer python:my_scorer:make
      besttake score runs/half --scorer classifier:half.scorer
    """
    from besttake.reporting.terminal import scores
    from besttake.verbs.score import score as compare_scorers

    result = compare_scorers(directory, scorer or (), progress=reporter(quiet or as_json, verbose))
    show(scores(result), result.to_json(), as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.")],
    window: Annotated[
        str,
        typer.Option(metavar="episode|full|common", help="Window to read scores on (default: that of each verdict)."),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE.svg", help="Also draw gain against headroom.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs: show what changed between two of them, and whether headroom predicts the gain over all cells.

    Two runs, for example of two checkpoints, are compared start by start, on the starts that both have.

    Examples:
      besttake compare runs/step10k runs/step20k
      besttake compare runs/* -o relation.svg
      besttake compare runs/* --window episode     # as the paper reads them
    """
    from besttake.reporting.terminal import comparison
    from besttake.verbs.compare import compare as compare_runs

    result = compare_runs(runs, window=window, command=command_line())
    if out is not None and (figure := result.plot()) is not None:
        write_text(out, figure.svg(), parents=True)
    show(comparison(result), result.to_json(), as_json)


_table: Any = partial(typer.Option, rich_help_panel="Tables")
_figure: Any = partial(typer.Option, rich_help_panel="Figures")
_takes: Any = partial(typer.Option, rich_help_panel="Takes")
_which: Any = partial(typer.Option, rich_help_panel="Which takes")
_Names = list[str] | None


def export(
    directory: RunDirectory,
    csv: Annotated[bool, _table("--csv", help="Write takes and cells as CSV.")] = False,
    figures: Annotated[
        Path | None, _figure(metavar="DIR", help="Write every figure as SVG into this directory.")
    ] = None,
    films: Annotated[Path | None, _takes(metavar="DIR", help="Write each take as an MP4 into this directory.")] = None,
    lerobot: Annotated[
        Path | None, _takes(metavar="DIR", help="Write takes as a LeRobotDataset v3 into a new directory.")
    ] = None,
    hub: Annotated[
        Path | None, _table(metavar="DIR", help="Write the results of a policy for its model page on the hub.")
    ] = None,
    benchmark: Annotated[
        str,
        _table(metavar="ORG/NAME", help="Data set on the hub whose tasks these are (default: the demonstrations')."),
    ] = "",
    fps: Annotated[
        int | None, _takes(min=1, help="Actions per second of the robot (default: what the environment says).")
    ] = None,
    policy: Annotated[_Names, _which(metavar="URI", help="Only takes of this policy. Repeatable.")] = None,
    task: Annotated[_Names, _which(metavar="TASK", help="Only takes of this task. Repeatable.")] = None,
    arm: Annotated[_Names, _which(metavar="ARM", help="Only takes of this arm. Repeatable.")] = None,
    outcome: Annotated[str, _which(metavar="success|failure", help="Only takes with this outcome.")] = "",
    most: Annotated[int | None, _which(min=1, help="At most this many takes.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Directory for tables (default: export/ in the run)."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Export a run: tables, figures, films, or its takes as a data set to train on.

    Examples:
      besttake export runs/demo --csv -o tables/
      besttake export runs/demo --films films/ --outcome failure --most 20
      besttake export runs/demo --lerobot datasets/mine --outcome success --arm base
      besttake export runs/demo --figures figures/
      besttake export runs/pi0-spatial --hub card/ --benchmark org/libero
    """
    from besttake.verbs.export import ExportOptions
    from besttake.verbs.export import export as write

    options = ExportOptions(
        csv=csv, figures=figures, films=films, lerobot=lerobot, hub=hub, benchmark=benchmark,
        policies=tuple(policy or ()), tasks=tuple(task or ()), arms=tuple(arm or ()), outcome=outcome, most=most,
        fps=fps,
    )  # fmt: skip
    for path in write(directory, options, out, progress=reporter(quiet)):
        show(str(path))
    if hub is not None and not quiet:
        show(f"Nothing was uploaded. To upload: hf upload ORG/MODEL {hub} . (put besttake.md into the card first)")
