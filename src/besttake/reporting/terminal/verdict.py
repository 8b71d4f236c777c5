"""The diagnosis for a terminal: a table to read at a glance, then one sentence per policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from besttake.registry import Uri
from besttake.reporting import words
from besttake.reporting.numbers import sentence
from besttake.reporting.terminal.tables import Column, stacked
from besttake.result import Cell, Estimate, Result

_SHOWN = ("base", "cooled", "shuffled", "retrieve")
"""Arms that have a column of their own, or are controls of one; every other arm gets one, too."""
_STYLES = {"act": "green", "open": "yellow", "rest": "dim"}


def verdict_table(result: Result, width: int = 200) -> Group:
    """Policies with their cells, and what each needs; on a narrow terminal every row takes two lines."""
    cells: list[Cell] = []
    for policy in result.policies:
        own = [cell for cell in result.cells if cell.policy == policy.policy]
        cells += [policy, *own] if len(own) > 1 else [policy]
    names = [_name(cell, width) for cell in cells]
    needs = Column("needs", [_needs(cell) for cell in cells])
    grid: RenderableType = Text()
    for tight in (False, True) if cells else ():
        columns = [Column(name, list(map(text, cells)), second) for name, second, text in _columns(result, tight)]
        grid = stacked("policy / task", names, columns, needs, width)
        if isinstance(grid, Table):
            break
    sentences = [line for policy in result.policies for line in _sentences(policy)]
    rules = [Text(line, style="dim") for line in dict.fromkeys(map(words.rule, result.policies)) if line]
    return Group(grid, *sentences, Text(), *rules, *_relation(result), Text(_caption(result), style="dim"))


def _sentences(policy: Cell) -> list[RenderableType]:
    """What to do with a policy, and below it, indented, what else is worth knowing."""
    below = [Text(sentence(note), style="yellow") for note in policy.notes]
    if policy.verdict is None:
        return [Text(), Text(policy.policy, style="bold"), *map(_indented, below)] if below else []
    more = [Text(line, style="dim") for line in words.more(policy)]
    first = Text.assemble((policy.policy, "bold"), f": {words.headline(policy)}")
    return [Text(), first, *map(_indented, (*more, *below))]


def _indented(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 2), expand=False)


def undecided(result: Result) -> bool:
    """Whether any policy's verdict is open, or leaves a question open."""
    verdicts = [policy.verdict for policy in result.policies if policy.verdict is not None]
    return any("open" in (one.answer, *(answer.answer for answer in one.answers.values())) for one in verdicts)


def _columns(result: Result, tight: bool) -> list[tuple[str, bool, Callable[[Cell], Text]]]:
    """Each column's name, whether it stands in a second line where there is no room, and its text."""
    n = max((cell.headroom.n if cell.headroom else cell.seeds for cell in result.cells), default=1)
    gain = partial(_gain, tight=tight)
    arms = dict.fromkeys(arm for cell in result.cells if cell.arms for arm in cell.arms.arms)
    others = [arm for arm in arms if Uri.parse(arm).scheme not in _SHOWN]
    return [
        ("pass@1", False, lambda c: _number(c.headroom and c.headroom.pass_1, 100)),
        (f"pass@{n}", False, lambda c: _number(c.headroom and c.headroom.pass_n, 100)),
        ("select", True, lambda c: gain(c.chosen and c.chosen.gain)),
        ("shortest", True, lambda c: gain(c.selectors and c.selectors.shortest.gain)),
        ("cooled", True, lambda c: gain(_arm_gain(c, "cooled"))),
        ("retrieve", True, lambda c: gain(_arm_gain(c, "retrieve"))),
        ("content", True, lambda c: gain(c.arms and c.arms.content)),
        *((_short(arm, 80), True, lambda c, arm=arm: gain(_arm_gain(c, arm))) for arm in others),
        ("DFE/floor", False, lambda c: _number(c.dfe and c.dfe.ratio, digits=2)),
    ]


def _name(cell: Cell, width: int) -> Text:
    pooled = cell.group == "*"
    return Text(_short(cell.policy, width) if pooled else f"  {cell.group}", style="bold" if pooled else "dim")


def _arm_gain(cell: Cell, name: str) -> Estimate | None:
    arm = cell.arms.arms.get(name) if cell.arms else None
    return arm.gain if arm else None


def _needs(cell: Cell) -> Text:
    return Text(words.needs_text(cell), style=_STYLES[words.tone(cell)])


def _number(estimate: Estimate | None, scale: float = 1, digits: int = 0) -> Text:
    if estimate is None or estimate.value is None:
        return Text("-", style="dim")
    return Text(f"{scale * estimate.value:.{digits}f}")


def _gain(estimate: Estimate | None, tight: bool = False) -> Text:
    """A gain in points with its interval, bright when the interval leaves out zero; ``tight`` has no space in it."""
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return Text("-", style="dim")
    sure = estimate.low > 0 or estimate.high < 0
    value, low, high = (round(100 * end) for end in (estimate.value, estimate.low, estimate.high))
    text = Text(f"{value:+d}", style="bold" if sure else "")
    gap = "," if tight else ", "
    return text.append(f" [{low}{gap}{high}]", style="dim")


def _short(name: str, width: int) -> str:
    """A policy's name without its middle where it would take more than a quarter of the line."""
    most = max(20, width // 4)
    return name if len(name) <= most else f"{name[: most // 3]}…{name[-(most - most // 3 - 1) :]}"


def _relation(result: Result) -> list[RenderableType]:
    relation = result.relation
    if relation.r is None or relation.interval is None:
        return []
    span = f"[{relation.interval[0]:.2f}, {relation.interval[1]:.2f}] ({words.about_interval(relation)})"
    return [Text(f"Gain against headroom over {relation.cells} cells: r = {relation.r:.2f} {span}")]


def _caption(result: Result) -> str:
    failed = f", {result.cost.errors} failed" if result.cost.errors else ""
    took = f"{result.cost.takes} takes{failed}, {sum(result.cost.seconds.values()):.0f} s"
    return f"success in %, gains in points with 95 % intervals; content: retrieve minus cooled; {took}"
