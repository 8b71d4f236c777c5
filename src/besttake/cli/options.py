"""Options that mean the same in every command, and how results are printed."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from besttake.progress import Reporter

Out = Annotated[Path, typer.Option("-o", "--out", help="The run directory; an unfinished run in it goes on.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no notes.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more, e.g. why a take failed.")]
Policies = Annotated[list[str] | None, typer.Option("--policy", help="Policy URI; repeatable.")]
Envs = Annotated[list[str] | None, typer.Option("--env", help="Environment URI; repeatable.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only this task; repeatable.")]
Demos = Annotated[str | None, typer.Option("--demos", help="Library directory, or demonstrations (lerobot:…, hdf5:…).")]
EncoderUri = Annotated[str | None, typer.Option("--encoder", help="Encoder of frames, e.g. dinov2+siglip.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Simulator processes (default 2).")]
Batch = Annotated[int | None, typer.Option(min=1, help="Takes under way at once (default 32).")]
RunSeed = Annotated[int | None, typer.Option("--seed", min=0, help="The run seed (default 0).")]
GripperDim = Annotated[int | None, typer.Option(help="Which action number is the gripper, where data do not say.")]
EefDims = Annotated[str | None, typer.Option(help="Which state numbers are the end effector, e.g. 0,1,2.")]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with a checkpoint.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 when a verdict is undecided.")]


def reporter(quiet: bool, verbose: bool = False) -> Reporter:
    """Progress as loud as asked for."""
    return Reporter(0 if quiet else 2 if verbose else 1)


def command() -> str:
    """The command line as it was typed, to be kept with the run."""
    return shlex.join(["besttake", *sys.argv[1:]])


def show(renderable: RenderableType, data: Any, as_json: bool) -> None:
    """Print for people, or as JSON for scripts."""
    if as_json:
        print(data if isinstance(data, str) else json.dumps(data, indent=1))
    else:
        console = Console(highlight=False, emoji=False, markup=False)
        console.print(renderable, soft_wrap=isinstance(renderable, str | Text))
