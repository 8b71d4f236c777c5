"""What `besttake compare` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting import words
from besttake.reporting.figures import gain_headroom
from besttake.reporting.numbers import estimate_percent, estimate_plain, estimate_points
from besttake.reporting.terminal.tables import notes, table

if TYPE_CHECKING:
    from besttake.result import Cell, Estimate
    from besttake.verbs.compare import CompareResult


def render(result: CompareResult) -> RenderableType:
    """The relation in words, every cell, and the correlations of each policy."""
    relation = result.result.relation
    columns = ["run", "policy", "tasks", "starts", "headroom", "gain"]
    cells = []
    retrieved = [retrieved_pass_n(cell) for cell in result.result.cells]
    for run, cell, pass_n in zip(result.runs, result.result.cells, retrieved, strict=True):
        headroom, gain = (estimate_points(e) or "not known" for e in gain_headroom(cell))
        own = (estimate_percent(pass_n) or "not known",) if any(retrieved) else ()
        cells.append((run, cell.policy, cell.group, cell.starts, headroom, gain, *own))
    columns += ["retrieve's pass@N"] if any(retrieved) else []
    sentences = [*words.relation(relation), *words.across(result.across)]
    parts: list[RenderableType] = [Text(line) for line in sentences]
    parts += [Text(), table(columns, cells)]
    if relation.within:
        correlations = [
            (name, *(estimate_plain(r) or "undefined" for r in (within, relation.leave_one_out.get(name))))
            for name, within in relation.within.items()
        ]
        parts += [Text(), table(("policy", "r within", "r without it"), correlations)]
    return Group(*parts, *notes(result.result.notes))


def retrieved_pass_n(cell: Cell) -> Estimate | None:
    """pass@N of the arm `retrieve`; None where it was not run."""
    arm = cell.arms.arms.get("retrieve") if cell.arms is not None else None
    return arm.pass_n if arm is not None else None
