"""``library build | show | check | tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from besttake.cli.options import EefDims, EncoderUri, GripperDim, Json, Policies, Quiet, Tasks, reporter, show

app = typer.Typer(
    help="Demonstrations as a library: build, look, check, tune.", no_args_is_help=True, rich_markup_mode=None
)

Directory = Annotated[Path, typer.Argument(help="The library's directory.")]


@app.command()
def build(
    demos: Annotated[
        str, typer.Argument(help="Where the demonstrations are: lerobot:…, hdf5:…, video:…, run:…, testbed")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Directory to make.")],
    encoder: EncoderUri = None,
    task: Tasks = None,
    stride: Annotated[int, typer.Option(min=1, help="Embed every so many frames (event frames always).")] = 1,
    max_demos: Annotated[int | None, typer.Option(min=1, help="At most so many per task.")] = None,
    gripper_dim: GripperDim = None,
    eef_dims: EefDims = None,
    pad: Annotated[
        str, typer.Option(help="Past a demo's end: hold (delta actions) or repeat (absolute ones).")
    ] = "hold",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be used, and list it.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn demonstrations into a library.

    Examples:
      besttake library build lerobot:org/libero -o libraries/libero --encoder dinov2+siglip --stride 5
      besttake library build hdf5:demos.hdf5 -o libraries/mine --skip-bad
    """
    from besttake.config import parse_dims
    from besttake.demos.resolve import build_at
    from besttake.errors import PlanError
    from besttake.reporting.terminal.library import render_built
    from besttake.threads import one_thread

    if pad not in ("hold", "repeat"):
        raise PlanError(f"--pad {pad}: choose hold or repeat")
    try:
        dims = parse_dims(eef_dims)
    except ValueError as error:
        raise PlanError(f"--eef-dims {eef_dims}: {error}") from None
    with reporter(quiet or as_json).stage("library", 0) as stage, one_thread():
        library = build_at(
            out, demos, encoder, stride=stride, tasks=tuple(task) if task else None,
            max_demos=max_demos, gripper_dim=gripper_dim, eef_dims=dims, pad=pad, skip_bad=skip_bad,
            progress=lambda _: stage.advance(),
        )  # fmt: skip
    summary = library.summary()
    show(render_built(out, summary), summary, as_json)


@app.command("show")
def show_library(
    directory: Directory,
    strips: Annotated[
        Path | None, typer.Option(help="Draw each demo as a film strip with its events into here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What a library holds: demonstrations, their events, and where they come from.

    Example:
      besttake library show libraries/mine --strips strips/
    """
    from besttake.demos.library import Library
    from besttake.reporting.terminal.library import render

    library = Library.open(directory)
    show(render(library), library.summary(), as_json)
    if strips is not None:
        from besttake.demos.strip import draw_all

        draw_all(library, strips)


@app.command()
def check(directory: Directory) -> None:
    """Read every byte of a library and compare it with what was written.

    Example:
      besttake library check libraries/mine
    """
    from besttake.demos.library import Library

    library = Library.open(directory)
    library.check()
    library.encoder()
    show(
        Text(f"{directory} is whole: {len(library.demos)} demonstrations, fingerprint {library.fingerprint}"), "", False
    )


@app.command()
def tune(
    directory: Directory,
    env: Annotated[str, typer.Option(help="Environment to roll out in; only its tuning starts are used.")],
    policy: Policies = None,
    starts: Annotated[int, typer.Option(min=1, help="Tuning starts per task.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="Takes per start.")] = 1,
    workers: Annotated[int, typer.Option(min=1)] = 2,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose rule, variant and alpha once, for all policies together, and freeze them into the library.

    Example:
      besttake library tune libraries/mine --env testbed --policy testbed:half --policy testbed:mid
    """
    from besttake.demos.library import Library
    from besttake.errors import PlanError
    from besttake.reporting.terminal.tune import render
    from besttake.verbs.tune import tune as choose

    if not policy:
        raise PlanError("--policy is missing; name the policies to tune for together, e.g. --policy testbed:half")
    told = reporter(quiet or as_json)
    found = choose(Library.open(directory), policy, env, starts=starts, seeds=seeds, workers=workers, reporter=told)
    show(render(found), {"config": found.config.to_dict(), "trials": [t.name for t in found.trials]}, as_json)
