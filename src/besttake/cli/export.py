"""``besttake export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.complete import COMPLETERS
from besttake.cli.options import Quiet, Run, reporter, show

_TABLES, _FIGURES, _TAKES, _CHOICE = "Tables", "Figures", "Takes", "Which takes"
Csv = Annotated[bool, typer.Option("--csv", help="Takes and cells as CSV.", rich_help_panel=_TABLES)]
Parquet = Annotated[bool, typer.Option("--parquet", help="Takes and cells as Parquet.", rich_help_panel=_TABLES)]
Policy = Annotated[
    list[str] | None,
    typer.Option(help="Of this policy only. Repeatable.", autocompletion=COMPLETERS["policy"], rich_help_panel=_CHOICE),
]
Task = Annotated[list[str] | None, typer.Option(help="Of this task only. Repeatable.", rich_help_panel=_CHOICE)]
Arm = Annotated[list[str] | None, typer.Option(help="Of this arm only. Repeatable.", rich_help_panel=_CHOICE)]


def export(
    directory: Run,
    csv: Csv = False,
    parquet: Parquet = False,
    latex: Annotated[
        str | None, typer.Option(metavar="NAME", help="The cells as a LaTeX table, NAME.tex.", rich_help_panel=_TABLES)
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Every figure as SVG into this directory.", rich_help_panel=_FIGURES)
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Figures as PDF, too.", rich_help_panel=_FIGURES)] = False,
    films: Annotated[
        Path | None, typer.Option(help="Each take as a film (MP4) into this directory.", rich_help_panel=_TAKES)
    ] = None,
    lerobot: Annotated[
        Path | None, typer.Option(help="The takes as a LeRobotDataset v3 in a new directory.", rich_help_panel=_TAKES)
    ] = None,
    rerun: Annotated[
        Path | None, typer.Option(help="The takes as a Rerun recording, e.g. takes.rrd.", rich_help_panel=_TAKES)
    ] = None,
    fps: Annotated[
        int | None,
        typer.Option(min=1, help="Actions a second of the robot (default: what the env says).", rich_help_panel=_TAKES),
    ] = None,
    policy: Policy = None,
    task: Task = None,
    arm: Arm = None,
    outcome: Annotated[
        str, typer.Option(metavar="success|failure", help="Only such takes.", rich_help_panel=_CHOICE)
    ] = "",
    most: Annotated[int | None, typer.Option(min=1, help="At most this many.", rich_help_panel=_CHOICE)] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Directory of the tables (default: export/ in the run).")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Take a run along: tables, figures and films, or its takes as a data set to train on.

    Examples:
      besttake export runs/demo --csv --latex table1 -o paper/
      besttake export runs/demo --films films/ --outcome failure --most 20
      besttake export runs/demo --lerobot datasets/mine --outcome success --arm base
      besttake export runs/demo --figures figures/ --pdf
    """
    from besttake.verbs.export import Wanted
    from besttake.verbs.export import export as write

    wanted = Wanted(
        csv=csv, parquet=parquet, latex=latex, figures=figures, pdf=pdf, films=films, lerobot=lerobot, rerun=rerun,
        policies=tuple(policy or ()), tasks=tuple(task or ()), arms=tuple(arm or ()), outcome=outcome, most=most,
        fps=fps,
    )  # fmt: skip
    for path in write(directory, wanted, out, progress=reporter(quiet)):
        show(str(path))
