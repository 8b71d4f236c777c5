"""What `besttake score` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from besttake.reporting.numbers import interval, number, percent, points
from besttake.reporting.terminal.tables import notes, table

if TYPE_CHECKING:
    from besttake.core.estimate import Estimate
    from besttake.verbs.score import ScoreResult


def render(result: ScoreResult) -> RenderableType:
    """How well the scorer picks in each cell, with 95 % intervals."""

    def fraction(estimate: Estimate) -> str:
        return f"{number(estimate.value, 2)} {interval(estimate.low, estimate.high, digits=2)}".strip()

    rows = [
        (
            f"{cell.policy}  {cell.group}", f"best of {cell.n}", percent(cell.success.value),
            f"{points(cell.gain.value)} {interval(cell.gain.low, cell.gain.high, scale=100)}".strip(),
            fraction(cell.capture), fraction(cell.auc),
        )
        for cell in result.cells
    ]  # fmt: skip
    head = ("policy / task", f"picked by {result.scorer}", "success", "gain over one take", "capture", "AUC")
    return Group(table(head, rows, right=("success",)), *notes(result.notes))
