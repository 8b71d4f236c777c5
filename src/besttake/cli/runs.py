"""Commands that read runs: ``report``, ``score``, ``compare``, and ``runs list|show|merge|watch``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.flags import option
from besttake.cli.help import Group
from besttake.cli.live import watch
from besttake.cli.options import Json, Quiet, Run, Verbose, command, reporter, show

app = typer.Typer(
    cls=Group, help="List, show, merge and watch run directories.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def runs_list(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to search for runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a directory, newest first, with the verdict for each policy.

    Examples:
      besttake runs list
      besttake runs list experiments/ --json
    """
    from besttake.reporting.terminal import run_list
    from besttake.verbs.runs import list_runs

    listed = list_runs(directory)
    show(run_list(listed), listed.to_json(), as_json)


@app.command("show")
def runs_show(directory: Run, as_json: Json = False) -> None:
    """Show the state of a run: takes done, missing and failed (with reasons), and the digest over all takes.

    Example:
      besttake runs show runs/demo --json
    """
    from besttake.reporting.terminal import run_summary
    from besttake.verbs.runs import summarise

    summary = summarise(directory)
    show(run_summary(summary), summary.to_dict(), as_json)


@app.command("merge")
def runs_merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs, each of a part of one plan.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="New directory for the merged run.")],
    as_json: Json = False,
) -> None:
    """Merge runs of parts of one plan, split by starts, policies, tasks or arms, into one run.

    Runs that do not fit together are refused. Afterwards, run the whole plan with -o on the merged directory: it finds
    all takes there, scores them and gives the verdict.

    Example:
      besttake runs merge part1 part2 -o runs/whole
    """
    from besttake.verbs.runs import merge

    merged = merge(runs, out, command=command())
    failed = f" ({merged.left_out} failed ones left out)" if merged.left_out else ""
    text = f"{merged.takes} takes{failed} in {merged.path}, their digest (without scores) {merged.digest[:12]}"
    then = f"Score and judge them with the whole plan: besttake diagnose … -o {merged.path}"
    show(f"{text}\n{then}", asdict(merged), as_json)


app.command("watch")(watch)


def report(
    directory: Run,
    format: Annotated[str, typer.Option(metavar="html|md|json", help="Format of the report.")] = "html",
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as SVG into this directory.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File to write (default: in the run).")
    ] = None,
) -> None:
    """Write the report of a run as HTML, Markdown or JSON.

    Examples:
      besttake report runs/demo
      besttake report runs/demo --format md -o report.md
      besttake report runs/demo --figures figures/
    """
    from besttake.verbs.report import report as make

    show(str(make(directory, out, format=format, figures=figures)))


def score(
    directory: Run,
    scorer: Annotated[
        list[str] | None, typer.Option(metavar="URI", help="Scorer to add: coverage, manifold, … Repeatable.")
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Train a success classifier on this run: the scorer classifier:FILE."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Also write the table to a .csv, .tex or .json file."),
    ] = None,
    allow_upload: Annotated[bool, option("allow_upload")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare the scorers of a run, and add scores by others. Plays no takes.

    Scores are stored in the run and never computed twice. If a scorer fails, the others are kept; run the same command
    again to retry it. A classifier is never judged on starts that it was trained on: train it on tuning starts.

    Examples:
      besttake score runs/demo
      besttake score runs/demo --scorer smoothness --scorer python:my_scorer:make
      besttake score runs/tuning --train half.scorer
      besttake score runs/half --scorer classifier:half.scorer
    """
    from besttake.reporting.terminal import scores
    from besttake.verbs.score import score as compare_scorers

    result = compare_scorers(
        directory, scorer or (), train=train, allow_upload=allow_upload, progress=reporter(quiet or as_json, verbose)
    )
    if out is not None:
        result.save(out)
    show(scores(result), result.to_json(), as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.")],
    window: Annotated[
        str,
        typer.Option(metavar="episode|full|common", help="Window to read scores on (default: that of each verdict)."),
    ] = "",
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Also write an HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Compare runs: what changed between two of them, and whether headroom predicts the gain over all their cells.

    With two runs, for example of two checkpoints, starts that both have are compared one by one.

    Examples:
      besttake compare runs/step10k runs/step20k
      besttake compare runs/* -o comparison.html
      besttake compare runs/* --window episode     # as the paper reads them
    """
    from besttake.reporting.html import make_compare_html
    from besttake.reporting.terminal import comparison
    from besttake.verbs.compare import compare as relate

    result = relate(runs, window=window, command=command())
    if out is not None:
        make_compare_html(result, out)
    show(comparison(result), result.to_json(), as_json)
