"""The one look of every table and note that BestTake prints."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from rich.table import Table
from rich.text import Text

Value = str | int | Text


def table(
    head: Sequence[str], rows: Iterable[Sequence[Value]], *, right: Container[str] = (), fixed: Container[str] = ()
) -> Table:
    """A table without lines. Values are never read as markup.

    Columns named in ``right`` are aligned to the right, those in ``fixed`` stay on one line.
    """
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(head))
    for name in head:
        grid.add_column(Text(name), justify="right" if name in right else "left", no_wrap=name in fixed)
    for row in rows:
        grid.add_row(*(value if isinstance(value, Text) else Text(str(value)) for value in row))
    return grid


def notes(lines: Iterable[str]) -> list[Text]:
    """Lines of lesser weight below a table."""
    return [Text(f"note: {line}", style="dim") for line in lines]
