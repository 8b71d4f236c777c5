"""The diagnosis for a terminal: a table to read at a glance, then one sentence per policy."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting import words
from besttake.reporting.terminal.tables import table
from besttake.result import Cell, Estimate, Result

_STYLES = {"act": "green", "open": "yellow", "rest": "dim"}


def verdict_table(result: Result, width: int = 200) -> Group:
    """Policies with their cells, and what each needs; a narrow terminal gets the columns that matter most."""
    columns = [(name, text) for name, least, text in _columns(result) if least <= width]
    numbers = [name for name, _ in columns]
    rows = []
    for policy in result.policies:
        own = [cell for cell in result.cells if cell.policy == policy.policy]
        for cell in (policy, *own) if len(own) > 1 else (policy,):
            pooled = cell is policy
            name = Text(_short(cell.policy, width) if pooled else f"  {cell.group}", style="bold" if pooled else "dim")
            rows.append((name, *(text(cell) for _, text in columns), _needs(cell)))
    grid = table(("policy / task", *numbers, "needs"), rows, right=numbers, fixed=("policy / task", *numbers))
    sentences: list[RenderableType] = [Text()]
    for policy in result.policies:
        if policy.verdict is not None:
            sentences.append(Text.assemble((policy.policy, "bold"), f": {words.headline(policy)}"))
            sentences += [Text(f"  {line}", style="dim") for line in words.menu_lines(policy, result.worth)]
            if warning := words.leak(policy):
                sentences.append(Text(f"  {warning}", style="yellow"))
        sentences += [Text(f"{policy.policy}: {note}", style="yellow") for note in policy.notes]
    return Group(grid, *sentences, *_relation(result), Text(_caption(result), style="dim"))


def undecided(result: Result) -> bool:
    """Whether any policy's verdict leaves a question open."""
    verdicts = [policy.verdict for policy in result.policies if policy.verdict is not None]
    return any(getattr(verdict, part).answer == "undecided" for verdict in verdicts for part in words.PARTS)


def _columns(result: Result) -> list[tuple[str, int, Callable[[Cell], Text]]]:
    """Each column's name, the width of the terminal from which it is shown, and its text."""
    n = max((cell.headroom.n if cell.headroom else cell.seeds for cell in result.cells), default=1)
    return [
        ("pass@1", 0, lambda c: _number(c.headroom and c.headroom.pass_1, 100)),
        (f"pass@{n}", 0, lambda c: _number(c.headroom and c.headroom.pass_n, 100)),
        ("select", 0, lambda c: _gain(c.chosen and c.chosen.gain)),
        ("shortest", 130, lambda c: _gain(c.selectors and c.selectors.shortest.gain)),
        ("cooled", 95, lambda c: _gain(_arm_gain(c, "cooled"))),
        ("retrieve", 110, lambda c: _gain(_arm_gain(c, "retrieve"))),
        ("content", 95, lambda c: _gain(c.arms and c.arms.content)),
        ("DFE/floor", 140, lambda c: _number(c.dfe and c.dfe.ratio, digits=2)),
    ]


def _arm_gain(cell: Cell, name: str) -> Estimate | None:
    arm = cell.arms.arms.get(name) if cell.arms else None
    return arm.gain if arm else None


def _needs(cell: Cell) -> Text:
    return Text(", ").join(Text(need.text, style=_STYLES[need.tone]) for need in words.needs(cell))


def _number(estimate: Estimate | None, scale: float = 1, digits: int = 0) -> Text:
    if estimate is None or estimate.value is None:
        return Text("-", style="dim")
    return Text(f"{scale * estimate.value:.{digits}f}")


def _gain(estimate: Estimate | None) -> Text:
    """A gain in points with its interval, bright when the interval leaves out zero."""
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return Text("-", style="dim")
    sure = estimate.low > 0 or estimate.high < 0
    text = Text(f"{100 * estimate.value:+.0f}", style="bold" if sure else "")
    return text.append(f" [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]", style="dim")


def _short(name: str, width: int) -> str:
    """A policy's name without its middle where it would take more than a quarter of the line."""
    most = max(20, width // 4)
    return name if len(name) <= most else f"{name[: most // 3]}…{name[-(most - most // 3 - 1) :]}"


def _relation(result: Result) -> list[RenderableType]:
    relation = result.relation
    ends, resampled = words.r_interval(relation)
    if relation.r is None or ends is None:
        return []
    span = f"[{ends[0]:.2f}, {ends[1]:.2f}] ({resampled})"
    return [Text(f"Gain against headroom over {relation.cells} cells: r = {relation.r:.2f} {span}")]


def _caption(result: Result) -> str:
    failed = f", {result.cost.errors} failed" if result.cost.errors else ""
    took = f"{result.cost.takes} takes{failed}, {sum(result.cost.seconds.values()):.0f} s"
    return f"success in %, gains in points with 95 % intervals; {took}"
