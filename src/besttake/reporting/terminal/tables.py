"""The one look of every table and note that BestTake prints."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Value = str | int | Text
_NARROWEST = 28


def table(
    head: Sequence[str], rows: Iterable[Sequence[Value]], *, right: Container[str] = (), fixed: Container[str] = ()
) -> Table:
    """A table without lines. Values are never read as markup.

    Columns named in ``right`` are aligned to the right, those in ``fixed`` stay on one line.
    """
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(head))
    for name in head:
        # Folded, so that nothing is cut off.
        grid.add_column(
            Text(name), justify="right" if name in right else "left", no_wrap=name in fixed, overflow="fold"
        )
    for row in rows:
        grid.add_row(*(value if isinstance(value, Text) else Text(str(value)) for value in row))
    return grid


@dataclass(frozen=True)
class Column:
    """A column of numbers: a ``title``, and a text for each row. Of ``second`` ones there is room below the others."""

    title: str
    texts: Sequence[Text]
    second: bool = False

    @property
    def width(self) -> int:
        """What its widest text takes."""
        return max(len(self.title), *(text.cell_len for text in self.texts))


def stacked(head: str, names: Sequence[Text], columns: Sequence[Column], last: Column, width: int) -> RenderableType:
    """A table of one line per row where ``width`` allows it, else of two or more: no column is ever left out.

    A row's first line has its name, the columns that are not ``second``, and ``last``; the others stand below it.
    """
    label = Column(head, names)
    if label.width + sum(column.width + 2 for column in (*columns, last)) <= width:
        titles = [column.title for column in columns]
        rows = list(zip(names, *(column.texts for column in columns), last.texts, strict=True))
        return table((head, *titles, last.title), rows, right=titles, fixed=(head, *titles))
    below = [column for column in columns if column.second]
    each = max((column.width for column in below), default=0) + 2
    per_line = max(1, (width - 2) // each)
    lines: list[Text] = []
    for row in range(-1, len(names)):
        above = [Text(head, style="bold") if row < 0 else names[row].copy()]
        above[0].pad_right(max(0, label.width - above[0].cell_len))
        above += [_right(column, row, column.width + 1) for column in columns if not column.second]
        lines += _wrapped(Text.assemble(*above, "  "), _text(last, row), width)
        for first in range(0, len(below), per_line):
            line = Text.assemble("  ", *(_right(column, row, each) for column in below[first : first + per_line]))
            lines += [line] if line.plain.strip() else []
    return Group(*lines)


def _wrapped(first: Text, last: Text, width: int) -> list[Text]:
    """``last`` after ``first``; where it needs more lines, they stand below its beginning, or are indented a little."""
    room = width - first.cell_len
    indent = first.cell_len if room >= _NARROWEST else 6
    lines, line = [], first.copy()
    for word in last.split(" "):
        if line.cell_len + word.cell_len > width and line.plain.strip():
            lines.append(line)
            line = Text(" " * indent)
        line = Text.assemble(line, word, " ")
    line.rstrip()
    return [*lines, line]


def _text(column: Column, row: int) -> Text:
    return Text(column.title, style="bold") if row < 0 else column.texts[row]


def _right(column: Column, row: int, width: int) -> Text:
    text = _text(column, row).copy()
    text.pad_left(max(0, width - text.cell_len))
    return text


def notes(lines: Iterable[str]) -> list[Text]:
    """Lines of lesser weight below a table."""
    return [Text(f"note: {line}", style="dim") for line in lines]
