"""``besttake runs show``."""

from __future__ import annotations

import typer

from besttake.cli.options import Json, Run, show

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
