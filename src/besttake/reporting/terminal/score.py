"""What `besttake score` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.numbers import estimate_plain, estimate_points, percent
from besttake.reporting.terminal.tables import notes, table

if TYPE_CHECKING:
    from besttake.verbs.score import ScoreResult
    from besttake.verbs.train_scorer import TrainedScorer


def render(result: ScoreResult) -> RenderableType:
    """How well each scorer picks in each cell, with 95 % intervals."""
    rows = [
        (
            cell.scorer, f"{cell.policy}  {cell.group}", f"best of {cell.n}", percent(cell.success.value),
            estimate_points(cell.gain, ""), estimate_plain(cell.capture), estimate_plain(cell.auc),
        )
        for cell in result.cells
    ]  # fmt: skip
    head = ("scorer", "policy / task", "picked", "success", "gain over one take", "capture", "AUC")
    return Group(table(head, rows, right=("success",)), *notes(result.notes))


def render_trained(result: TrainedScorer) -> RenderableType:
    """What a classifier was trained on, and how to use it."""
    rows = [(task.task, str(task.takes), str(task.successes)) for task in result.tasks]
    use = Text(f"Use it with --scorer {result.uri}, on other starts.")
    return Group(table(("task", "takes", "successes"), rows, right=("takes", "successes")), use, *notes(result.notes))
