"""Parts that do not fit each other, through the commands that a user types: one line, exit code 2, nothing written."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from besttake.cli.main import main
from besttake.demos.build import build
from besttake.encoders.pixels import Pixels
from besttake.types import Demo


class Other:
    """Demonstrations of ``tasks`` by a robot with ``actions`` and ``states`` numbers, ``length`` steps long."""

    name, camera, fps, fingerprint = "other", "wrist", 20.0, "other"
    gripper_dim, gripper_open, eef_dims = 3, -1, (0, 1, 2)

    def __init__(self, tasks=("pick",), actions=4, states=20, length=30, each=2):
        self._made = [self._demo(task, number, actions, states, length) for task in tasks for number in range(each)]

    def _demo(self, task, number, actions, states, length):
        rng = np.random.default_rng(number)
        moves = rng.uniform(-1, 1, (length, actions)).astype(np.float32)
        moves[:, 3] = np.where(np.arange(length) < length // 2, -1, 1)
        frames = rng.integers(0, 255, (length // 5, 48, 48, 3), np.uint8)
        states = rng.normal(size=(length, states)).astype(np.float32)
        return Demo(f"{task}/{number}", task, frames, np.arange(length // 5) * 5, states, moves)

    def __iter__(self):
        return iter(self._made)


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path / "cache"))

    def make(**shape):
        return str(build(Other(**shape), Pixels(), tmp_path / "library").path)

    return make


def said(capsys, *words):
    """The exit code and the lines on standard error of a command line."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["besttake", *map(str, words)])
        main()
    return ended.value.code, [line for line in capsys.readouterr().err.splitlines() if line.strip()]


PICK = ("--policy", "testbed:half", "--env", "testbed:pick")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"actions": 7}, "actions of 7 numbers, but testbed:half has 4"),
        ({"states": 8}, "states of 8 numbers, but testbed:half has 20"),
    ],
)
def test_the_probe_of_another_robot_is_one_line(made, capsys, shape, words):
    code, lines = said(capsys, "probe", *PICK, "--demos", made(**shape))
    assert (code, len(lines)) == (2, 1)
    assert words in lines[0]


def test_a_later_policy_that_does_not_fit_is_noticed_before_the_first_take(tmp_path, monkeypatch, capsys):
    (tmp_path / "two_armed.py").write_text(
        "from dataclasses import replace\nfrom besttake import registry\n"
        "def make():\n"
        "    policy = registry.policy('testbed:few')\n"
        "    policy.spec = replace(policy.spec, name='two-armed', action_dim=14)\n"
        "    return policy\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(
        "sys.argv",
        ["besttake", "diagnose", "--policy", "testbed:half", "--policy", "python:two_armed:make", "--env",
         "testbed:pick", "--starts", "1", "--seeds", "2", "--arms", "base", "--probe-states", "0",
         "--demos-per-task", "4", "--workers", "1", "-o", "run"],
    )  # fmt: skip
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "python:two_armed:make gives actions of 14 numbers, but testbed:pick takes 4" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("takes/*/*"))


@pytest.mark.parametrize("command", [("diagnose", "-o", "run"), ("probe",)])
def test_an_encoder_that_did_not_make_the_library_is_refused(made, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    code, lines = said(capsys, *command, *PICK, "--demos", made(), "--encoder", "hog")
    assert (code, len(lines)) == (2, 1)
    assert "was embedded by pixels" in lines[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [("diagnose", "-o", "run"), ("probe",)])
def test_a_task_that_was_not_demonstrated_is_refused(made, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    code, lines = said(capsys, *command, *PICK, "--demos", made(tasks=("drawer", "push")))
    assert (code, len(lines)) == (2, 1)
    assert "no demonstration of pick" in lines[0]
    assert "drawer, push" in lines[0]
    assert not (tmp_path / "run").exists()
