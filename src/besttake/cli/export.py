"""``besttake export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.complete import COMPLETERS
from besttake.cli.options import Quiet, Run, reporter, show

_TABLES, _FIGURES, _TAKES, _CHOICE = "Tables", "Figures", "Takes", "Which takes"
Csv = Annotated[bool, typer.Option("--csv", help="Write takes and cells as CSV.", rich_help_panel=_TABLES)]
Parquet = Annotated[bool, typer.Option("--parquet", help="Write takes and cells as Parquet.", rich_help_panel=_TABLES)]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URI",
        help="Only takes of this policy. Repeatable.",
        autocompletion=COMPLETERS["policy"],
        rich_help_panel=_CHOICE,
    ),
]
Task = Annotated[
    list[str] | None, typer.Option(metavar="TASK", help="Only takes of this task. Repeatable.", rich_help_panel=_CHOICE)
]
Arm = Annotated[
    list[str] | None, typer.Option(metavar="ARM", help="Only takes of this arm. Repeatable.", rich_help_panel=_CHOICE)
]


Figures = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write every figure as SVG into this directory.", rich_help_panel=_FIGURES),
]
Films = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write each take as an MP4 into this directory.", rich_help_panel=_TAKES),
]
LeRobot = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write takes as a LeRobotDataset v3 into a new directory.", rich_help_panel=_TAKES
    ),
]
Rerun = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write takes as a Rerun recording, e.g. takes.rrd.", rich_help_panel=_TAKES),
]


def export(
    directory: Run,
    csv: Csv = False,
    parquet: Parquet = False,
    latex: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write cells as a LaTeX table, NAME.tex.", rich_help_panel=_TABLES),
    ] = None,
    figures: Figures = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write the figures as PDF too.", rich_help_panel=_FIGURES)] = False,
    films: Films = None,
    lerobot: LeRobot = None,
    rerun: Rerun = None,
    fps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Actions per second of the robot (default: what the environment says).", rich_help_panel=_TAKES
        ),
    ] = None,
    policy: Policy = None,
    task: Task = None,
    arm: Arm = None,
    outcome: Annotated[
        str, typer.Option(metavar="success|failure", help="Only takes with this outcome.", rich_help_panel=_CHOICE)
    ] = "",
    most: Annotated[int | None, typer.Option(min=1, help="At most this many takes.", rich_help_panel=_CHOICE)] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Directory for tables (default: export/ in the run)."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Export a run: tables, figures, films, or its takes as a data set to train on.

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
