"""The report in a real Chromium."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from besttake.reporting.html import make_html, report_page
from besttake.reporting.takes import PageLimits, page_takes
from besttake.takes.store import Store


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_the_page_renders_without_complaint_in_light_dark_and_on_a_phone(
    browser: Any, run: Path, width: int, dark: bool
) -> None:
    browser.errors.clear()
    browser.requests.clear()
    browser.open(run / "report.html", width=width, height=844, dark=dark)
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("data:", "file:"))] == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 22, 26)" if dark else "rgb(255, 255, 255)")
    assert browser.run("document.querySelector('.decision .headline').getBoundingClientRect().bottom") < 844
    ratios = (
        "[...document.querySelectorAll('.fig')].map(f => f.getBoundingClientRect().width / f.viewBox.baseVal.width)"
    )
    assert min(browser.run(ratios)) > 0.6


def test_paper_shows_what_is_open_on_few_pages(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    assert 1 <= browser.pages() <= 6


def test_a_click_on_a_heading_sorts_the_table(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    browser.run("document.querySelectorAll('details').forEach(part => { part.open = true })")
    cells = "[...document.querySelectorAll('#cells tbody td:nth-child(6)[data-value]')]"
    column = f"{cells}.map(cell => Number(cell.dataset.value))"
    before = browser.run(column)
    assert before != sorted(before)
    browser.click("#cells th:nth-child(6)")
    assert browser.run(column) == sorted(before)
    browser.click("#cells th:nth-child(6)")
    assert browser.run(column) == sorted(before, reverse=True)
    assert browser.run("document.querySelector('#cells th:nth-child(6)').getAttribute('aria-sort')") == "descending"


EACH = "v => v.id + ': ' + v.nodes[0].html"
VIOLATIONS = f"axe.run(document, {{resultTypes: ['violations']}}).then(r => r.violations.map({EACH}))"


def test_the_map_has_a_square_for_every_take_with_its_outcome(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    squares = "[...document.querySelectorAll('#heat i')]"
    with Store.open(run) as store:
        rows = store.rows()
    assert browser.run(f"{squares}.length") == len(rows)
    assert browser.run(f"{squares}.filter(i => i.classList.contains('won')).length") == sum(
        bool(r.success) for r in rows
    )
    first = rows[0].key
    tip = browser.run("document.querySelector('#heat i').dataset.tip")
    when = f"success at step {rows[0].success_step}" if rows[0].success else f"failure after {rows[0].steps} steps"
    assert tip.startswith(f"{first.arm}, take {first.seed}: {when}")
    browser.hover("#heat i")
    browser.wait("!document.getElementById('tip').hidden")
    assert browser.run("document.getElementById('tip').textContent") == tip


def test_a_page_in_a_file_asks_for_nothing_and_says_which_films_it_lacks(
    browser: Any, synthetic: ModuleType, tmp_path: Path
) -> None:
    result = synthetic.build(
        tmp_path / "run", synthetic.Shape(policies=("one",), tasks=("pick",), starts=30, arms=("base",))
    )
    few = page_takes(tmp_path / "run", result.cells, PageLimits(bytes=60_000))
    report_page(result, few).save(tmp_path / "page.html")
    browser.errors.clear()
    browser.open(tmp_path / "page.html")
    browser.requests.clear()
    lacking = browser.run(
        "[...document.querySelectorAll('#heat .start')].findIndex(s => !s.querySelector('.plays').textContent)"
    )
    browser.click(f"#heat .start[data-i='{lacking}']")
    assert "besttake export RUN --films" in browser.run("document.getElementById('outcome').textContent")
    assert (browser.errors, browser.requests) == ([], [])


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, False), (1280, True)])
def test_axe_has_nothing_to_complain_about(browser: Any, run: Path, axe: str, width: int, dark: bool) -> None:
    browser.open(run / "report.html", width=width, dark=dark)
    browser.run(f"{axe};0")
    assert browser.run(VIOLATIONS) == []


def test_takes_play_in_step(browser: Any, run: Path) -> None:
    browser.errors.clear()
    browser.open(run / "report.html")
    frames = "[...document.querySelectorAll('#stage canvas.film')].map(c => Number(c.dataset.frame))"
    browser.wait(f"{frames}.every(f => f === 11)")
    pixels = "document.querySelector('#stage canvas.film').toDataURL()"
    still = browser.run(pixels)
    browser.run("document.getElementById('speed').value = '2'")
    browser.click("#play")
    browser.wait(f"{frames}[0] > 2 && {frames}[0] < 11")
    moving = browser.run(frames)
    assert len(set(moving)) == 1
    assert browser.run(pixels) != still
    heights = browser.run("[...document.querySelectorAll('.take > .small')].map(e => e.offsetHeight)")
    assert len(set(heights)) == 1, "what is said of the picked take has one line, as of the others"
    browser.wait("document.getElementById('play').textContent === 'Play'")
    assert set(browser.run(frames)) == {11}
    assert browser.run("document.getElementById('clock').value") == "step 55"
    cursor = browser.run("Number(document.querySelector('#stage .cursor').getAttribute('x1'))")
    assert cursor == pytest.approx(298)
    assert browser.errors == []


def test_hostile_names_stay_text(browser: Any, synthetic: ModuleType, tmp_path: Path) -> None:
    name = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    synthetic.build(tmp_path / "run", synthetic.Shape(policies=(name,), tasks=(name,), starts=3, error=name))
    browser.errors.clear()
    browser.open(make_html(tmp_path / "run"))
    for _ in range(3):
        browser.click("#next")
    browser.run("document.querySelectorAll('details').forEach(part => { part.open = true })")
    browser.hover("#ladder [data-tip]")
    assert browser.errors == []
    assert browser.run("document.querySelectorAll('img:not(.strip img)').length") == 0
    assert browser.run(f"document.body.textContent.includes({name!r})")


def test_an_empty_run_renders_too(browser: Any, synthetic: ModuleType, tmp_path: Path) -> None:
    synthetic.empty(tmp_path / "run")
    browser.errors.clear()
    browser.open(make_html(tmp_path / "run"), width=390)
    assert browser.errors == []
    assert "no takes yet" in browser.run("document.body.textContent")
