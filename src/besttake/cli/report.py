"""``besttake report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from besttake.cli.options import Run, show


def report(
    directory: Run,
    form: Annotated[str, typer.Option("--format", help="html (default), md or json.")] = "html",
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

    show(Text(str(make(directory, out, form=form, figures=figures))), "", False)
