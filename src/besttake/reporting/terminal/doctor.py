"""What `besttake doctor` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import Value, notes, table

if TYPE_CHECKING:
    from besttake.conventions import Line
    from besttake.verbs.doctor import DoctorResult, Pairing


_TASKS = "tasks"


def render(result: DoctorResult) -> RenderableType:
    """Checks as a table; below it, whether the named demonstrations, policy and env fit."""
    rows: list[tuple[Value, ...]] = []
    group = ""
    # Who asks about parts has no use for a list of what works.
    shown = [check for check in result.checks if result.pairing is None or not check.works]
    for check in shown:
        if check.group != group:
            group = check.group
            rows.append(("", Text(group, style="bold"), "", ""))
        mark = Text("ok", style="green") if check.works else Text("no", style="yellow")
        rows.append((mark, check.name, check.detail, check.mend))
    parts: list[RenderableType] = [table(("", "what", "detail", "remedy"), rows)] if rows else []
    return Group(*parts, *(_pairing(result.pairing) if result.pairing is not None else ()))


def _pairing(pairing: Pairing) -> list[RenderableType]:
    """Names and lists of tasks are long: they stand above and below the table, whose columns stay narrow."""
    sides = (("demonstrations", pairing.demos), ("policy", pairing.policy), ("env", pairing.env))
    kinds = {kind: name for kind, name in sides if name}
    lines = [line for line in pairing.lines if any(pairing.sides(line))]
    rows: list[tuple[Value, ...]] = [_row(pairing, line) for line in lines if line.what != _TASKS]
    known = [line for line in pairing.conventions if {*pairing.sides(line)} - {"unknown", ""}]
    rows.append((Text("conventions", style="bold"), *("" for _ in kinds)))
    rows += [_row(pairing, line) for line in known]
    parts: list[RenderableType] = [Text.assemble((f"{kind} ", "bold"), name) for kind, name in kinds.items()]
    parts.append(table(("", *kinds), rows))
    for line in (line for line in lines if line.what == _TASKS):
        told = zip(kinds, pairing.sides(line), strict=True)
        parts += [Text(f"{_TASKS}, {kind}: {names}") for kind, names in told if names]
    parts += [Text(problem, style="red") for problem in pairing.problems]
    if not pairing.problems and len(pairing.named) > 1:
        parts.append(Text("They fit.", style="green"))
    asked = [line for line in pairing.conventions if line.compared and len(pairing.named) > 1]
    unsettled = [line.what for line in asked if "unknown" in pairing.sides(line)]
    unknown = [f"not known of all of them, so not compared: {', '.join(unsettled)}"] if unsettled else []
    return [*parts, *notes([*unknown, *pairing.notes])]


def _row(pairing: Pairing, line: Line) -> tuple[Value, ...]:
    """What differs is marked, in words as well as in colour."""
    style = "red" if line.differs else ""
    what = f"{line.what} (DIFFERS)" if line.differs else line.what
    return (Text(what, style=style), *(Text(side, style=style) for side in pairing.sides(line)))
