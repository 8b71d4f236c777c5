"""What `besttake library tune` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import table

if TYPE_CHECKING:
    from besttake.verbs.tune import Tuned


def render(tuned: Tuned) -> RenderableType:
    """What was tried, best first; the chosen configuration stands out."""
    rows = [
        (
            Text(trial.name, style="bold" if trial.config == tuned.config else ""),
            f"{100 * trial.success:.1f} %",
            f"{trial.offline:.2f}",
        )
        for trial in tuned.trials
    ]
    return table(("tried", "success on tuning starts", "error on held-out demos"), rows)
