"""What `besttake score` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from besttake.reporting.numbers import estimate_plain, estimate_points, percent
from besttake.reporting.terminal.tables import notes, table

if TYPE_CHECKING:
    from besttake.verbs.score import ScoreResult


def render(result: ScoreResult) -> RenderableType:
    """How well the scorer picks in each cell, with 95 % intervals."""
    rows = [
        (
            f"{cell.policy}  {cell.group}", f"best of {cell.n}", percent(cell.success.value),
            estimate_points(cell.gain, ""), estimate_plain(cell.capture), estimate_plain(cell.auc),
        )
        for cell in result.cells
    ]  # fmt: skip
    head = ("policy / task", f"picked by {result.scorer}", "success", "gain over one take", "capture", "AUC")
    return Group(table(head, rows, right=("success",)), *notes(result.notes))
