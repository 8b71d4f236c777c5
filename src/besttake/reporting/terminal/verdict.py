"""The diagnosis for a terminal: a table to read at a glance, then one sentence per policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from besttake.reporting import words
from besttake.result import Cell, Estimate, Result

_STYLES = {"act": "green", "open": "yellow", "rest": "dim"}


def verdict_table(result: Result, width: int = 200) -> Group:
    """Policies with their cells, and what each needs; a narrow terminal gets the columns that matter most."""
    columns = _columns(result)
    shown = [c for c in columns if c.least <= width]
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("policy / task", no_wrap=True)
    for column in shown:
        grid.add_column(column.name, justify=column.justify, no_wrap=column.justify == "right")
    for policy in result.policies:
        grid.add_row(Text(_short(policy.policy, width), style="bold"), *(c.of(policy) for c in shown))
        own = [cell for cell in result.cells if cell.policy == policy.policy]
        for cell in own if len(own) > 1 else ():
            grid.add_row(Text(f"  {cell.group}", style="dim"), *(c.of(cell) for c in shown))
    sentences: list[RenderableType] = [Text()]
    for policy in result.policies:
        if policy.verdict is not None:
            sentences.append(Text.assemble((policy.policy, "bold"), f": {words.headline(policy)}"))
            if warning := words.leak(policy):
                sentences.append(Text(f"  {warning}", style="yellow"))
        sentences += [Text(f"{policy.policy}: {note}", style="yellow") for note in policy.notes]
    return Group(grid, *sentences, *_relation(result), Text(_caption(result), style="dim"))


def _short(name: str, width: int) -> str:
    """A policy's name without its middle where it would take more than a quarter of the line."""
    most = max(20, width // 4)
    return name if len(name) <= most else f"{name[: most // 3]}…{name[-(most - most // 3 - 1) :]}"


def undecided(result: Result) -> bool:
    """Whether any policy's verdict leaves a question open."""
    verdicts = [policy.verdict for policy in result.policies if policy.verdict is not None]
    return any("undecided" in (v.reuse.answer, v.retrieve.answer, v.combine.answer) for v in verdicts)


def probe_table(cells: Sequence[Cell], width: int = 200) -> Table:
    """The demonstration-fit error of each policy and cell; intervals where there is room for them."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("policy / task", no_wrap=True)
    for name in ("DFE", "floor", "DFE/floor", "first action r", "spread", "states"):
        grid.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        name = cell.policy if cell.group == "*" else f"{cell.policy}  {cell.group}"
        probe = cell.dfe
        if probe is None or probe.dfe.value is None:
            grid.add_row(Text(name), Text(probe.reason if probe else "not measured", style="yellow"))
            continue
        numbers = (probe.dfe, probe.floor, probe.ratio, probe.correlation, probe.spread)
        style = "bold" if cell.group == "*" else ""
        texts = (_number(number, width >= 140) for number in numbers)
        grid.add_row(Text(name, style=style), *texts, str(probe.states))
    return grid


@dataclass(frozen=True)
class _Column:
    """A column, shown when the terminal is at least ``least`` wide."""

    name: str
    of: Callable[[Cell], Text]
    least: int = 0
    justify: Literal["left", "right"] = "right"


def _columns(result: Result) -> list[_Column]:
    def gain(pick: Callable[[Cell], Estimate | None]) -> Callable[[Cell], Text]:
        return lambda cell: _gain(pick(cell))

    return [
        _Column("pass@1", lambda c: _percent(c.headroom.pass_1 if c.headroom else None)),
        _Column(f"pass@{_kept_of(result)}", lambda c: _percent(c.headroom.pass_n if c.headroom else None)),
        _Column("select", gain(lambda c: c.selectors.scored[c.scorer][c.window].gain if c.selectors else None)),
        _Column("shortest", gain(lambda c: c.selectors.shortest.gain if c.selectors else None), 130),
        _Column("cooled", gain(lambda c: _arm_gain(c, "cooled")), 95),
        _Column("retrieve", gain(lambda c: _arm_gain(c, "retrieve")), 110),
        _Column("content", gain(lambda c: c.arms.content if c.arms else None), 95),
        _Column("DFE/floor", _ratio, 140),
        _Column("needs", _needs, 0, "left"),
    ]


def _arm_gain(cell: Cell, name: str) -> Estimate | None:
    arm = cell.arms.arms.get(name) if cell.arms else None
    return arm.gain if arm else None


def _number(value: Estimate, interval: bool) -> Text:
    if value.value is None:
        return Text("-", style="dim")
    text = Text(f"{value.value:.3f}")
    if interval and value.low is not None and value.high is not None:
        text.append(f" [{value.low:.3f}, {value.high:.3f}]", style="dim")
    return text


def _needs(cell: Cell) -> Text:
    return Text(", ").join(Text(need.text, style=_STYLES[need.tone]) for need in words.needs(cell))


def _percent(value: Estimate | None) -> Text:
    return Text("-", style="dim") if value is None or value.value is None else Text(f"{100 * value.value:.0f}")


def _gain(value: Estimate | None) -> Text:
    """A gain in points with its interval, bright when the interval leaves out zero."""
    if value is None or value.value is None or value.low is None or value.high is None:
        return Text("-", style="dim")
    sure = value.low > 0 or value.high < 0
    text = Text(f"{100 * value.value:+.0f}", style="bold" if sure else "")
    return text.append(f" [{100 * value.low:.0f}, {100 * value.high:.0f}]", style="dim")


def _ratio(cell: Cell) -> Text:
    ratio = cell.dfe.ratio.value if cell.dfe else None
    return Text("-", style="dim") if ratio is None else Text(f"{ratio:.2f}")


def _relation(result: Result) -> list[RenderableType]:
    relation = result.relation
    ends, resampled = words.r_interval(relation)
    if relation.r is None or ends is None:
        return []
    span = f"[{ends[0]:.2f}, {ends[1]:.2f}] ({resampled})"
    return [Text(f"Gain against headroom over {relation.cells} cells: r = {relation.r:.2f} {span}")]


def _caption(result: Result) -> str:
    cost = result.cost
    seconds = sum(cost.seconds.values())
    failed = f", {cost.errors} failed" if cost.errors else ""
    return f"success in %, gains in points with 95 % intervals; {cost.takes} takes{failed}, {seconds:.0f} s"


def _kept_of(result: Result) -> int:
    return max((cell.headroom.n if cell.headroom else cell.seeds for cell in result.cells), default=1)
