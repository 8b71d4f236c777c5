"""Commands that read runs: ``report``, ``score``, ``compare`` and ``runs show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.options import Json, Quiet, Run, Verbose, command, reporter, show

app = typer.Typer(help="Look into run directories.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
def runs_show(directory: Run, as_json: Json = False) -> None:
    """Show what is done, what is missing, what failed and why, and the digest over all takes.

    Example:
      besttake runs show runs/demo --json
    """
    from besttake.reporting.terminal.runs import render
    from besttake.takes.summary import summarise

    summary = summarise(directory)
    show(render(summary), summary.to_dict(), as_json)


def report(
    directory: Run,
    format: Annotated[str, typer.Option(help="html (default), md or json.")] = "html",
    figures: Annotated[Path | None, typer.Option(help="Also save every figure as SVG into this directory.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write (default: in the run).")] = None,
) -> None:
    """Make the report of a run.

    Examples:
      besttake report runs/demo
      besttake report runs/demo --format md -o report.md
      besttake report runs/demo --figures figures/
    """
    from besttake.verbs.report import report as make

    show(str(make(directory, out, format=format, figures=figures)))


def score(
    directory: Run,
    scorer: Annotated[str, typer.Option(help="Scorer to judge: manifold, coverage, or a URI.")],
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Judge a scorer on the takes that a run already has, without a new take.

    Its scores are kept in the run with the others.

    Example:
      besttake score runs/demo --scorer coverage
    """
    from besttake.reporting.terminal.score import render
    from besttake.verbs.score import score as judge

    result = judge(directory, scorer, progress=reporter(quiet or as_json, verbose))
    show(render(result), result.to_json(), as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    window: Annotated[
        str, typer.Option(help="Read scores on this window (episode, full, common); else on each verdict's own.")
    ] = "",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also write a report (HTML) here.")] = None,
    as_json: Json = False,
) -> None:
    """Compare many runs: does headroom predict the gain over all their cells?

    Examples:
      besttake compare runs/* -o comparison.html
      besttake compare runs/* --window episode     # as the paper reads them
    """
    from besttake.reporting.html import make_compare_html
    from besttake.reporting.terminal.compare import render
    from besttake.verbs.compare import compare as relate

    result = relate(runs, window=window, command=command())
    if out is not None:
        make_compare_html(result, out)
    show(render(result), result.to_json(), as_json)
