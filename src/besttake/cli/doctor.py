"""``besttake doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from besttake.cli.flags import option
from besttake.cli.options import Json, show


def doctor(
    demos: Annotated[
        str | None, typer.Option(help="Demonstrations to look at: a library, or a source (a few of them are read).")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="A policy to load; shows what it needs.")] = None,
    env: Annotated[str | None, typer.Option(help="An env to open; shows what it offers, and draws a picture.")] = None,
    trust_remote_code: Annotated[bool, option("trust_remote_code")] = False,
    as_json: Json = False,
) -> None:
    """Check what works on this machine; or whether demonstrations, a policy and an env can be used together.

    With any of them it shows side by side what each is and means by its numbers, marks what differs, says what is
    missing, and exits with 1 when they do not fit.

    Examples:
      besttake doctor
      besttake doctor --policy lerobot:org/pi0_libero --env libero:spatial
      besttake doctor --demos lerobot:org/libero --policy lerobot:org/pi0_libero --env libero:spatial
    """
    from besttake.reporting.terminal.doctor import render
    from besttake.verbs.doctor import doctor as look

    result = look(policy, env, demos, trust_remote_code=trust_remote_code)
    show(render(result), result.to_json(), as_json)
    if not result.healthy:
        raise typer.Exit(1)
