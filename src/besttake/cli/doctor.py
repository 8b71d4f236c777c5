"""``besttake doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from besttake.cli.flags import option
from besttake.cli.options import Json, show


def doctor(
    demos: Annotated[
        str | None, typer.Option(metavar="PATH|URI", help="Demonstrations to look at; a few are read.")
    ] = None,
    policy: Annotated[str | None, typer.Option(metavar="URI", help="Policy to load; shows what it needs.")] = None,
    env: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Environment to open; shows what it offers and renders one picture."),
    ] = None,
    trust_remote_code: Annotated[bool, option("trust_remote_code")] = False,
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
