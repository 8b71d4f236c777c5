"""The diagnosis for a terminal: a table to read at a glance, then one sentence per policy."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from besttake.result import Cell, Estimate, Result

_GOOD = {"select", "retrieve", "cool", "yes"}


def verdict_table(result: Result) -> Group:
    """Policies with their cells, and what each needs."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("policy / task")
    for name in (
        "pass@1",
        f"pass@{_seeds(result)}",
        "select",
        "shortest",
        "cooled",
        "retrieve",
        "content",
        "DFE/floor",
    ):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("needs")
    for policy in result.policies:
        grid.add_row(*_row(policy, Text(policy.policy, style="bold")))
        own = [cell for cell in result.cells if cell.policy == policy.policy]
        for cell in own if len(own) > 1 else ():
            grid.add_row(*_row(cell, Text(f"  {cell.group}", style="dim")))
    sentences: list[RenderableType] = [Text()]
    for policy in result.policies:
        if policy.verdict is not None:
            sentences.append(Text.assemble((policy.policy, "bold"), f": {policy.verdict.headline}"))
            if policy.verdict.leak:
                sentences.append(
                    Text("  Keeping the shortest take does as well: length gives success away.", style="yellow")
                )
        sentences += [Text(f"{policy.policy}: {note}", style="yellow") for note in policy.notes]
    return Group(grid, *sentences, *_relation(result), Text(_caption(result), style="dim"))


def undecided(result: Result) -> bool:
    """Whether any policy's verdict leaves a question open."""
    verdicts = [policy.verdict for policy in result.policies if policy.verdict is not None]
    return any("undecided" in (v.reuse.answer, v.retrieve.answer, v.combine.answer) for v in verdicts)


def _row(cell: Cell, name: Text) -> list[RenderableType]:
    head, picks, arms = cell.headroom, cell.selectors, cell.arms
    chosen = picks.scored[cell.scorer][cell.window].gain if picks else None
    cooled = arms.arms.get("cooled") if arms else None
    retrieved = arms.arms.get("retrieve") if arms else None
    return [
        name,
        _share(head.pass_1 if head else None),
        _share(head.pass_n if head else None),
        _gain(chosen),
        _gain(picks.shortest.gain if picks else None),
        _gain(cooled.gain if cooled else None),
        _gain(retrieved.gain if retrieved else None),
        _gain(arms.content if arms else None),
        _ratio(cell),
        _needs(cell),
    ]


def _needs(cell: Cell) -> Text:
    if cell.verdict is None:
        return Text("nothing measured", style="dim")
    answers = [cell.verdict.reuse.answer, cell.verdict.retrieve.answer]
    if cell.verdict.combine.answer == "yes":
        answers.append("combine")
    text = Text()
    for answer in answers:
        style = "green" if answer in _GOOD or answer == "combine" else "yellow" if answer == "undecided" else "dim"
        text.append(("" if not text else ", ") + answer, style=style)
    return text


def _share(value: Estimate | None) -> Text:
    return Text("-", style="dim") if value is None or value.value is None else Text(f"{100 * value.value:.0f}")


def _gain(value: Estimate | None) -> Text:
    """A gain in points with its interval, bright when the interval leaves out zero."""
    if value is None or value.value is None or value.low is None or value.high is None:
        return Text("-", style="dim")
    sure = value.low > 0 or value.high < 0
    told = Text(f"{100 * value.value:+.0f}", style="bold" if sure else "")
    return told.append(f" [{100 * value.low:.0f}, {100 * value.high:.0f}]", style="dim")


def _ratio(cell: Cell) -> Text:
    ratio = cell.dfe.ratio.value if cell.dfe else None
    return Text("-", style="dim") if ratio is None else Text(f"{ratio:.2f}")


def _relation(result: Result) -> list[RenderableType]:
    relation = result.relation
    if relation.r is None or relation.ci is None:
        return []
    return [
        Text(
            f"Gain against headroom over {relation.cells} cells: r = {relation.r:.2f}"
            f" [{relation.ci[0]:.2f}, {relation.ci[1]:.2f}]"
        )
    ]


def _caption(result: Result) -> str:
    cost = result.cost
    seconds = sum(cost.seconds.values())
    failed = f", {cost.errors} failed" if cost.errors else ""
    return f"success in %, gains in points with 95 % intervals; {cost.takes} takes{failed}, {seconds:.0f} s"


def _seeds(result: Result) -> int:
    return max((cell.seeds for cell in result.cells), default=1)
