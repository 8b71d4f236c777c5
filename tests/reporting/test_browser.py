"""The report in a real Chromium."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from besttake.reporting.html import make_html


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
    assert browser.run("document.querySelector('.summary').getBoundingClientRect().top") < 844
    ratios = (
        "[...document.querySelectorAll('.fig')].map(f => f.getBoundingClientRect().width / f.viewBox.baseVal.width)"
    )
    assert min(browser.run(ratios)) > 0.6


def test_the_theme_button_turns_the_page_over(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    browser.click("#theme")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    browser.click("#theme")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_click_on_a_heading_sorts_the_table(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    cells = "[...document.querySelectorAll('#cells tbody td:nth-child(6) [data-value]')]"
    column = f"{cells}.map(cell => Number(cell.dataset.value))"
    before = browser.run(column)
    assert before != sorted(before)
    browser.click("#cells th:nth-child(6)")
    assert browser.run(column) == sorted(before)
    browser.click("#cells th:nth-child(6)")
    assert browser.run(column) == sorted(before, reverse=True)
    assert browser.run("document.querySelector('#cells th:nth-child(6)').getAttribute('aria-sort')") == "descending"


def test_hovering_a_dot_tells_its_numbers(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    assert browser.run("document.getElementById('tip').hidden")
    browser.hover("#relation [data-tip]:last-of-type")
    browser.wait("!document.getElementById('tip').hidden")
    text = browser.run("document.getElementById('tip').textContent")
    assert "headroom" in text
    assert "gain" in text
    box = browser.run(
        "(() => { const r = document.getElementById('tip').getBoundingClientRect(); return [r.left, r.right]; })()"
    )
    assert box[0] >= 0
    assert box[1] <= 1280


def test_picking_a_start_shows_its_takes(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    first = browser.run("document.getElementById('outcome').textContent")
    assert browser.run("document.querySelectorAll('#stage .take').length") == 3
    assert browser.run("document.querySelectorAll('#stage .take.picked').length") == 1
    browser.click("#next")
    second = browser.run("document.getElementById('outcome').textContent")
    assert second != first
    last = "p.selectedIndex = p.options.length - 1; p.dispatchEvent(new Event('change'));"
    browser.run(f"(() => {{ const p = document.getElementById('pick'); {last} }})()")
    assert browser.run("document.getElementById('outcome').textContent") not in (first, second)


def test_takes_play_in_step(browser: Any, run: Path) -> None:
    browser.errors.clear()
    browser.open(run / "report.html")
    frames = "[...document.querySelectorAll('#stage canvas.film')].map(c => Number(c.dataset.frame))"
    browser.wait(f"{frames}.every(f => f === 0)")
    pixels = "document.querySelector('#stage canvas.film').toDataURL()"
    still = browser.run(pixels)
    browser.run("document.getElementById('speed').value = '2'")
    browser.click("#play")
    browser.wait(f"{frames}[0] > 2")
    moving = browser.run(frames)
    assert len(set(moving)) == 1
    browser.wait("document.getElementById('play').textContent === 'Play'")
    assert browser.run(frames) == [11, 11, 11]
    assert browser.run("document.getElementById('clock').value") == "step 55"
    assert browser.run(pixels) != still
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
    browser.hover("#ladder [data-tip]")
    assert browser.errors == []
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run(f"document.body.textContent.includes({name!r})")


def test_an_empty_run_renders_too(browser: Any, synthetic: ModuleType, tmp_path: Path) -> None:
    synthetic.empty(tmp_path / "run")
    browser.errors.clear()
    browser.open(make_html(tmp_path / "run"), width=390)
    assert browser.errors == []
    assert "no takes yet" in browser.run("document.body.textContent")


def test_long_names_do_not_widen_a_phone(browser: Any, synthetic: ModuleType, tmp_path: Path) -> None:
    long = "lerobot:some-organisation/a_very_long_policy_name_" + "x" * 90
    synthetic.build(tmp_path / "run", synthetic.Shape(policies=(long, "b"), tasks=(long,), starts=3))
    browser.open(make_html(tmp_path / "run"), width=390, height=844)
    assert browser.run("document.documentElement.scrollWidth") <= 390


def test_the_pages_of_compare_and_rank_render_too(browser: Any, run: Path, tmp_path: Path) -> None:
    from besttake.reporting import ranking
    from besttake.reporting.html import make_compare_html
    from besttake.verbs.compare import compare
    from besttake.verbs.rank import RankedTake, RankResult

    take = RankedTake("a.mp4", 1, 0.91, 4, 3, (0, 1, 2, 3), (0.9, 0.92, 0.91, 0.8), (5, 6, 7, 8))
    bad = RankedTake("b.mp4", None, None, 0, 0, problem="has a damaged video b.mp4")
    result = RankResult((take, bad), "common", "manifold", "pixels", "demos", 2, 80, "", "all", ("said so",))
    pages = [
        make_compare_html(compare([run]), tmp_path / "compare.html"),
        ranking.make_html(result, tmp_path / "rank.html"),
    ]
    for page in pages:
        for width, dark in ((1280, False), (390, True)):
            browser.errors.clear()
            browser.open(page, width=width, height=844, dark=dark)
            assert browser.errors == []
            assert browser.run("document.documentElement.scrollWidth") <= width
            browser.click("th")
            assert browser.run("document.querySelector('th').getAttribute('aria-sort')") == "ascending"
