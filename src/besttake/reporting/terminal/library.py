"""What `besttake library build` and `besttake library show` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import table

if TYPE_CHECKING:
    from besttake.demos.library import Library


def render(library: Library) -> RenderableType:
    """Every demonstration with its events."""
    rows = [(d.id, d.task, d.length, ", ".join(map(str, d.events.tolist()))) for d in library.demos]
    return table(("demo", "task", "steps", "events at"), rows)


def render_built(directory: object, summary: Mapping[str, Any]) -> RenderableType:
    """How much a new library holds, and what was left out."""
    text = Text(
        f"{directory}: {summary['demos']} demonstrations, {summary['frames']} frames, {summary['events']} events"
    )
    for bad in summary["left_out"]:
        text.append(f"\nleft out {bad['id']}: {bad['reason']}", style="yellow")
    return text
