"""The live page: what it says of a run, who is answered, and that it becomes the report."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from besttake import watch as module
from besttake.errors import ComponentError
from besttake.result import Result
from besttake.watch import LiveServer, RunPage

PLAN = (
    "diagnose", "--policy", "testbed:half", "--env", "testbed:pick", "--starts", "100", "--arms", "base,cooled",
    "--stride", "8", "--probe-states", "0", "--demos-per-task", "5", "--workers", "2",
)  # fmt: skip


@pytest.fixture
def server(going: Path) -> Iterator[LiveServer]:
    with LiveServer(RunPage(going)) as opened:
        yield opened


def ask(url: str, method: str = "GET", path: str = "/", **headers: str) -> tuple[int, dict[str, str], str]:
    with closing(http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=120)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()


def test_the_page_of_a_run_that_goes_on_tells_how_far_it_is_and_what_is_decided(server: LiveServer) -> None:
    status, headers, text = ask(server.url)
    assert status == 200
    assert "48 takes of 60" in text
    assert "The run goes on." in text
    assert "24 of 30" in text
    assert "a perfect pick" in text
    assert "&lt;b&gt;p&lt;/b&gt;" in text
    assert "<b>p</b>" not in text
    assert "<script>alert" not in text
    assert f'data-stamp="{headers["ETag"]}"' in text
    assert text.count('class="start-data"') == 12
    assert "connect-src &#39;self&#39;" in text


def test_only_this_machine_is_answered_and_only_with_the_page(server: LiveServer) -> None:
    assert ask(server.url, Host="evil.example")[0] == 403
    assert ask(server.url, Host="localhost:8123")[0] == 200
    assert ask(server.url, path="/../../etc/passwd")[0] == 404
    assert ask(server.url, "POST")[0] == 501
    assert server.server_address[0] == "127.0.0.1"
    headers = ask(server.url)[1]
    assert (headers["X-Frame-Options"], headers["Cache-Control"]) == ("DENY", "no-store")


def test_a_run_that_stopped_died_or_vanished_is_said(
    going: Path, synthetic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = RunPage(going)
    assert "The run goes on" in page.current()[1]
    monkeypatch.setattr(module, "_SILENT", -1.0)
    assert "no sign of the run" in page.current()[1]
    copy = Path(shutil.copytree(going, tmp_path / "copy", ignore=shutil.ignore_patterns("heartbeat.json")))
    page = RunPage(copy)
    assert "The run is stopped" in page.current()[1]
    shutil.rmtree(copy)
    assert "no longer there" in page.current()[1]


def test_a_finished_run_is_served_as_its_report_and_one_that_goes_on_is_not(
    synthetic: ModuleType, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    synthetic.build(run, synthetic.Shape(("p",), ("pick",), 6, arms=("base",)))
    page = RunPage(run)
    assert "What p needs" in page.current()[1]
    result = (run / "result.json").read_bytes()
    (run / "result.json").unlink()
    assert "What is decided so far" in page.current()[1]
    (run / "result.json").write_bytes(result[:-9])
    assert "This run cannot be shown" in page.current()[1]


def test_a_port_that_is_taken_is_one_line(server: LiveServer, going: Path) -> None:
    with pytest.raises(ComponentError, match=f"cannot serve on 127.0.0.1:{server.server_port}"):
        LiveServer(RunPage(going), server.server_port)


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_the_page_fits_loads_itself_again_and_axe_has_nothing_to_say(
    browser: Any, server: LiveServer, going: Path, small: ModuleType, axe: str, width: int, dark: bool
) -> None:
    browser.errors.clear()
    browser.requests.clear()
    browser.open(server.url, width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    browser.run(axe)
    rules = "v.map(one => one.id + ': ' + one.nodes.map(node => node.target).join(', '))"
    assert browser.run(f"axe.run().then(({{violations: v}}) => {rules})") == []
    browser.run("scrollTo(0, 300)")
    small.add(going, small.take(25, 0))
    browser.wait("document.querySelector('.over')?.textContent.includes('49 takes')")
    browser.wait("scrollY === 300")
    assert browser.errors == []
    own = (server.url, "data:", "about:")
    assert [url for url in browser.requests if not url.startswith(own)] == [], "a request left the machine"


@pytest.mark.slow
def test_a_run_is_watched_and_its_page_becomes_the_report(browser: Any, tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "watched"
    run = subprocess.Popen([sys.executable, "-m", "besttake", *PLAN, "-o", str(out)])
    while not (out / "run.json").is_file():
        assert run.poll() is None
        time.sleep(0.2)
    with LiveServer(RunPage(out)) as server:
        try:
            browser.open(server.url)
            browser.wait("!!document.querySelector('#answers')", 240)
            browser.wait("document.querySelector('h1')?.textContent === 'What testbed:half needs'", 240)
            assert run.wait(timeout=120) == 0
        finally:
            run.kill()
            run.wait()
    assert Result.load(out).cost.takes == 600
