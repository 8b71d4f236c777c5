"""What `besttake compare` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting import changes as changed
from besttake.reporting import words
from besttake.reporting.figures import gain_headroom
from besttake.reporting.numbers import estimate_percent, estimate_plain, estimate_points
from besttake.reporting.terminal.tables import Column, notes, stacked, table

if TYPE_CHECKING:
    from besttake.result import Cell, Estimate
    from besttake.verbs.compare import CompareResult

_STYLES = {"better": "green", "worse": "red", "": "dim"}


def render(result: CompareResult, width: int = 200) -> RenderableType:
    """The relation in words, every cell, and the correlations of each policy."""
    relation = result.result.relation
    parts = _changes(result, width)
    # Of two runs one wants to know what changed; too few cells for a relation are not worth a line there.
    related = not result.changes or relation.r is not None
    if related:
        parts += [*(Text(line) for line in (*words.relation(relation), *words.across(result.across))), Text()]
    parts.append(_cells(result, width))
    if related and relation.within:
        correlations = [
            (name, *(estimate_plain(r) or "undefined" for r in (within, relation.leave_one_out.get(name))))
            for name, within in relation.within.items()
        ]
        parts += [Text(), table(("policy", "r within", "r without it"), correlations)]
    return Group(*parts, *notes(result.result.notes))


def _cells(result: CompareResult, width: int) -> RenderableType:
    """Every cell of every run."""
    cells = result.result.cells
    if not cells:
        return Text()
    retrieved = [retrieved_pass_n(cell) for cell in cells]
    headroom, gain = zip(*map(gain_headroom, cells), strict=True)
    columns = [
        _column("starts", (str(cell.starts) for cell in cells)),
        _column("headroom", (estimate_points(e) or "not known" for e in headroom), second=True),
        _column("gain", (estimate_points(e) or "not known" for e in gain), second=True),
    ]
    last = _column("retrieve's pass@N", (estimate_percent(e) or "not known" for e in retrieved))
    if not any(retrieved):
        last = columns.pop()
    names = [Text(f"{run}  {cell.policy}  {cell.group}") for run, cell in zip(result.runs, cells, strict=True)]
    return stacked("run / policy / tasks", names, columns, last, width)


def _changes(result: CompareResult, width: int) -> list[RenderableType]:
    """What changed between two runs, a line per cell, arm and number, or two where there is no room for one."""
    changes = result.changes
    if not changes:
        return []
    names = [Text(f"{changed.names(one)}  {one.group}  {one.arm} {one.number}") for one in changes]
    columns = [
        _column("first run", (estimate_percent(one.before) for one in changes), second=True),
        _column("second run", (estimate_percent(one.after) for one in changes), second=True),
        _column("change", (estimate_points(one.change, "") or one.change.reason for one in changes), second=True),
        Column("shown", [Text(one.shown or "open", style=_STYLES[one.shown]) for one in changes]),
    ]
    return [
        stacked("policy / task / of", names, columns, _column("starts", map(changed.starts, changes)), width),
        Text("changes in points with 95 % intervals, start by start where shared\n", style="dim"),
    ]


def _column(title: str, texts: Iterable[str], *, second: bool = False) -> Column:
    return Column(title, [Text(text) for text in texts], second)


def retrieved_pass_n(cell: Cell) -> Estimate | None:
    """pass@N of the arm `retrieve`; None where it was not run."""
    arm = cell.arms.arms.get("retrieve") if cell.arms is not None else None
    return arm.pass_n if arm is not None else None
