"""``library build | show | check | tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.flags import Flags, option, plan_flags
from besttake.cli.options import Json, Quiet, Verbose, reporter, show

app = typer.Typer(
    help="Demonstrations as a library: build, look, check, tune.", no_args_is_help=True, rich_markup_mode=None
)

Directory = Annotated[Path, typer.Argument(help="The library's directory.")]


@app.command()
@plan_flags("demos", "encoder", "task", "gripper_dim", "gripper_threshold", "gripper_open", "event_angle", "eef_dims")
def build(
    given: Flags,
    source: Annotated[
        str | None,
        typer.Argument(metavar="[DEMOS]", help="The demonstrations: a path, or a URI (lerobot:…, hdf5:…, rlds:…)."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="Directory to make.")],
    stride: Annotated[int, typer.Option(min=1, help="Embed every n-th frame, and the frames of events.")] = 1,
    max_demos: Annotated[int | None, typer.Option(min=1, help="Use at most this many per task.")] = None,
    pad: Annotated[
        str, typer.Option(help="Actions past a demonstration's end: hold (delta actions) or repeat (absolute ones).")
    ] = "hold",
    gripper_as: Annotated[
        str | None,
        typer.Option(help="Gripper commands that shall open and close in the library, e.g. -1,1 for LIBERO."),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be used, and list it.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Turn demonstrations into a library.

    Examples:
      besttake library build lerobot:org/libero -o libraries/libero --encoder dinov2+siglip --stride 5
      besttake library build data/my_demos.hdf5 -o libraries/mine --skip-bad
    """
    from besttake.config import parse_dims
    from besttake.demos.build import Options, Work
    from besttake.demos.resolve import build_at
    from besttake.errors import PlanError
    from besttake.reporting.terminal.library import render_built
    from besttake.threads import one_thread

    if (source is None) == ("demos" not in given):
        raise PlanError(
            "name the demonstrations once, as DEMOS or with `demos`: a path, or a URI such as lerobot:org/name"
        )
    demos = source or str(given["demos"])
    if pad not in ("hold", "repeat"):
        raise PlanError(f"`pad` {pad}: choose hold or repeat")
    try:
        dims = parse_dims(given.get("eef_dims"))
    except ValueError as error:
        raise PlanError(f"`eef_dims` {given['eef_dims']}: {error}") from None
    levels = _levels(gripper_as)
    with reporter(quiet or as_json, verbose).stage("library", 0) as stage, one_thread():
        options = Options(
            stride=stride, tasks=tuple(given["task"]) if "task" in given else None, max_demos=max_demos,
            gripper_dim=given.get("gripper_dim"), eef_dims=dims, gripper_threshold=given.get("gripper_threshold"),
            gripper_open=given.get("gripper_open"), gripper_as=levels, angle=given.get("event_angle"),
            pad="repeat" if pad == "repeat" else "hold", skip_bad=skip_bad,
        )  # fmt: skip
        library = build_at(out, demos, given.get("encoder"), options, Work(lambda _: stage.advance()))
    summary = library.summary()
    show(render_built(out, summary), summary, as_json)


def _levels(text: str | None) -> tuple[float, float] | None:
    """``"-1,1"`` -> (-1, 1)."""
    from besttake.errors import PlanError

    if text is None:
        return None
    try:
        opens, closes = (float(part) for part in text.split(","))
    except ValueError:
        raise PlanError(
            f"`gripper_as` {text}: two numbers, the one that opens and the one that closes, e.g. -1,1"
        ) from None
    if not abs(opens - closes) < float("inf") or opens == closes:
        raise PlanError(f"`gripper_as` {text}: two different numbers, e.g. -1,1")
    return opens, closes


@app.command("show")
def show_library(
    directory: Directory,
    strips: Annotated[
        Path | None, typer.Option(help="Draw each demonstration as a film strip with its events, into this directory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a library holds: demonstrations, their events, and where they come from.

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
    from besttake.demos.checks import check_content
    from besttake.demos.library import Library

    library = Library.open(directory)
    check_content(library)
    library.encoder()
    show(f"{directory} is whole: {len(library.demos)} demonstrations, fingerprint {library.fingerprint}")


@app.command()
def tune(
    directory: Directory,
    env: Annotated[str, typer.Option(help="Environment to roll out in; only its tuning starts are used.")],
    policy: Annotated[list[str] | None, option("policy", help="Policy to tune for (URI). Repeatable.")] = None,
    starts: Annotated[int, typer.Option(min=1, help="Tuning starts per task.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="Takes per start.")] = 1,
    workers: Annotated[int, option("workers")] = 2,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Choose rule, variant and alpha once, for all policies together, and freeze them into the library.

    Example:
      besttake library tune libraries/mine --env testbed --policy testbed:half --policy testbed:mid
    """
    from besttake.errors import PlanError
    from besttake.reporting.terminal.library import render_tuned
    from besttake.verbs.tune import tune as choose

    if not policy:
        raise PlanError("`policy` is missing; name the policies to tune for together, e.g. testbed:half")
    tuned = choose(
        directory, policy, env, starts=starts, seeds=seeds, workers=workers,
        progress=reporter(quiet or as_json, verbose),
    )  # fmt: skip
    show(render_tuned(tuned), {"config": tuned.config.to_dict(), "trials": [t.name for t in tuned.trials]}, as_json)
