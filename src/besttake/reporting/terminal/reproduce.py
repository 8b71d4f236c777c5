"""What `besttake reproduce` prints: the paper's tables, alone and next to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import Value, table

if TYPE_CHECKING:
    from besttake.verbs.reproduce import Compared, Protocol, ReproduceResult

_MOST_COLUMNS = 9


def render_list(protocols: Sequence[Protocol]) -> RenderableType:
    """The tables that can be reproduced."""
    rows = [(Text(p.name, style="bold"), p.title, Text(", ".join(p.policies), style="dim")) for p in protocols]
    return table(("", "", ""), rows)


def render_protocol(protocol: Protocol) -> RenderableType:
    """The paper's numbers, the plan behind them, and the command that runs it."""
    grid = _grid(
        protocol,
        {
            row: [_number(n, column, protocol) for n, column in zip(numbers, protocol.columns, strict=True)]
            for row, numbers in protocol.paper.items()
        },
    )
    own = {"actions executed of a chunk": protocol.chunk, "frames of the library": protocol.frames}
    settings = {"env": list(protocol.envs.values()), **protocol.plan, **own}
    settings = {name: value for name, value in settings.items() if value is not None}
    plan = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None)
    run = f"besttake reproduce {protocol.name} --policy {protocol.policies[0]}=URI --demos URI -o runs/{protocol.name}"
    return Group(Text(protocol.title, style="bold"), grid, Text(), Text(plan.rstrip(), style="dim"), Text(), Text(run))


def render(result: ReproduceResult) -> RenderableType:
    """``paper / here [interval]`` in every place; then where the run deviates from the paper's protocol."""
    protocol, numbers = result.protocol, result.numbers
    names = dict.fromkeys(number.row for number in numbers)
    grid = _grid(protocol, {row: [_pair(number, protocol) for number in numbers if number.row == row] for row in names})
    legend = "paper / here with its 95 % interval; yellow where the paper's number lies outside it"
    without = dict.fromkeys(one.here.reason for one in numbers if one.here.value is not None and one.here.reason)
    if without:
        legend += f" ({'; '.join(without)})"
    differs = [Text(f"not as in the paper: {text}", style="yellow") for text in result.departures]
    return Group(Text(protocol.title, style="bold"), grid, Text(legend, style="dim"), *differs)


def _grid(protocol: Protocol, rows: Mapping[str, Sequence[Value]]) -> RenderableType:
    """The table as the paper prints it; turned on its side where it has too many columns for a terminal."""
    columns = protocol.columns
    if len(columns) <= _MOST_COLUMNS:
        return table(("", *columns), [(row, *values) for row, values in rows.items()], right=columns)
    turned = [(column, *(values[i] for values in rows.values())) for i, column in enumerate(columns)]
    return table(("", *rows), turned, right=tuple(rows))


def _pair(number: Compared, protocol: Protocol) -> Text:
    def shown(value: float | Sequence[float] | None) -> str:
        return _number(value, number.column, protocol)

    here, ends = number.here, number.paper_interval
    paper = shown(number.paper if number.paper is None or ends is None else (number.paper, *ends))
    if here.value is None:
        return Text(f"{paper} / none", style="dim")
    text = f"{paper} / {shown(here.value)}"
    if here.low is None or here.high is None:
        return Text(text)
    outside = number.paper is not None and not here.low <= number.paper <= here.high
    return Text(f"{text} [{shown(here.low)}, {shown(here.high)}]", style="yellow" if outside else "")


def _number(value: float | Sequence[float] | None, column: str, protocol: Protocol) -> str:
    if value is None:
        return ""
    if isinstance(value, Sequence):
        middle, *ends = (_number(one, column, protocol) for one in value)
        return f"{middle} [{', '.join(ends)}]"
    if column in protocol.counts:
        return f"{value:.0f}"
    return f"{value:.3f}" if column in protocol.unitless else f"{value + 0.0:.1f}"
