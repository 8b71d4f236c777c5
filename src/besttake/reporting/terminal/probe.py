"""What `besttake probe` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import Value, table
from besttake.result import Cell, Estimate

_NUMBERS = ("DFE", "floor", "DFE/floor", "first action r", "spread", "states")


def render(cells: Sequence[Cell], width: int = 200) -> RenderableType:
    """The demonstration-fit error of each policy and cell; intervals where the line is wide enough for them."""
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
