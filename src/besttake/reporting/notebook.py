"""Results in a notebook: a heading with a small table as HTML, and the same rows as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from besttake.errors import ComponentError
from besttake.reporting.figures import gain_headroom
from besttake.reporting.numbers import estimate_points, percent
from besttake.reporting.words import headline, needs_text, overview

if TYPE_CHECKING:
    from besttake.result import Result

_MOST_ROWS = 20
_MOST_SENTENCES = 5


@dataclass(frozen=True)
class Table:
    """Numbers under a heading. Values are plain: fractions, counts, names, None where there is nothing."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()
    most_rows: int | None = _MOST_ROWS

    def html(self) -> str:
        """A small table without style of its own, cut after ``most_rows`` rows (None: never)."""
        shown = self.rows[: self.most_rows]
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row)}</tr>" for row in shown)
        hidden = len(self.rows) - len(shown)
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


def verdict_table(result: Result) -> Table:
    """What each policy needs, with the sentence to read first."""
    rows = [
        (
            cell.policy, cell.starts, percent(cell.headroom.pass_1.value) if cell.headroom else "",
            *map(estimate_points, gain_headroom(cell)), needs_text(cell),
        )
        for cell in result.policies
    ]  # fmt: skip
    sentences = [f"{cell.policy}: {headline(cell)}" for cell in result.policies[:_MOST_SENTENCES]]
    return Table(overview(result), ("policy", "starts", "pass@1", "headroom", "gain", "needs"), rows, sentences)


def cell_table(result: Result) -> Table:
    """The main numbers of every cell and, with tasks ``*``, of every policy; each estimate with its interval."""
    names = ("pass_1", "pass_n", "headroom", "gain", "cooled", "retrieve", "content", "combine")
    columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    rows = []
    for cell in (*result.cells, *result.policies):
        arms = cell.arms.arms if cell.arms else {}
        estimates = (
            cell.headroom and cell.headroom.pass_1, cell.headroom and cell.headroom.pass_n, *gain_headroom(cell),
            *(arms[name].gain if name in arms else None for name in ("cooled", "retrieve")),
            cell.arms and cell.arms.content, cell.arms and cell.arms.combine,
        )  # fmt: skip
        numbers = [number for e in estimates for number in ((e.value, e.low, e.high) if e else (None, None, None))]
        rows.append((cell.policy, cell.env, cell.group, cell.starts, cell.takes, *numbers, needs_text(cell)))
    return Table(overview(result), ("policy", "env", "tasks", "starts", "takes", *columns, "needs"), rows)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
