"""``besttake compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.options import Json, command, show


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also write a report (HTML) here.")] = None,
    as_json: Json = False,
) -> None:
    """Compare many runs: does headroom predict the gain over all their cells?

    Example:
      besttake compare runs/* -o comparison.html
    """
    from besttake.reporting.html import make_compare_html
    from besttake.reporting.terminal.compare import render
    from besttake.verbs.compare import compare as relate

    result = relate(runs, command())
    if out is not None:
        make_compare_html(result, out)
    show(render(result), result.to_json(), as_json)
