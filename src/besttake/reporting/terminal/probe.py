"""What `besttake probe` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.core.offline import Check
from besttake.reporting import checks
from besttake.reporting.terminal.tables import Value, table
from besttake.result import Cell, Estimate

_NUMBERS = ("DFE", "floor", "DFE/floor", "first action r", "spread", "states")


def render(cells: Sequence[Cell], tried: Mapping[str, Check], width: int = 200) -> RenderableType:
    """The demonstration-fit error of each policy and cell, and the check of retrieval for each policy."""
    parts: list[RenderableType] = [_fit(cells, width)]
    for uri, check in tried.items():
        parts += ["", Text(f"{uri}: {checks.sentence(check)}", style="bold"), *check_table(check, width)]
    return Group(*parts)


def check_table(check: Check, width: int) -> list[RenderableType]:
    """The check as a table, what was chosen in bold, with a legend."""
    if check.reason:
        return []
    rows = []
    for line in checks.lines(check, intervals=width >= 170):
        style = "bold" if line.chosen else ""
        cells = (*line.cells, *[""] * (len(checks.COLUMNS) - 1 - len(line.cells)))
        rows.append((Text(line.label, style=style), *(Text(cell, style=style) for cell in cells)))
    return [
        table(checks.COLUMNS, rows, right=checks.COLUMNS[1:], fixed=checks.COLUMNS),
        Text(checks.LEGEND, style="dim"),
    ]


def _fit(cells: Sequence[Cell], width: int) -> RenderableType:
    """Intervals are shown where the line is wide enough for them."""
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        name = cell.policy if cell.group == "*" else f"{cell.policy}  {cell.group}"
        probe = cell.dfe
        if probe is None or probe.dfe.value is None:
            rows.append((name, Text(probe.reason if probe else "not measured", style="yellow")))
            continue
        estimates = (probe.dfe, probe.floor, probe.ratio, probe.correlation, probe.spread)
        numbers = [_number(estimate, interval=width >= 140) for estimate in estimates]
        rows.append((Text(name, style="bold" if cell.group == "*" else ""), *numbers, probe.states))
    return table(("policy / task", *_NUMBERS), rows, right=_NUMBERS, fixed=("policy / task", *_NUMBERS))


def _number(estimate: Estimate, *, interval: bool) -> Text:
    if estimate.value is None:
        return Text("-", style="dim")
    text = Text(f"{estimate.value:.3f}")
    if interval and estimate.low is not None and estimate.high is not None:
        text.append(f" [{estimate.low:.3f}, {estimate.high:.3f}]", style="dim")
    return text
