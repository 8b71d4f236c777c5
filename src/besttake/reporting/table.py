"""One table for every medium: columns, rows of worded cells, and writers for pages, notebooks, Markdown and pandas.

`besttake.reporting.terminal` writes the same tables to a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup, escape

from besttake.core.stats import Estimate
from besttake.errors import ComponentError
from besttake.reporting.numbers import estimate_percent, estimate_plain, estimate_points
from besttake.sanitize import markdown, printable

_MOST_ROWS = 20
_INTERVAL = re.compile(r"\s*(\[[^\[\]]*\])$")


@dataclass(frozen=True)
class Entry:
    """A worded cell of a table: its text, what it is sorted by, and how it is marked.

    ``mark`` is "best" (stands out), "better", "worse", "warn", "none" (nothing to see) or empty.
    """

    text: str
    mark: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """The name of a column. ``extra`` ones are left out where a line of the terminal has no room for them."""

    name: str
    right: bool = False
    extra: bool = False


Head = list[str | Column]


@dataclass(frozen=True)
class Table:
    """Rows under a heading. A value is an `Entry`, text, a number, or None where there is nothing."""

    heading: str
    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column if isinstance(column, str) else column.name for column in self.columns]

    def html(self) -> str:
        """The table in a notebook: heading, the first rows, and notes."""
        hidden = len(self.rows[_MOST_ROWS:])
        notes = [*([f"{hidden} more rows"] if hidden else []), *self.notes]
        below = Markup("").join(Markup("<p>{}</p>").format(note) for note in notes)
        table = Markup("<table>{}</table>").format(self._inside(_MOST_ROWS))
        return str(Markup("<div><p><strong>{}</strong></p>{}{}</div>").format(self.heading, table, below))

    def section(self, style: str = "sortable", name: str = "") -> Markup:
        """The table on a page, all rows of it, in the ``style`` of the page's style sheet."""
        own = Markup(' id="{}"').format(name) if name else ""
        frame = Markup('<div class="scroll" tabindex="0" role="group" aria-label="table">{}</div>')
        return frame.format(Markup('<table class="{}"{}>{}</table>').format(style, own, self._inside(None)))

    def text(self) -> list[str]:
        """The rows as lines of plain text, without their marks."""
        rows = [[printable(worded(value).text) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(text.ljust(wide) for text, wide in zip(row, widths, strict=True)).rstrip() for row in rows]

    def markdown(self) -> str:
        """The table in Markdown."""
        rows = [[markdown(entry.text) for entry in map(worded, row)] for row in self.rows]
        lines = [[markdown(name) for name in self.names], ["---"] * len(self.columns), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def dataframe(self) -> Any:
        """All rows as a pandas DataFrame, entries by their values; ComponentError where pandas is not installed."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ComponentError("to_dataframe needs pandas, which is not installed: pip install pandas") from None
        return DataFrame([list(map(_bare, row)) for row in self.rows], columns=self.names)

    def _inside(self, most: int | None) -> Markup:
        names = Markup("").join(Markup("<th>{}</th>").format(name) for name in self.names)
        head = Markup("<thead><tr>{}</tr></thead>").format(names) if any(self.names) else ""
        rows = (Markup("<tr>{}</tr>").format(Markup("").join(map(_cell, row))) for row in self.rows[:most])
        return Markup("{}<tbody>{}</tbody>").format(head, Markup("").join(rows))


class Tabular:
    """A result that a notebook shows as a table: subclasses say which in ``_table``."""

    def _table(self) -> Table:
        raise NotImplementedError

    @property
    def table(self) -> Table:
        """The result as a table, which the command prints as well."""
        return self._table()

    def _repr_html_(self) -> str:
        return self._table().html()

    def to_json(self) -> str:
        """The result as JSON text; subclasses are dataclasses, or say how they are written."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)  # type: ignore[call-overload]

    def to_dataframe(self) -> Any:
        """The rows of the table as a pandas DataFrame, fractions as they are; needs pandas."""
        return self._table().dataframe()


def worded(value: Any) -> Entry:
    """Any value of a row as an entry."""
    if isinstance(value, Entry):
        return value
    if value is None:
        return Entry("")
    return Entry(f"{value:.4g}" if isinstance(value, float) else str(value))


def right(*names: str, extra: bool = False) -> list[Column]:
    """Columns of numbers, aligned to the right."""
    return [Column(name, right=True, extra=extra) for name in names]


def in_percent(estimate: Estimate | None) -> Entry:
    """``64.2 % [58.1, 70.0]``, or why it is not known; so do its siblings."""
    return _estimate(estimate, estimate_percent(estimate))


def in_points(estimate: Estimate | None) -> Entry:
    """``+11.2 [8.0, 14.3]``."""
    return _estimate(estimate, estimate_points(estimate, ""))


def plain(estimate: Estimate | None) -> Entry:
    """``0.88 [0.61, 0.97]``."""
    return _estimate(estimate, estimate_plain(estimate))


def _estimate(estimate: Estimate | None, text: str) -> Entry:
    if text:
        return Entry(text, value=estimate.value if estimate else None)
    return Entry((estimate.reason if estimate else "") or "not measured", "none")


def with_interval(text: str) -> Markup:
    """Text for the page whose interval, where it ends with one, stands back."""
    return Markup(_INTERVAL.sub(r' <span class="ci">\1</span>', str(escape(text))))


def _bare(value: Any) -> Any:
    """A value without its words: what an entry is sorted by, else its text, None where there is nothing to see."""
    if not isinstance(value, Entry):
        return value
    return (value.text if value.mark != "none" else None) if value.value is None else value.value


def _cell(value: Any) -> Markup:
    entry = worded(value)
    own = Markup(' class="{}"').format(entry.mark) if entry.mark else Markup("")
    own += Markup(' data-value="{}"').format(repr(entry.value)) if entry.value is not None else Markup("")
    return Markup("<td{}>{}</td>").format(own, with_interval(entry.text))
