"""What `besttake probe` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.core.offline import Check
from besttake.reporting import checks
from besttake.reporting.terminal.tables import Column, stacked
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
    names, rows = [], []
    for line in checks.lines(check, intervals=width >= 170):
        style = "bold" if line.chosen else ""
        cells = (*line.cells, *[""] * (len(checks.COLUMNS) - 1 - len(line.cells)))
        names.append(Text(line.label, style=style))
        rows.append([Text(cell, style=style) for cell in cells])
    head, *titles = checks.COLUMNS
    by_column = zip(titles, zip(*rows, strict=True), strict=True)
    columns = [Column(title, texts, second=title != "error") for title, texts in by_column]
    return [stacked(head, names, columns[:-1], columns[-1], width), Text(checks.LEGEND, style="dim")]


def _fit(cells: Sequence[Cell], width: int) -> RenderableType:
    """Intervals are shown where the line is wide enough for them."""
    names, rows = [], []
    for cell in cells:
        pooled, probe = cell.group == "*", cell.dfe
        names.append(Text(cell.policy if pooled else f"{cell.policy}  {cell.group}", style="bold" if pooled else ""))
        if probe is None or probe.dfe.value is None:
            why = Text(probe.reason if probe else "not measured", style="yellow")
            rows.append([*[Text()] * (len(_NUMBERS) - 1), why])
            continue
        estimates = (probe.dfe, probe.floor, probe.ratio, probe.correlation, probe.spread)
        numbers = [_number(estimate, interval=width >= 140) for estimate in estimates]
        rows.append([*numbers, Text(str(probe.states))])
    by_column = zip(_NUMBERS, zip(*rows, strict=True), strict=True)
    columns = [Column(title, texts, second=title not in ("DFE", "floor")) for title, texts in by_column]
    return stacked("policy / task", names, columns[:-1], columns[-1], width) if rows else Text()


def _number(estimate: Estimate, *, interval: bool) -> Text:
    if estimate.value is None:
        return Text("-", style="dim")
    text = Text(f"{estimate.value:.3f}")
    if interval and estimate.low is not None and estimate.high is not None:
        text.append(f" [{estimate.low:.3f}, {estimate.high:.3f}]", style="dim")
    return text
