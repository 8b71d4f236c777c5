"""What `besttake verifiers` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from besttake.reporting.terminal.tables import notes, table
from besttake.reporting.verifiers import section

if TYPE_CHECKING:
    from besttake.verbs.verifiers import VerifierResult

_COLUMNS = (0, 2, 3, 4, 5, 7, 8)


def render(result: VerifierResult) -> RenderableType:
    """Every scorer on the window that verdicts read, best first, then the controls."""
    shown = section(result)
    rows = [tuple(row[i] for i in _COLUMNS) for row in shown["rows"]]
    return Group(table([shown["head"][i] for i in _COLUMNS], rows), *notes([*shown["summary"], *result.notes]))
