"""``besttake score``."""

from __future__ import annotations

from typing import Annotated

import typer

from besttake.cli.options import Json, Quiet, Run, Verbose, reporter, show


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
