"""What `besttake doctor` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import Value, notes, table

if TYPE_CHECKING:
    from besttake.verbs.doctor import DoctorResult, Fit


def render(result: DoctorResult) -> RenderableType:
    """Checks as a table; below it, whether the named policy and env fit."""
    rows: list[tuple[Value, ...]] = []
    group = ""
    for check in result.checks:
        if check.group != group:
            group = check.group
            rows.append(("", Text(group, style="bold"), "", ""))
        mark = Text("ok", style="green") if check.works else Text("no", style="yellow")
        rows.append((mark, check.name, check.found, check.mend))
    parts: list[RenderableType] = [table(("", "what", "found", "to mend it"), rows)]
    if result.fit is not None:
        parts += [Text(), *_fit(result.fit)]
    return Group(*parts)


def _fit(fit: Fit) -> list[RenderableType]:
    parts: list[RenderableType] = [table(("", fit.policy or "no policy", fit.env or "no env"), fit.lines)]
    if fit.problem:
        parts.append(Text(fit.problem, style="red"))
    elif fit.policy and fit.env:
        parts.append(Text("They fit.", style="green"))
    return [*parts, *notes(fit.notes)]
