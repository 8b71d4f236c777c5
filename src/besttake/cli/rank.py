"""``besttake rank``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.flags import option
from besttake.cli.options import Json, show


def rank(
    takes: Annotated[list[str], typer.Argument(help="Videos, folders of pictures, or LeRobot episodes (DATASET#3).")],
    demos: Annotated[str, typer.Option(help="Library directory, demonstrations (URI), or a folder of videos.")],
    task: Annotated[str, typer.Option(help="Compare with the demonstrations of this task only.")] = "",
    window: Annotated[
        str, typer.Option(help="Frames to score: common (up to the shortest take's end) or episode.")
    ] = "common",
    scorer: Annotated[str, option("scorer")] = "manifold",
    encoder: Annotated[str | None, option("encoder")] = None,
    stride: Annotated[int, typer.Option(min=1, help="Score every n-th frame.")] = 1,
    html: Annotated[Path | None, typer.Option(help="Also write a page with the score traces.")] = None,
    as_json: Json = False,
) -> None:
    """Rank takes you already recorded by how close they stay to demonstrations.

    Examples:
      besttake rank take1.mp4 take2.mp4 --demos libraries/mine --html ranking.html
      besttake rank my_dataset#0 my_dataset#1 --demos lerobot:org/demos --encoder dinov2+siglip
    """
    from besttake.reporting.ranking import make_html
    from besttake.reporting.terminal.rank import render
    from besttake.verbs.rank import rank as order

    result = order(takes, demos, task=task, window=window, scorer=scorer, encoder=encoder, stride=stride)
    if html is not None:
        make_html(result, html)
    show(render(result), result.to_json(), as_json)
