"""What `besttake doctor` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import Value, notes, table

if TYPE_CHECKING:
    from besttake.verbs.doctor import DoctorResult, Pairing


def render(result: DoctorResult) -> RenderableType:
    """Checks as a table; below it, whether the named policy and env fit."""
    rows: list[tuple[Value, ...]] = []
    group = ""
    for check in result.checks:
        if check.group != group:
            group = check.group
            rows.append(("", Text(group, style="bold"), "", ""))
        mark = Text("ok", style="green") if check.works else Text("no", style="yellow")
        rows.append((mark, check.name, check.detail, check.mend))
    parts: list[RenderableType] = [table(("", "what", "detail", "remedy"), rows)]
    if result.pairing is not None:
        parts += [Text(), *_pairing(result.pairing)]
    return Group(*parts)


def _pairing(pairing: Pairing) -> list[RenderableType]:
    parts: list[RenderableType] = [table(("", pairing.policy or "no policy", pairing.env or "no env"), pairing.lines)]
    if pairing.problem:
        parts.append(Text(pairing.problem, style="red"))
    elif pairing.policy and pairing.env:
        parts.append(Text("They fit.", style="green"))
    return [*parts, *notes(pairing.notes)]
