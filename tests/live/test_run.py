"""A real run with its live page, from the first take to the report, in a real Chromium."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from besttake.result import Result

PLAN = (
    "diagnose", "--policy", "testbed:half", "--env", "testbed:pick", "--starts", "100", "--arms", "base,cooled",
    "--stride", "8", "--probe-states", "0", "--demos-per-task", "5", "--workers", "2",
)  # fmt: skip


@contextmanager
def command(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "besttake", *map(str, arguments)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address(process: subprocess.Popen[str]) -> str:
    """The last address that a command prints at first: the one with the token, where there is one."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"http://127\.0\.0\.1:\d+/(#token=\S+|(?=;))", line):
            return match[0]
    raise AssertionError("no address was printed")


def go(browser: Any, url: str) -> None:
    browser.errors.clear()
    browser.requests.clear()
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=url)
    browser.wait("!!document.body?.dataset.phase", 60)


def phase(browser: Any, name: str) -> None:
    browser.wait(f"document.body?.dataset.phase === '{name}'", 240)


@pytest.mark.slow
def test_a_run_is_watched_stopped_and_continued_and_its_page_becomes_the_report(
    browser: Any, tmp_path: Path, cache: Path
) -> None:
    out = tmp_path / "watched"
    with command(*PLAN, "-o", out, "--live") as process:
        go(browser, address(process))
        phase(browser, "running")
        browser.wait("document.querySelectorAll('#reel canvas[data-frame]').length > 0", 240)
        browser.wait("!!document.querySelector('[data-question=headroom]')", 240)
        browser.click("#stop")
        phase(browser, "stopped")
        kept = len(list((out / "takes").glob("*/*.take")))
        assert 0 < kept < 600
        assert not (out / "result.json").exists()
        assert process.poll() is None
        browser.click("#continue")
        phase(browser, "running")
        badge = "document.querySelector('[data-question=headroom] .badge')?.textContent"
        browser.wait(f"{badge} === 'shown' || !!document.querySelector('#verdict')", 240)
        browser.wait("document.querySelector('#verdict h1')?.textContent === 'What testbed:half needs'", 240)
        assert process.wait(timeout=120) == 0
        assert browser.errors == []
        own = ("http://127.0.0.1:", "data:", "about:")
        assert [url for url in browser.requests if not url.startswith(own)] == []
    alone = tmp_path / "alone"
    with command(*PLAN, "-o", alone, "-q") as process:
        assert process.wait(timeout=600) == 0
    watched, unwatched = (Result.load(run / "result.json") for run in (out, alone))
    assert watched.digest == unwatched.digest
    assert watched.cells == unwatched.cells


@pytest.mark.slow
def test_a_run_that_is_killed_is_noticed_by_those_who_watch_it_and_goes_on_under_their_eyes(
    browser: Any, tmp_path: Path, cache: Path
) -> None:
    out = tmp_path / "run"
    with command(*PLAN, "-o", out, "-q") as process:
        end = time.monotonic() + 240
        while not list((out / "takes").glob("*/*.take")) and time.monotonic() < end:
            time.sleep(0.1)
        with command("watch", out) as watcher:
            go(browser, address(watcher))
            phase(browser, "running")
            os.kill(process.pid, signal.SIGKILL)
            phase(browser, "lost")
            assert "the same command goes on" in browser.run("document.getElementById('live-status').innerText")
            with command(*PLAN, "-o", out, "-q") as again:
                phase(browser, "running")
                with command("watch", out) as other:
                    assert address(other)
                    os.kill(other.pid, signal.SIGKILL)
                browser.wait("!!document.querySelector('#verdict')", 300)
                assert again.wait(timeout=120) == 0
