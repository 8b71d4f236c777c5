import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from besttake.reporting.html import make_html, report_page
from besttake.reporting.numbers import estimate_percent, estimate_points, plus_minus
from besttake.reporting.page import script
from besttake.reporting.takes import page_takes
from besttake.result import Result


class Seen(HTMLParser):
    """The numbers, texts and elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.drawn: list[tuple[str, float]] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.tags.append((tag, found))
        self._code += tag in ("script", "style")
        if tag in ("circle", "polygon", "polyline") and "data-path" in found:
            self.drawn.append((found["data-path"], float(found["data-value"])))
            if "data-gain-path" in found:
                self.drawn.append((found["data-gain-path"], float(found["data-gain-value"])))

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def at(document: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


@cache
def page_of(run: Path) -> tuple[Seen, str]:
    """The page of a run, which is made once: no test changes a run after that."""
    text = make_html(run).read_text(encoding="utf-8")
    return Seen(text), text


def test_the_tables_carry_the_numbers_of_result_json(run: Path) -> None:
    result, (seen, _) = Result.load(run / "result.json"), page_of(run)
    values = {float(found["data-value"]) for tag, found in seen.tags if tag == "td" and "data-value" in found}
    for cell in (*result.policies, *result.cells):
        assert cell.headroom is not None
        assert cell.chosen is not None
        assert {cell.headroom.pass_1.value, cell.headroom.headroom.value, cell.chosen.gain.value} <= values
        assert estimate_percent(cell.headroom.pass_1).replace("\N{NO-BREAK SPACE}", " ") in seen.text
    for cell in result.policies:
        assert cell.verdict is not None
        for name, answer in cell.verdict.answers.items():
            assert estimate_points(answer.gain) in seen.text, name
        for name, arm in cell.arms.arms.items():
            assert name in seen.text
            assert plus_minus(arm.seed_sd) in seen.text


def test_every_drawn_mark_carries_its_number(run: Path) -> None:
    seen, _ = page_of(run)
    document = json.loads((run / "result.json").read_text())
    assert len(seen.drawn) > 30
    for path, value in seen.drawn:
        assert value == at(document, path), path
    kinds = {re.sub(r"/\d+", "", path) for path, _ in seen.drawn}
    for wanted in ("/policies/headroom/pass_n/value", "/cells/headroom/headroom/value", "/policies/verdict/gain/value"):
        assert wanted in kinds


def test_no_two_parts_of_the_page_have_the_same_id(run: Path) -> None:
    seen, _ = page_of(run)
    ids = [found["id"] for _, found in seen.tags if "id" in found]
    assert len(ids) == len(set(ids))


def test_the_page_needs_no_network(run: Path) -> None:
    seen, text = page_of(run)
    for tag, found in seen.tags:
        for name in ("src", "href", "action", "data"):
            value = found.get(name, "")
            assert value == "" or value.startswith(("#", "data:")), (tag, name, value)
    assert "@import" not in text
    assert "url(" not in text
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg|<meta http-equiv=", "", text)
    assert len(text) < 15_000_000


def test_json_in_a_script_cannot_end_it() -> None:
    text = str(script({"a": "</script><!-- & \u2028"}))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!-- & \u2028"}


def test_only_a_served_page_may_ask_its_server(run: Path) -> None:
    result = Result.load(run / "result.json")
    takes = page_takes(run, result.cells)
    assert "connect-src &#39;self&#39;" in report_page(result, takes, "stamp").html()
    assert "connect-src" not in (run / "report.html").read_text()
