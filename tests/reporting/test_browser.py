"""The report in a real Chromium."""

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from besttake.reporting.html import make_html, report_page
from besttake.reporting.numbers import percent
from besttake.reporting.takes import Limits, page_takes
from besttake.result import Result
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


def test_the_theme_button_turns_the_page_over(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    browser.click("#theme")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    browser.click("#theme")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_click_on_a_heading_sorts_the_table(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    cells = "[...document.querySelectorAll('#cells tbody td:nth-child(6)[data-value]')]"
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
    arms = browser.run(
        "[...document.querySelectorAll('#stage .armrow')].map(row => row.querySelectorAll('.take').length)"
    )
    assert len(arms) > 1
    assert set(arms) == {3}
    assert browser.run("document.querySelectorAll('#stage .take.picked').length") == len(arms)
    browser.click("#next")
    second = browser.run("document.getElementById('outcome').textContent")
    assert second != first
    browser.click("#heat .start:last-of-type")
    assert browser.run("document.getElementById('outcome').textContent") not in (first, second)


EACH = "v => v.id + ': ' + v.nodes[0].html"
VIOLATIONS = f"axe.run(document, {{resultTypes: ['violations']}}).then(r => r.violations.map({EACH}))"
CHOSEN = "[...document.querySelectorAll('#heat .start')].map(o => o.getAttribute('aria-label'))"


def test_filters_leave_the_starts_that_fit(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    every = browser.run(CHOSEN)
    policy = browser.run("document.querySelectorAll('#by-policy option')[1].value")
    choose = (
        "(() => {{ const s = document.getElementById('{}'); s.value = '{}'; s.dispatchEvent(new Event('change')); }})()"
    )
    browser.run(choose.format("by-policy", policy))
    assert browser.run(CHOSEN) == [name for name in every if name.startswith(policy)]
    assert len(browser.run(CHOSEN)) < len(every)
    browser.run(choose.format("by-arm", "base"))
    assert browser.run("[...document.querySelectorAll('#stage .take')].map(t => t.dataset.arm)") == ["base"] * 3
    browser.run("document.getElementById('disputed').click()")
    disputed = browser.run(
        "(h => h.starts.filter(s => s.disputed && h.cells[s.cell][0] === "
        f"'{policy}').length)(JSON.parse(document.getElementById('takes-data').textContent).heat)"
    )
    assert len(browser.run(CHOSEN)) == disputed


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


def test_a_click_on_a_square_plays_its_start_and_marks_the_take(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    place = "#heat .start[data-i='3'] .squares:nth-of-type(3) i:nth-child(2)"
    wanted = browser.run("document.querySelector(\"#heat .start[data-i='3']\").getAttribute('aria-label')")
    browser.click(place)
    browser.wait("document.getElementById('play').textContent === 'Pause'")
    policy, task, start = wanted.split(", successes")[0].rsplit(", ", 2)
    assert browser.run("document.getElementById('outcome').textContent").startswith(f"{policy}, {task}, {start}.")
    marked = "[...document.querySelectorAll('#stage .marked')].map(t => [t.dataset.arm, t.dataset.seed])"
    assert browser.run(marked) == [["cooled", "1"]]
    assert browser.run("document.querySelectorAll('#heat .start[aria-pressed=true]').length") == 1


def test_a_filter_with_nothing_to_choose_is_not_shown(browser: Any, synthetic: ModuleType, tmp_path: Path) -> None:
    synthetic.build(tmp_path / "run", synthetic.Shape(policies=("one",), tasks=("pick",), starts=3, arms=("base",)))
    browser.open(make_html(tmp_path / "run"))
    shown = (
        "[...document.querySelectorAll('.filters label')].filter(l => l.offsetHeight).map(l => l.textContent.trim())"
    )
    assert [text.split()[0] for text in browser.run(shown)] == ["outcome"]


def test_arrow_keys_go_through_the_map(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    browser.click("#heat .start[data-i='0']")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="ArrowDown", code="ArrowDown")
    assert browser.run("[document.activeElement.dataset.i, document.activeElement.getAttribute('aria-pressed')]") == [
        "1", "true",
    ]  # fmt: skip


def test_a_page_in_a_file_asks_for_nothing_and_says_which_films_it_lacks(
    browser: Any, synthetic: ModuleType, tmp_path: Path
) -> None:
    result = synthetic.build(
        tmp_path / "run", synthetic.Shape(policies=("one",), tasks=("pick",), starts=30, arms=("base",))
    )
    few = page_takes(tmp_path / "run", result.cells, result.policies, Limits(bytes=60_000))
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


def test_a_cell_leads_to_its_takes(browser: Any, run: Path) -> None:
    browser.open(run / "report.html")
    for place in ("#cells tbody tr:last-child .watch", "#relation [data-path^='/cells/0/']"):
        browser.click(place)
        row = "#cells tbody tr:last-child" if "watch" in place else "#cells tbody tr"
        cell = browser.run(
            f"[...document.querySelector('{row}').cells].slice(0, 2).map(c => c.firstChild.textContent.trim())"
        )
        assert (
            browser.run("[document.getElementById('by-policy').value, document.getElementById('by-group').value]")
            == cell
        )
        assert all(name.startswith(cell[0]) for name in browser.run(CHOSEN))


def test_paper_shows_every_column_and_every_reason(browser: Any, run: Path) -> None:
    browser.open(run / "report.html", width=1280)
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("[...document.querySelectorAll('details')].every(d => d.open)")
    assert browser.run("document.querySelectorAll('.answer dd').length") >= 6
    assert browser.run("[...document.querySelectorAll('.answer dd')].every(p => p.getBoundingClientRect().height > 0)")
    browser.call("Emulation.setDeviceMetricsOverride", width=700, height=990, deviceScaleFactor=1, mobile=False)
    verdict = "document.querySelector('#cells td:last-child').getBoundingClientRect()"
    assert browser.run(f"{verdict}.right") <= 700
    assert browser.run(f"{verdict}.width") > 40
    shown = "h => [h.scrollHeight <= h.clientHeight, h.querySelectorAll('.start').length]"
    heat = f"({shown})(document.getElementById('heat'))"
    starts = browser.run("JSON.parse(document.getElementById('takes-data').textContent).heat.starts.length")
    assert browser.run(heat) == [True, starts]
    columns = browser.run("document.getElementById('columns').innerText")
    assert columns == "Arms from left to right: base, cooled, retrieve, shuffled."
    frames = "[...document.querySelectorAll('#stage canvas.film')].map(c => Number(c.dataset.frame))"
    assert set(browser.run(frames)) == {11}, "paper shows how takes ended: at first they look alike"
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert set(browser.run(frames)) == {0}
    assert not browser.run("[...document.querySelectorAll('details')].some(d => d.open)")
    browser.call("Emulation.setEmulatedMedia", media="")


def test_paper_is_light_and_keeps_the_colours_of_the_legend(browser: Any, run: Path) -> None:
    browser.open(run / "report.html", width=1280)
    browser.click("#theme")
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run("getComputedStyle(document.body).color") == "rgb(29, 31, 35)"
        key = "getComputedStyle(document.querySelector('.legend .key'))"
        assert browser.run(f"[{key}.backgroundColor, {key}.printColorAdjust]") == ["rgb(0, 114, 178)", "exact"]
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
        browser.click("#theme")


def test_who_stops_after_the_first_screen_knows_what_to_do(browser: Any, run: Path) -> None:
    result = Result.load(run / "result.json")
    browser.open(run / "report.html", width=1400, height=900)
    bottoms = browser.run(
        "[...document.querySelectorAll('.decision')].map(d => [d.dataset.policy, d.querySelector('svg')"
        ".getBoundingClientRect().bottom, d.querySelector('.headline').textContent.length])"
    )
    assert [policy for policy, *_ in bottoms] == [cell.policy for cell in result.policies]
    assert all(bottom < 900 and length > 20 for _, bottom, length in bottoms)
    rates = browser.run("[...document.querySelectorAll('.decision .asis')].map(one => one.textContent)")
    known = [cell.headroom.pass_1.value for cell in result.policies if cell.headroom is not None]
    assert rates == [f"{percent(value)} success as it is" for value in known]


def test_notes_come_after_the_decision_and_no_table_is_cut_on_a_phone(browser: Any, run: Path) -> None:
    browser.open(run / "report.html", width=390, height=844)
    assert browser.run("document.querySelectorAll('#verdict .note').length") == 0
    notes = browser.run("[...document.querySelectorAll('#notes + .notes li')].map(l => l.textContent.length)")
    assert len(notes) == len(Result.load(run / "result.json").notes)
    assert browser.run(
        "[...document.querySelectorAll('#fit table')].every(t => t.getBoundingClientRect().right <= 390)"
    )


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, False), (1280, True)])
def test_axe_has_nothing_to_complain_about(browser: Any, run: Path, axe: str, width: int, dark: bool) -> None:
    browser.open(run / "report.html", width=width, dark=dark)
    browser.run(f"{axe};0")
    assert browser.run(VIOLATIONS) == []


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
    assert set(browser.run(frames)) == {11}
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


def test_the_pages_of_compare_and_rank_render_too(browser: Any, run: Path, tmp_path: Path, axe: str) -> None:
    from besttake.reporting import ranking
    from besttake.reporting.html import make_compare_html
    from besttake.verbs.compare import compare
    from besttake.verbs.ranked import RankedTake, RankResult

    take = RankedTake("a.mp4", 1, 0.91, 4, 3, (0, 1, 2, 3), (0.9, 0.92, 0.91, 0.8), (5, 6, 7, 8))
    bad = RankedTake("b.mp4", None, None, 0, 0, problem="has a damaged video b.mp4")
    result = RankResult((take, bad), "common", "manifold", "pixels", "demos", 2, 80, "", "all", ("said so",))
    shutil.copytree(run, tmp_path / "again")
    pages = [
        make_compare_html(compare([run]), tmp_path / "compare.html"),
        make_compare_html(compare([run, tmp_path / "again"]), tmp_path / "two.html"),
        ranking.make_html(result, tmp_path / "rank.html"),
    ]
    for page in pages:
        for width, dark in ((1280, False), (390, True)):
            browser.errors.clear()
            browser.open(page, width=width, height=844, dark=dark)
            assert browser.errors == []
            assert browser.run("document.documentElement.scrollWidth") <= width
            if not dark:
                browser.run(f"{axe};0")
                assert browser.run(VIOLATIONS) == []
            browser.click("th")
            assert browser.run("document.querySelector('th').getAttribute('aria-sort')") == "ascending"
