"""What `besttake rank` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import table

if TYPE_CHECKING:
    from besttake.verbs.rank import RankResult


def render(result: RankResult) -> RenderableType:
    """Takes from best to worst, then the notes."""
    rows = [
        ("", take.name, Text(take.problem, style="red"), "")
        if take.place is None
        else (take.place, take.name, f"{take.score:.4f}", f"{take.scored} of {take.frames}")
        for take in result.takes
    ]
    grid = table(("place", "take", "score", "frames scored"), rows)
    return Group(grid, *(Text(note, style="dim") for note in result.notes))
