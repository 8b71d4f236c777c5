"""Commands that set up a diagnosis: ``library build | show | check`` and ``doctor``."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.console import reporter, show
from besttake.cli.flags import Flags, Json, Quiet, Verbose, plan_flags, plan_option
from besttake.config import parse_dims
from besttake.errors import Interrupted, PlanError

Directory = Annotated[Path, typer.Argument(metavar="LIBRARY", help="Directory of the library.")]
Pad = Annotated[
    str, typer.Option(metavar="hold|repeat", help="Actions after the end: hold (deltas) or repeat (absolute).")
]
GripperAs = Annotated[
    str | None,
    typer.Option(metavar="OPEN,CLOSE", help="Convert gripper commands to these two values, e.g. -1,1 for LIBERO."),
]


@plan_flags(
    "demos", "encoder", "task", "gripper_dim", "gripper_threshold", "gripper_open", "event_angle", "event_turns",
    "eef_dims",
    helps={
        "demos": "Demonstrations; another way of writing DEMOS.",
        "encoder": "Encoder that embeds frames (default: pixels).",
        "task": "Use only demonstrations of this task. Repeatable.",
    },
)  # fmt: skip
def build(
    given: Flags,
    source: Annotated[
        str | None,
        typer.Argument(metavar="DEMOS", help="Demonstrations: a path, or a URI (lerobot:…, hdf5:…, rlds:…)."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Directory to create.")],
    stride: Annotated[int, typer.Option(min=1, help="Embed every Nth frame, and the frames of events.")] = 1,
    max_demos: Annotated[int | None, typer.Option(min=1, help="Use at most this many demonstrations per task.")] = None,
    pad: Pad = "hold",
    gripper_as: GripperAs = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out demonstrations that cannot be used, and list them.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Build a library of demonstrations with frames, embeddings, states, actions and events.

    Examples:
      besttake library build lerobot:org/libero -o libraries/libero --encoder dinov2+siglip --stride 5
      besttake library build data/my_demos.hdf5 -o libraries/mine --skip-bad
    """
    from besttake.demos.build import BuildHooks, Options
    from besttake.demos.resolve import build_at
    from besttake.reporting.terminal import built
    from besttake.threads import one_thread

    if (source is None) == ("demos" not in given):
        raise PlanError(
            "name the demonstrations once, as DEMOS or with `demos`: a path, or a URI such as lerobot:org/name"
        )
    demos = source or str(given["demos"])
    if pad not in ("hold", "repeat"):
        raise PlanError(f"`pad` {pad}: choose hold or repeat")
    turns = given.get("event_turns", "spaced")
    if turns not in ("spaced", "every"):
        raise PlanError(f"`event_turns` {turns}: choose spaced or every")
    try:
        dims = parse_dims(given.get("eef_dims"))
    except ValueError as error:
        raise PlanError(f"`eef_dims` {given['eef_dims']}: {error}") from None
    with reporter(quiet or as_json, verbose).stage("library", -1, "frames") as stage, one_thread():
        options = Options(
            stride=stride, tasks=tuple(given["task"]) if "task" in given else None, max_demos=max_demos,
            gripper_dim=given.get("gripper_dim"), eef_dims=dims, gripper_threshold=given.get("gripper_threshold"),
            gripper_open=given.get("gripper_open"), gripper_as=_gripper_values(gripper_as),
            angle=given.get("event_angle"), turns=turns, pad="repeat" if pad == "repeat" else "hold", skip_bad=skip_bad,
        )  # fmt: skip
        try:
            library = build_at(out, demos, given.get("encoder"), options, BuildHooks(frames=stage.reach))
        except KeyboardInterrupt:
            raise Interrupted(
                f"{out} was not made; frames that a slow encoder has embedded are kept, run the same command to go on"
            ) from None
    summary = library.summary()
    show(built(out, summary), summary, as_json)


def _gripper_values(text: str | None) -> tuple[float, float] | None:
    """``"-1,1"`` -> (-1, 1)."""
    if text is None:
        return None
    try:
        opens, closes = map(float, text.split(","))
        if opens != closes and isfinite(opens - closes):
            return opens, closes
    except ValueError:
        pass
    raise PlanError(f"`gripper_as` {text}: two numbers, the one that opens and the one that closes, e.g. -1,1")


def show_library(directory: Directory, as_json: Json = False) -> None:
    """Show where a library comes from, and its demonstrations with their events.

    Example:
      besttake library show libraries/mine
    """
    from besttake.demos.library import Library
    from besttake.reporting import terminal

    library = Library.open(directory)
    show(terminal.library(library), library.summary(), as_json)


def check(directory: Directory, as_json: Json = False) -> None:
    """Verify the checksums of a library, and that its encoder can be loaded.

    Example:
      besttake library check libraries/mine
    """
    from besttake.demos.library import Library

    library = Library.open(directory)
    library.encoder()
    text = f"{directory} is undamaged: {len(library.demos)} demonstrations, fingerprint {library.fingerprint}"
    show(text, {"fingerprint": library.fingerprint, "demos": len(library.demos)}, as_json)


def doctor(
    demos: Annotated[
        str | None, typer.Option(metavar="PATH|URI", help="Demonstrations to look at; a few are read.")
    ] = None,
    policy: Annotated[str | None, typer.Option(metavar="URI", help="Policy to load; shows what it needs.")] = None,
    env: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Environment to open; shows what it offers and renders one picture."),
    ] = None,
    trust_remote_code: Annotated[bool, plan_option("trust_remote_code")] = False,
    as_json: Json = False,
) -> None:
    """Check what is installed on this machine, and whether demonstrations, a policy and an environment fit together.

    Without options it lists what works here. With any of --demos, --policy and --env it shows side by side what their
    numbers mean (gripper, state, action, pictures), marks differences, and exits with code 1 if they do not fit.

    Examples:
      besttake doctor
      besttake doctor --policy lerobot:org/pi0_libero --env libero:spatial
      besttake doctor --demos lerobot:org/libero --policy lerobot:org/pi0_libero --env libero:spatial
    """
    from besttake.reporting import terminal
    from besttake.verbs.doctor import doctor as look

    result = look(policy, env, demos, trust_remote_code=trust_remote_code)
    show(terminal.doctor(result), result.to_json(), as_json)
    if not result.healthy:
        raise typer.Exit(1)
