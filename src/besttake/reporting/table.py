"""A table that can be written to pages, notebooks, Markdown, plain text and pandas.

`besttake.reporting.terminal` writes the same tables to a terminal; `besttake.reporting.result_tables` makes those of a
result.
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
    """The text of a table's cell, the value by which it is sorted, and its style.

    ``mark`` is "best" (stands out), "better", "worse", "warn", "none" (pale) or empty.
    """

    text: str
    mark: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table; on a terminal, ``extra`` columns are dropped if they do not fit."""

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
        """Return the table for a notebook: heading, the first rows, and notes."""
        hidden = len(self.rows[_MOST_ROWS:])
        notes = [*([f"{hidden} more rows"] if hidden else []), *self.notes]
        below = Markup("").join(Markup("<p>{}</p>").format(note) for note in notes)
        table = Markup("<table>{}</table>").format(self._inside(_MOST_ROWS))
        return str(Markup("<div><p><strong>{}</strong></p>{}{}</div>").format(self.heading, table, below))

    def section(self, style: str = "sortable", name: str = "") -> Markup:
        """Return all rows for a page; ``style`` is a class of its style sheet, ``name`` the element's id."""
        anchor = Markup(' id="{}"').format(name) if name else ""
        frame = Markup('<div class="scroll" tabindex="0" role="group" aria-label="table">{}</div>')
        return frame.format(Markup('<table class="{}"{}>{}</table>').format(style, anchor, self._inside(None)))

    def text(self) -> list[str]:
        """Return the rows as lines of plain text."""
        rows = [[printable(entry_of(value).text) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(text.ljust(wide) for text, wide in zip(row, widths, strict=True)).rstrip() for row in rows]

    def markdown(self) -> str:
        """Return the table in Markdown."""
        rows = [[markdown(entry_of(value).text) for value in row] for row in self.rows]
        lines = [[markdown(name) for name in self.names], ["---"] * len(self.columns), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def dataframe(self) -> Any:
        """Return all rows as a pandas DataFrame of plain values; ComponentError if pandas is not installed."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ComponentError("to_dataframe needs pandas, which is not installed: pip install pandas") from None
        return DataFrame([list(map(_plain_value, row)) for row in self.rows], columns=self.names)

    def _inside(self, most: int | None) -> Markup:
        names = Markup("").join(Markup("<th>{}</th>").format(name) for name in self.names)
        head = Markup("<thead><tr>{}</tr></thead>").format(names) if any(self.names) else ""
        rows = (Markup("<tr>{}</tr>").format(Markup("").join(map(_cell, row))) for row in self.rows[:most])
        return Markup("{}<tbody>{}</tbody>").format(head, Markup("").join(rows))


class Tabular:
    """A result that notebooks show as a table; subclasses make it in ``_table``."""

    def _table(self) -> Table:
        raise NotImplementedError

    @property
    def table(self) -> Table:
        """The result as a table, as the command prints it."""
        return self._table()

    def _repr_html_(self) -> str:
        return self._table().html()

    def to_json(self) -> str:
        """Return the result as JSON text; a subclass that is no dataclass has its own method."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)  # type: ignore[call-overload]

    def to_dataframe(self) -> Any:
        """Return the rows of the table as a pandas DataFrame, with fractions instead of percent; needs pandas."""
        return self._table().dataframe()


def entry_of(value: Any) -> Entry:
    """Make an entry of any value of a row."""
    if isinstance(value, Entry):
        return value
    if value is None:
        return Entry("")
    return Entry(f"{value:.4g}" if isinstance(value, float) else str(value))


def right(*names: str, extra: bool = False) -> list[Column]:
    """Make columns of numbers, aligned to the right."""
    return [Column(name, right=True, extra=extra) for name in names]


def in_percent(estimate: Estimate | None) -> Entry:
    """``64.2 % [58.1, 70.0]``; this and the next two show the reason if there is no value."""
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
    """Escape text for the page, and show an interval at its end in grey."""
    return Markup(_INTERVAL.sub(r' <span class="ci">\1</span>', str(escape(text))))


def _plain_value(value: Any) -> Any:
    """Return the number of an entry, else its text; None for a pale one."""
    if not isinstance(value, Entry):
        return value
    return (value.text if value.mark != "none" else None) if value.value is None else value.value


def _cell(value: Any) -> Markup:
    entry = entry_of(value)
    attributes = Markup(' class="{}"').format(entry.mark) if entry.mark else Markup("")
    attributes += Markup(' data-value="{}"').format(repr(entry.value)) if entry.value is not None else Markup("")
    return Markup("<td{}>{}</td>").format(attributes, with_interval(entry.text))
