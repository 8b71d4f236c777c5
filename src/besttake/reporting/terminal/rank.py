"""What `besttake rank` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import Value, notes, table

if TYPE_CHECKING:
    from besttake.verbs.ranked import RankResult


def render(result: RankResult) -> RenderableType:
    """What was compared, takes from best to worst, then the notes."""
    rows: list[tuple[Value, ...]] = []
    for take in result.takes:
        if take.place is None:
            rows.append(("", take.name, Text(take.problem, style="red"), "", ""))
            continue
        error = f" ± {take.error:.4f}" if take.error is not None else ""
        tied = sum(other.place == take.place for other in result.takes) > 1
        place = f"{take.place}{' (tied)' if tied else ''}"
        unlike = Text(take.unlike, style="yellow")
        rows.append((place, take.name, f"{take.score:.4f}{error}", f"{take.scored} of {take.frames}", unlike))
    about = Text(f"by {result.scorer} on the window {result.window}, frames embedded by {result.encoder}")
    grid = table(("place", "take", "score", "frames scored", ""), rows)
    return Group(about, grid, *notes(result.notes))
