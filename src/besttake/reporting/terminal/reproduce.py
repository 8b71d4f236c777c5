"""What `besttake reproduce` prints: the paper's tables, alone and next to a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import Value, table

if TYPE_CHECKING:
    from besttake.verbs.reproduce import Compared, Protocol, ReproduceResult

_FRACTIONS = ("DFE", "first action r", "r", "Spearman", "r on disjoint halves", "capture", "sd of capture")
"""Columns that the paper does not print in percent or points."""


def render_list(protocols: Sequence[Protocol]) -> RenderableType:
    """The tables that can be reproduced."""
    rows = [(Text(p.name, style="bold"), p.title, Text(", ".join(p.policies), style="dim")) for p in protocols]
    return table(("", "", ""), rows)


def render_protocol(protocol: Protocol) -> RenderableType:
    """The paper's numbers, the plan behind them, and the command that runs it."""
    rows = [
        (row, *(_number(n, column) for n, column in zip(numbers, protocol.columns, strict=True)))
        for row, numbers in protocol.paper.items()
    ]
    grid = table(("", *protocol.columns), rows, right=protocol.columns)
    settings = {"env": list(protocol.envs.values()), **protocol.plan}
    plan = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None)
    run = f"besttake reproduce {protocol.name} --policy {protocol.policies[0]}=URI --demos URI -o runs/{protocol.name}"
    return Group(Text(protocol.title, style="bold"), grid, Text(), Text(plan.rstrip(), style="dim"), Text(), Text(run))


def render(result: ReproduceResult) -> RenderableType:
    """``paper / here [interval]`` in every place; then where the run deviates from the paper's protocol."""
    protocol, numbers = result.protocol, result.numbers
    rows: list[tuple[Value, ...]] = [
        (row, *(_pair(number) for number in numbers if number.row == row))
        for row in dict.fromkeys(number.row for number in numbers)
    ]
    grid = table(("", *protocol.columns), rows, right=protocol.columns)
    legend = "paper / here with its 95 % interval; yellow where the paper's number lies outside it"
    differs = [Text(f"not as in the paper: {text}", style="yellow") for text in result.departures]
    return Group(Text(protocol.title, style="bold"), grid, Text(legend, style="dim"), *differs)


def _pair(number: Compared) -> Text:
    here, paper = number.here, _number(number.paper, number.column)
    if here.value is None:
        return Text(f"{paper} / none", style="dim")
    text = f"{paper} / {_number(here.value, number.column)}"
    if here.low is None or here.high is None:
        return Text(text)
    outside = number.paper is not None and not here.low <= number.paper <= here.high
    interval = f" [{_number(here.low, number.column)}, {_number(here.high, number.column)}]"
    return Text(text + interval, style="yellow" if outside else "")


def _number(value: float | None, column: str) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if column in _FRACTIONS else f"{value + 0.0:.1f}"
