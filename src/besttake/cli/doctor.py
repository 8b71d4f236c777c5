"""``besttake doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from besttake.cli.options import Json, show


def doctor(
    policy: Annotated[str | None, typer.Option(help="Also load this policy and show what it needs.")] = None,
    env: Annotated[str | None, typer.Option(help="Also open this env and show what it offers.")] = None,
    as_json: Json = False,
) -> None:
    """Check which extras, simulators and encoders work on this machine, and what to install for the rest.

    Examples:
      besttake doctor
      besttake doctor --policy lerobot:org/pi0_libero --env libero:spatial
    """
    from besttake.reporting.terminal.doctor import render
    from besttake.verbs.doctor import doctor as look

    result = look(policy, env)
    show(render(result), result.to_json(), as_json)
