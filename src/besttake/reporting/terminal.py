"""Tables and sentences on a terminal: the one place that lays them out, a row of a table on one line if it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from besttake.reporting.table import Column, Table, worded

_STYLES = {"best": "bold", "better": "green", "worse": "red", "warn": "yellow", "none": "dim", "": ""}
_GAP = 2


@dataclass(frozen=True)
class Sentence:
    """A sentence under the ``name`` of what it is about; ``mark`` as in `Entry`. ``indent``: columns before it."""

    text: str
    mark: str = ""
    name: str = ""
    indent: int = 0


Part = Table | Sentence


def notes(lines: Sequence[str]) -> list[Part]:
    """Lines of lesser weight below a table."""
    return [Sentence(f"note: {line}", "none") for line in lines]


def layout(parts: Sequence[Part], width: int) -> RenderableType:
    """Parts one below the other on lines of ``width`` columns. Text is never read as markup."""
    return Group(*(_grid(part, width) if isinstance(part, Table) else _text(part) for part in parts))


def _text(part: Sentence) -> RenderableType:
    name = f"{part.name}: " if part.name and part.text else part.name
    text = Text.assemble((name, "bold"), (part.text, _STYLES[part.mark]))
    return Padding(text, (0, 0, 0, part.indent), expand=False) if part.indent else text


def _grid(table: Table, width: int) -> RenderableType:
    """A table without lines, less those of its `extra` columns for which there is no room, the last ones first."""
    columns = [Column(column) if isinstance(column, str) else column for column in table.columns]
    rows = [[worded(value) for value in row] for row in table.rows]
    widths = [
        max([cell_len(column.name), *(cell_len(row[i].text) for row in rows)]) for i, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    for i in reversed(range(len(columns))):
        if columns[i].extra and sum(widths[j] + _GAP for j in shown) - _GAP > width:
            shown.remove(i)
    head = any(column.name for column in columns)
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), show_header=head)
    for i in shown:
        # Folded, so that nothing is cut off.
        grid.add_column(Text(columns[i].name), justify="right" if columns[i].right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(row[i].text, style=_STYLES[row[i].mark]) for i in shown))
    return grid
