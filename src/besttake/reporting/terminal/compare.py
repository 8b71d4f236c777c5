"""What `besttake compare` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting import words
from besttake.reporting.figures import gain_headroom
from besttake.reporting.numbers import estimate_plain, estimate_points
from besttake.reporting.terminal.tables import notes, table

if TYPE_CHECKING:
    from besttake.verbs.compare import CompareResult


def render(result: CompareResult) -> RenderableType:
    """The relation in words, every cell, and the correlations of each policy."""
    relation = result.result.relation
    cells = []
    for run, cell in zip(result.runs, result.result.cells, strict=True):
        headroom, gain = (estimate_points(e) or "not known" for e in gain_headroom(cell))
        cells.append((run, cell.policy, cell.group, cell.starts, headroom, gain))
    parts: list[RenderableType] = [Text(line) for line in words.relation(relation)]
    parts += [Text(), table(("run", "policy", "tasks", "starts", "headroom", "gain"), cells)]
    if relation.within:
        correlations = [
            (name, *(estimate_plain(r) or "undefined" for r in (within, relation.leave_one_out.get(name))))
            for name, within in relation.within.items()
        ]
        parts += [Text(), table(("policy", "r within", "r without it"), correlations)]
    return Group(*parts, *notes(result.result.notes))
