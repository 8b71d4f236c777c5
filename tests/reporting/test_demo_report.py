"""The report that `besttake demo` writes, in a real Chromium."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def page(besttake: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "run"
    besttake("demo", "-q", "--starts", "2", "-o", out)
    return out / "report.html"


@pytest.mark.slow
def test_sorting_hovering_picking_and_playing_work(browser: Any, page: Path) -> None:
    browser.errors.clear()
    browser.open(page)
    values = (
        "[...document.querySelectorAll('#cells tbody td:nth-child(6) [data-value]')].map(c => Number(c.dataset.value))"
    )
    browser.click("#cells th:nth-child(6)")
    assert browser.run(values) == sorted(browser.run(values))
    browser.hover("#ladder [data-tip]")
    browser.wait("document.getElementById('tip').textContent.includes('pass@1')")
    browser.click("#next")
    counted = browser.run("document.querySelector('#stage .armname').textContent")
    assert counted.startswith("base: ")
    assert counted.endswith("takes succeeded")
    assert "not in this page" not in browser.run("document.getElementById('outcome').textContent")
    frames = "[...document.querySelectorAll('#stage canvas.film')].map(c => Number(c.dataset.frame))"
    demos = "[...document.querySelectorAll('#stage canvas.demo')].map(c => c.dataset.frame)"
    browser.wait(f"{frames}.every(f => f === 0)")
    browser.wait(f"{demos}.every(f => f !== undefined)")
    before = browser.run("document.querySelector('#stage canvas.demo').toDataURL()")
    browser.run("document.getElementById('speed').value = '4'")
    browser.click("#play")
    browser.wait("document.getElementById('play').textContent === 'Play'")
    assert min(browser.run(frames)) > 0
    assert browser.run("document.querySelector('#stage canvas.demo').toDataURL()") != before
    assert browser.errors == []
