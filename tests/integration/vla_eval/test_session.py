"""A session on a robot, from end to end: `besttake serve --session`, openpi's own client, and a browser whose keys are
pressed, each in a process of its own that is killed now and then."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import besttake

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "reporting"))
from browser import Browser, find  # noqa: E402

PLAN = {"policy": "testbed:half?replan=9", "env": "testbed:pick", "starts": 5, "seeds": 4, "stride": 9}
ARMS, TAKES, KILLS = "base,cooled,retrieve", 60, 10


class Parts:
    """Server, robot and browser, each started again when it is gone."""

    def __init__(self, run: Path) -> None:
        self.run, self.port, self.page_port = run, 8137, 8138  # the same after a kill
        self.page = f"http://127.0.0.1:{self.page_port}/"
        self.server = self.robot = self.browser = None
        self.reports: dict[str, bool | str] = {}
        self.browsers = 0

    def start_server(self) -> None:
        flags = [word for name, value in PLAN.items() for word in (f"--{name}", str(value))]
        flags += ["--arms", ARMS, "--port", str(self.port), "--page", str(self.page_port), "--protocol", "openpi"]
        command = [sys.executable, "-m", "besttake", "serve", "--session", str(self.run), *flags]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.now(seconds=300, phases=("waiting", "over"))

    def now(self, seconds: float = 60, phases: tuple[str, ...] = ()) -> dict:
        end = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(f"{self.page}now", timeout=60) as answer:
                    now = json.load(answer)
                if not phases or now["phase"] in phases:
                    return now
            except OSError:
                assert self.server.poll() is None, self.server.stderr.read()
            assert time.monotonic() < end, "the session does not answer"
            time.sleep(0.05)

    def keep_up(self) -> None:
        """Start what is gone."""
        if self.server is None or self.server.poll() is not None:
            self.start_server()
        if self.robot is None or self.robot.poll() is not None:
            command = [sys.executable, str(HERE / "robot.py"), str(self.port), self.page]
            self.robot = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self._listen, args=(self.robot,), daemon=True).start()
        if self.browser is None or self.browser._process.poll() is not None:
            self.browsers += 1
            self.browser = Browser(self.run.parent / f"profile{self.browsers}")
            self.browser.open(self.page)

    def _listen(self, robot: subprocess.Popen) -> None:
        for line in robot.stdout:
            self.reports.update([json.loads(line)])

    def press(self, key: str) -> None:
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def judge(self, now: dict) -> None:
        """Press what came of the take, when the page is ready for it."""
        if now["phase"] == "waiting" and not self.browser.run("document.querySelector('#ready').disabled"):
            self.press("r")
            self.now(phases=("ready", "playing", "left"))
        number = now.get("number", "")
        outcome = self.reports.get(number)
        if outcome is None or self.browser.run("document.querySelector('[data-outcome=spoiled]').disabled"):
            return
        self.press({"spoiled": "x", True: "s", False: "f"}[outcome])
        while self.now().get("number") == number:
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        process = self.browser._process if name == "browser" else getattr(self, name)
        process.kill()
        process.wait()
        if name == "robot" and (number := self.now().get("number")):
            self.reports.setdefault(number, "spoiled")

    def close(self) -> None:
        for name in ("browser", "robot", "server"):
            if getattr(self, name) is not None:
                self.kill(name)


@pytest.mark.skipif(find() is None, reason="no Chromium on this machine")
def test_a_session_that_is_killed_ten_times_has_the_verdict_of_a_diagnosis(tmp_path):
    draw, parts = random.Random(29), Parts(tmp_path / "run")
    moments = sorted(draw.sample(range(1, TAKES - 1), KILLS))
    try:
        while True:
            parts.keep_up()
            now = parts.now()
            if now["phase"] == "over":
                break
            if moments and now["done"] >= moments[0]:
                moments.pop(0)
                time.sleep(draw.random())
                parts.kill(draw.choice(("server", "robot", "browser")))
                continue
            parts.judge(now)
            time.sleep(0.05)
        result = json.loads((tmp_path / "run" / "result.json").read_text())
    finally:
        parts.close()
    assert not moments
    besttake.diagnose(out=tmp_path / "same", arms=ARMS, window="common", **PLAN)
    same = json.loads((tmp_path / "same" / "result.json").read_text())
    mine, its = (besttake.Run.open(tmp_path / name).takes for name in ("run", "same"))
    assert {key: mine[key].success for key in mine} == {key: its[key].success for key in its}
    assert len(mine) == TAKES
    for key, take in mine.items():  # openpi's client does not show what it sees after its last action
        seen = [step for step in its[key].frame_steps if step < its[key].steps]
        assert [*take.frame_steps] == seen
        np.testing.assert_array_equal(take.frames(), its[key].frames()[: len(seen)])
    (cell,), (other,) = result["cells"], same["cells"]
    assert (cell["headroom"], cell["arms"]["content"]) == (other["headroom"], other["arms"]["content"])
    for question in ("headroom", "cooled", "retrieve", "content"):
        assert cell["verdict"]["questions"][question] == other["verdict"]["questions"][question]
