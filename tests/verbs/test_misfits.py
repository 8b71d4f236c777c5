"""Parts that do not fit each other, through the commands that a user types: one line, exit code 2, nothing written."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.fixture
def refused(call):
    """Expects that a command line is refused, in one line, which it returns."""

    def run(*words):
        code, _, written = call(*words)
        (line,) = (line for line in written.splitlines() if line.strip())
        assert code == 2
        return line

    return run


PICK = ("--policy", "testbed:half", "--env", "testbed:pick")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"actions": 7}, "actions of 7 numbers, but testbed:half has 4"),
        ({"states": 8}, "states of 8 numbers, but testbed:half has 20"),
    ],
)
def test_the_probe_of_another_robot_is_one_line(made, refused, shape, words):
    assert words in refused("probe", *PICK, "--demos", made(**shape))


def test_a_later_policy_that_does_not_fit_is_noticed_before_the_first_take(tmp_path, module, call):
    module(
        "two_armed",
        "from dataclasses import replace\nfrom besttake import registry\n"
        "def make():\n"
        "    policy = registry.policy('testbed:few')\n"
        "    policy.spec = replace(policy.spec, name='two-armed', action_dim=14)\n"
        "    return policy\n",
    )
    few = ("--starts", 1, "--seeds", 2, "--arms", "base", "--probe-states", 0, "--demos-per-task", 4, "--workers", 1)
    code, _, written = call("diagnose", *PICK, "--policy", "python:two_armed:make", *few, "-o", tmp_path / "run")
    assert code == 2
    assert "python:two_armed:make gives actions of 14 numbers, but testbed:pick takes 4" in written
    assert not list((tmp_path / "run").glob("takes/*/*"))


@pytest.mark.parametrize("command", [("diagnose", "-o", "run"), ("probe",)])
def test_an_encoder_that_did_not_make_the_library_is_refused(made, tmp_path, monkeypatch, refused, command):
    monkeypatch.chdir(tmp_path)
    assert "was embedded by pixels" in refused(*command, *PICK, "--demos", made(), "--encoder", "hog")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [("diagnose", "-o", "run"), ("probe",)])
def test_a_task_that_was_not_demonstrated_is_refused(made, tmp_path, monkeypatch, refused, command):
    monkeypatch.chdir(tmp_path)
    line = refused(*command, *PICK, "--demos", made(tasks=("drawer", "push")))
    assert "no demonstration of pick" in line
    assert "drawer, push" in line
    assert not (tmp_path / "run").exists()
