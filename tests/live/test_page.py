"""The live page in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from besttake.live.server import Access, LiveServer
from besttake.reporting.takes import page_takes

BADGE = "document.querySelector('[data-question=headroom] .badge')?.textContent"


@pytest.fixture
def orders() -> list[str]:
    return []


@pytest.fixture
def server(going: Path, orders: list[str]) -> Iterator[LiveServer]:
    def obey(name: str) -> str:
        orders.append(name)
        return "Stopping."

    with LiveServer(going, access=Access("secret", obey)) as opened:
        yield opened


def show(browser: Any, url: str, *, width: int = 1400, dark: bool = False) -> None:
    """Load a page of the server, and wait for the first state of the run."""
    browser.errors.clear()
    browser.requests.clear()
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.call("Emulation.setEmulatedMedia", features=[scheme])
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=url)
    browser.wait("document.body?.dataset.phase === 'running'")


def test_a_verdict_settles_and_the_newest_take_plays_while_one_watches(
    browser: Any, server: LiveServer, going: Path, small: ModuleType
) -> None:
    for start in range(15, 24):
        for seed in range(small.SEEDS):
            small.remove(going, small.take(start, seed))
    show(browser, server.url)
    assert browser.run(BADGE) == "open"
    for start in range(15, 25):
        for seed in range(small.SEEDS):
            small.add(going, small.take(start, seed))
    browser.wait(f"{BADGE} === 'shown'")
    assert "Shown: a perfect pick of 2 takes gains (pick)" in browser.run("document.body.innerText")
    newest = "document.querySelector('#reel .take')"
    browser.wait(f"{newest}.innerText.includes('start 24, take 1 of base')")
    browser.wait(f"{newest}.querySelector('canvas').dataset.frame > 1")
    assert browser.run(f"{newest}.querySelector('canvas').width") == 8
    browser.click("#pause")
    assert browser.run("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    assert browser.errors == []
    own = (server.url, "data:", "about:")
    assert [url for url in browser.requests if not url.startswith(own)] == [], "a request left the machine"


def test_only_a_page_with_the_token_has_buttons_and_they_give_orders(
    browser: Any, server: LiveServer, orders: list[str]
) -> None:
    show(browser, server.url)
    assert browser.run("document.getElementById('controls').hidden")
    show(browser, f"{server.url}#token=secret")
    assert browser.run("location.hash") == "", "the token does not stay where others can read it"
    assert not browser.run("document.getElementById('controls').hidden")
    assert browser.run("document.getElementById('continue').hidden")
    browser.click("#stop")
    browser.wait("document.getElementById('said').textContent.includes('Stopping.')")
    assert orders == ["stop"]
    server.content.observer.phase = "stopped"
    browser.wait("document.body.dataset.phase === 'stopped'")
    assert browser.run("document.getElementById('stop').hidden")
    browser.click("#continue")
    browser.wait("document.getElementById('said').textContent.includes('Stopping.')")
    assert orders == ["stop", "continue"]
    browser.run("sessionStorage.clear()")


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_the_page_fits_and_axe_has_nothing_to_say(
    browser: Any, server: LiveServer, axe: str, width: int, dark: bool
) -> None:
    show(browser, f"{server.url}#token=secret", width=width, dark=dark)
    browser.wait("document.querySelectorAll('#reel canvas[data-frame]').length === 6")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert "alert(1)" in browser.run("document.getElementById('live-failures').innerText")
    browser.run(axe)
    rules = "v.map(one => one.id + ': ' + one.nodes.map(node => node.target).join(', '))"
    assert browser.run(f"axe.run().then(({{violations: v}}) => {rules})") == []
    assert browser.errors == []


def test_the_page_becomes_the_report_and_any_start_plays(
    browser: Any, synthetic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("besttake.live.content.page_takes", partial(page_takes, budget=20_000))  # not all fit in
    run = tmp_path / "run"
    synthetic.build(run, synthetic.Shape(("p",), ("pick",), 14, arms=("base",)))
    result = (run / "result.json").read_bytes()
    (run / "result.json").unlink()
    with LiveServer(run) as server:
        browser.call("Page.navigate", url=server.url)
        browser.wait("document.body?.dataset.phase === 'stopped'")
        (run / "result.json").write_bytes(result)
        browser.wait("document.querySelector('#verdict h1')?.textContent === 'What p needs'")
        browser.wait("document.querySelectorAll('#heat .start').length === 14")
        asked = "performance.getEntriesByType('resource').filter(one => one.name.includes('/starts/')).length"
        browser.run("document.querySelectorAll('#heat .start').forEach(row => row.click())")
        browser.wait(f"{asked} > 0")
        browser.wait("document.querySelectorAll('#stage .take canvas.film[data-frame]').length === 3")
