"""Results in a notebook: a heading with a small table as HTML, and the same rows as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from besttake.errors import ComponentError

_MOST_ROWS = 20


@dataclass(frozen=True)
class Table:
    """Numbers under a heading. Values are plain: fractions, counts, names, None where there is nothing."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    def html(self) -> str:
        """A small table without style of its own; long ones are cut."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row)}</tr>" for row in self.rows[:_MOST_ROWS]
        )
        hidden = len(self.rows) - _MOST_ROWS
        notes = [*([f"{hidden} more rows"] if hidden > 0 else []), *self.notes]
        below = "".join(f"<p>{escape(note)}</p>" for note in notes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p><strong>{escape(self.heading)}</strong></p>{table}{below}</div>"

    def dataframe(self) -> Any:
        """All rows as a pandas DataFrame; ComponentError where pandas is not installed."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ComponentError("to_dataframe needs pandas, which is not installed: pip install pandas") from None
        return DataFrame([list(row) for row in self.rows], columns=list(self.columns))


class Tabular:
    """A result that a notebook shows as a table: subclasses say which in ``_table``."""

    def _table(self) -> Table:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._table().html()

    def to_dataframe(self) -> Any:
        """The rows of the table as a pandas DataFrame, fractions as they are; needs pandas."""
        return self._table().dataframe()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
