"""A gate judges takes that others play as the run's own scores do."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from websockets.sync.client import connect

import besttake
from besttake import registry
from besttake.errors import BestTakeError, ComponentError
from besttake.policies.remote_wire import pack_openpi, unpack_openpi
from besttake.serving import Limits, serve
from besttake.takes.key import TakeKey
from besttake.takes.scores import ScoreName
from besttake.types import Start
from besttake.verbs.export import ExportOptions


@pytest.fixture(scope="module")
def run(diagnosed) -> Path:
    return diagnosed(starts=6, stride=1)


def test_a_gate_gives_the_runs_own_scores_and_accepts_at_its_threshold(run: Path) -> None:
    gate = besttake.Gate.open(run, option="base, best of 3")
    with besttake.Run.open(run) as opened:
        assert opened.scores is not None
        for start in range(6):
            scores: list[float] = []
            for seed in range(3):
                key = TakeKey("testbed:half", "testbed:pick", "pick", start, "base", seed)
                judged = gate.judge(list(opened.takes[key].frames()), "pick")
                scores.append(opened.scores[key].scores[ScoreName("coverage", "full")])
                assert judged.score == pytest.approx(scores[-1], abs=1e-6)
                assert judged.best == int(np.argmax(scores))
                assert judged.takes_left == 2 - seed
                enough = judged.threshold is not None and scores[-1] >= judged.threshold
                assert judged.accept == (enough or seed == 2)
                if judged.accept:
                    break


def test_a_new_start_forgets_the_takes_before_it(run: Path) -> None:
    gate = besttake.Gate.open(run, option="base, best of 3")
    picture = np.zeros((64, 64, 3), np.uint8)
    assert gate.judge([picture] * 3).takes_left == 2
    gate.begin()
    assert gate.judge([picture] * 3).takes_left == 2


def test_a_server_judges_what_its_client_has_shown(run: Path) -> None:
    """A client of openpi plays two takes of a start; the gate sees a picture per request."""
    gate = besttake.Gate.open(run, option="base, best of 3")
    own, env = gate.for_another(), registry.env("testbed:pick")
    limits = Limits(gate=gate)
    with serve(registry.policy("testbed:half"), "openpi", limits=limits) as server, connect(server.url) as robot:
        robot.recv()
        for take in range(2):
            env.reset(Start("pick", 0))
            shown = {}
            for step in range(0, 24, 8):
                seen = env.observe(("wrist",))
                shown[step] = seen.images["wrist"]
                robot.send(pack_openpi({"observation/wrist": shown[step], "observation/state": seen.state}))
                for action in unpack_openpi(robot.recv())["actions"][:8]:
                    env.step(action)
            robot.send(pack_openpi({"besttake": {"judge": True, "task": "pick"}}))
            judged = unpack_openpi(robot.recv())["besttake"]
            assert judged == asdict(own.judge_frames(shown, "pick"))
            if judged["accept"]:
                own.begin()
            assert judged["takes_left"] == 2 - take
        robot.send(pack_openpi({"besttake": {"judge": True}}))
        assert "no take to judge" in str(robot.recv())


def test_what_is_no_picture_is_refused(run: Path) -> None:
    gate = besttake.Gate.open(run, option="base, best of 3")
    wrongs: list[Any] = [[], [np.zeros((4, 4, 3), np.float32)], [np.zeros((4, 4), np.uint8)]]
    for wrong in wrongs:
        with pytest.raises(ComponentError, match="pictures of one size"):
            gate.judge(wrong)


def test_an_option_with_one_take_has_no_gate(run: Path) -> None:
    with pytest.raises(BestTakeError, match="every take is kept"):
        besttake.Gate.open(run, option="base")


def test_the_command_says_by_its_exit_code_whether_to_play_another_take(run: Path, tmp_path: Path) -> None:
    besttake.export(run, ExportOptions(films=tmp_path / "films", most=3))
    films = sorted(map(str, (tmp_path / "films").glob("**/*.mp4")))
    gate, command = besttake.Gate.open(run), [sys.executable, "-m", "besttake", "rank", "--run", str(run)]
    judged = gate.judge_recording(films[0], "pick")
    done = subprocess.run([*command, films[0], "--task", "pick"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(":")[0]) == ((0, "Accept") if judged.accept else (4, "Retry"))
    blank = [*command, "--task", "pick", "--json"]
    black = tmp_path / "black"
    black.mkdir()
    for number in range(20):
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(black / f"{number:03d}.png")
    done = subprocess.run([*blank, str(black)], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["takes_left"]) == (4, 2)
    done = subprocess.run([*blank, *[str(black)] * 3], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["best"]) == (0, 0)
