import sys
import types
from typing import Any

import pytest

from besttake.errors import ComponentError
from besttake.reporting.table import Entry, Table, Tabular


class Result(Tabular):
    def _table(self) -> Table:
        return Table("<b>2</b> takes", ("name", "score"), [("<i>a</i>", 0.123456), ("b", None)], ("one & only",))


def test_a_notebook_shows_a_heading_a_table_and_notes_all_escaped() -> None:
    html = Result()._repr_html_()
    assert "&lt;b&gt;2&lt;/b&gt; takes" in html
    assert "<td>&lt;i&gt;a&lt;/i&gt;</td><td>0.1235</td>" in html
    assert "<td>b</td><td></td>" in html
    assert "one &amp; only" in html


def test_a_page_and_markdown_show_the_same_cells_escaped() -> None:
    table = Table("", ("<n>", "gain"), [("a|b", Entry("+1.5 [<0, 3]", "worse", 0.015))])
    page = str(table.section(name="x"))
    assert "<th>&lt;n&gt;</th>" in page
    assert '<td class="worse" data-value="0.015">+1.5 <span class="ci">[&lt;0, 3]</span></td>' in page
    assert table.markdown().splitlines()[2].startswith("| a\\|b | +1.5")


def test_a_dataframe_has_every_row_with_its_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    pandas = types.SimpleNamespace(DataFrame=lambda rows, columns: made.update(rows=rows, columns=columns))
    monkeypatch.setitem(sys.modules, "pandas", pandas)  # type: ignore[arg-type]
    Result().to_dataframe()
    assert made == {"rows": [["<i>a</i>", 0.123456], ["b", None]], "columns": ["name", "score"]}


def test_without_pandas_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ComponentError, match="pip install pandas"):
        Result().to_dataframe()
