"""The paper's tables for a terminal, alone and beside a run."""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from rich.console import Group
from rich.table import Table
from rich.text import Text

from besttake.verbs.reproduce import FRACTIONS, Compared, Protocol


def listed(known: Sequence[Protocol]) -> Table:
    """The tables that there are."""
    grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for one in known:
        grid.add_row(Text(one.name, style="bold"), Text(one.title), Text(", ".join(one.policies), style="dim"))
    return grid


def protocol_text(table: Protocol) -> Group:
    """The paper's numbers, the plan behind them, and the command that runs it."""
    grid = _grid(table)
    for row, numbers in table.paper.items():
        grid.add_row(Text(row), *(Text(_number(n, column)) for n, column in zip(numbers, table.columns, strict=True)))
    plan = yaml.safe_dump({"env": list(table.envs.values()), **table.plan}, sort_keys=False, default_flow_style=None)
    run = f"besttake reproduce {table.name} --policy {table.policies[0]}=URI --demos URI -o runs/{table.name}"
    return Group(Text(table.title, style="bold"), grid, Text(), Text(plan.rstrip(), style="dim"), Text(), Text(run))


def beside(table: Protocol, found: Sequence[Compared], left: Sequence[str]) -> Group:
    """``paper / here [interval]`` in every place; then what was not done as in the paper."""
    grid = _grid(table)
    for row in dict.fromkeys(one.row for one in found):
        grid.add_row(Text(row), *(_pair(one) for one in found if one.row == row))
    notes = [Text("paper / here with its 95 % interval; yellow where the paper's number lies outside it", style="dim")]
    notes += [Text(f"not as in the paper: {text}", style="yellow") for text in left]
    return Group(Text(table.title, style="bold"), grid, *notes)


def _grid(table: Protocol) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("", no_wrap=True)
    for column in table.columns:
        grid.add_column(column, justify="right")
    return grid


def _pair(one: Compared) -> Text:
    here, column = one.here, one.column
    if here.value is None:
        return Text(f"{_number(one.paper, column)} / none", style="dim")
    text = f"{_number(one.paper, column)} / {_number(here.value, column)}"
    if here.low is None or here.high is None:
        return Text(text)
    outside = one.paper is not None and not here.low <= one.paper <= here.high
    interval = f" [{_number(here.low, column)}, {_number(here.high, column)}]"
    return Text(text + interval, style="yellow" if outside else "")


def _number(value: float | None, column: str) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if column in FRACTIONS else f"{value + 0.0:.1f}"
