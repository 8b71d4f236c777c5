"""``runs show``, ``report``, ``doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from besttake.cli.options import Json, show

runs = typer.Typer(help="Look into run directories.", no_args_is_help=True, rich_markup_mode=None)

Run = Annotated[Path, typer.Argument(help="The run directory.")]


@runs.command("show")
def runs_show(directory: Run, as_json: Json = False) -> None:
    """What is done, what is missing, what failed and why, and the digest over all takes.

    Example:
      besttake runs show runs/demo --json
    """
    from besttake.reporting.terminal.runs import render
    from besttake.takes.summary import summarise

    summary = summarise(directory)
    show(render(summary), summary.to_dict(), as_json)


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
    from besttake.errors import PlanError
    from besttake.reporting.figures import save_figures
    from besttake.reporting.html import make_html
    from besttake.reporting.markdown import make_json, make_markdown
    from besttake.result import Result

    makers = {"html": make_html, "md": make_markdown, "json": make_json}
    if form not in makers:
        raise PlanError(f"--format {form}: choose html, md or json")
    show(Text(str(makers[form](directory, out))), "", False)
    if figures is not None:
        save_figures(Result.load(directory / "result.json"), figures)


def doctor(
    policy: Annotated[str | None, typer.Option(help="Also load this policy and show what it needs.")] = None,
    env: Annotated[str | None, typer.Option(help="Also open this env and show what it offers.")] = None,
    as_json: Json = False,
) -> None:
    """Which extras, simulators and encoders work on this machine, and what to install for the rest.

    Examples:
      besttake doctor
      besttake doctor --policy lerobot:org/pi0_libero --env libero:spatial
    """
    from besttake.reporting.terminal.doctor import render
    from besttake.verbs.doctor import doctor as look

    result = look(policy, env)
    show(render(result), result.to_json(), as_json)
