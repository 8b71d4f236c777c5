"""Commands that run what a diagnosis recommends: ``act``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.flags import Json, Quiet, RunDirectory, command, reporter, show


def act(
    directory: RunDirectory,
    policy: Annotated[str, typer.Option(metavar="NAME", help="Policy, where the run has several.")] = "",
    option: Annotated[
        str, typer.Option(metavar="OPTION", help='Another option than the recommended one, e.g. "cooled, best of 3".')
    ] = "",
    starts: Annotated[
        str | None, typer.Option(metavar="FIRST:END", help="Starts of each task (default: the next 20 unseen ones).")
    ] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Allow starts that the run has seen.")] = False,
    lerobot: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the kept takes as a LeRobotDataset v3.")
    ] = None,
    films: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the kept takes as MP4 films.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a table of the kept takes.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Directory for the takes (default: act/ in the run)."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Play what a run recommends on new starts, and see whether its promise holds.

    Of each start, takes are played until the score accepts one, at most as many as the option says; the best is kept.

    Examples:
      besttake act runs/demo --policy half
      besttake act runs/half --starts 20:60 --lerobot datasets/kept
      besttake act runs/half --option "cooled, best of 3" --json
    """
    from besttake.reporting.terminal import Sentence, acted
    from besttake.verbs import act as verb

    made = verb.act(
        directory, out, policy=policy, option=option, starts=starts, seen=seen, progress=reporter(quiet),
        command=command(),
    )  # fmt: skip
    written = verb.write_kept(made, lerobot=lerobot, films=films, csv=csv)
    show([*acted(made), *map(Sentence, map(str, written))], made.to_json(), as_json)
