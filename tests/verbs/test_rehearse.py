"""Before the first take: a policy whose noise escapes the draw and an env that does not repeat are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import besttake
from besttake import registry
from besttake.errors import ComponentError
from besttake.verbs.diagnose.setup import needs_rehearsal, rehearse

POLICIES = """
import numpy as np
from besttake import FunctionPolicy
own = np.random.default_rng(0)
def drawn(observation, draw): return [draw.normal((1,))] * 4
def of_numpy(observation, draw): return [np.random.normal(size=1)] * 4
def of_its_own(observation, draw): return [own.normal(size=1)] * 4
def still(observation, draw): return [np.zeros(1)] * 4
def _of(act, **more): return lambda: FunctionPolicy(act, horizon=4, action_dim=1, **more)
good, numpy_noise, own_noise, fixed = _of(drawn), _of(of_numpy), _of(of_its_own), _of(still)
untrue, unseeded = _of(drawn, kind="deterministic"), _of(of_its_own, seeded=False)
"""
ENV = """
import gymnasium, numpy as np
class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def __init__(self, fault="none"):
        self.fault = fault
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = (np.random.default_rng() if self.fault == "reset" else self.np_random).uniform(-1, 1, 2)
        return self.place.astype(np.float32), {}
    def step(self, action):
        self.place = self.place + action + (np.random.default_rng().normal() if self.fault == "step" else 0)
        return self.place.astype(np.float32), 0.0, False, False, {"success": False}
    def render(self):
        if self.fault == "drawing":
            raise RuntimeError("no screen")
        return np.full((8, 8, 3), np.random.default_rng().integers(0, 255) if self.fault == "flicker" else 9, np.uint8)
gymnasium.register("Line-v0", Line, max_episode_steps=20)
"""
LINE = "gym:rehearsed_line:Line-v0"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rehearsed_policies.py").write_text(POLICIES)
    (tmp_path / "rehearsed_line.py").write_text(ENV)
    monkeypatch.syspath_prepend(str(tmp_path))


def tried(name: str, env: str = LINE) -> None:
    uri = f"python:rehearsed_policies:{name}"
    rehearse(registry.policy(uri), uri, env)


@pytest.mark.parametrize("name", ["good", "fixed", "unseeded"])
def test_what_repeats_or_cannot_be_seeded_passes(name: str) -> None:
    tried(name)


@pytest.mark.parametrize("name", ["numpy_noise", "own_noise"])
def test_noise_that_does_not_come_from_the_draw_is_refused(name: str) -> None:
    with pytest.raises(ComponentError, match=r"two different chunks for the same .* Take all noise from the draw"):
        tried(name)


def test_a_policy_that_is_called_deterministic_must_be() -> None:
    with pytest.raises(ComponentError, match="calls itself deterministic"):
        tried("untrue")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("reset", r"after reset\(seed=0\) the state is not the same twice.*self.np_random.*repeats=false"),
        ("step", "at step 1 of the same actions the state is not the same twice"),
        ("flicker", "the picture is not the same twice"),
        ("drawing", r"render\(\) failed: RuntimeError: no screen \(rehearsed_line.py:\d+\)"),
    ],
)
def test_an_env_that_does_not_repeat_or_does_not_tell_is_refused(fault: str, told: str) -> None:
    with pytest.raises(ComponentError, match=told) as caught:
        tried("good", f"{LINE}?fault={fault}")
    assert "\n" not in str(caught.value)


def test_repeats_false_accepts_an_env_that_cannot_repeat_and_says_so() -> None:
    uri = f"{LINE}?fault=reset&repeats=false"
    tried("good", uri)
    env = registry.env(uri)
    assert any("repeats=false" in note for note in env.spec.notes)
    env.close()


def test_only_what_may_be_played_is_rehearsed() -> None:
    assert needs_rehearsal("testbed:half", LINE)
    assert needs_rehearsal("python:mine:make", "testbed:pick")
    assert not needs_rehearsal("testbed:half", "testbed:pick"), "ours are tested, and not tried every time"
    assert not needs_rehearsal("python:mine:make", "python:my_robot:make"), "a person would have to set the scene up"


def test_pictures_that_take_long_to_draw_are_told_before_the_first_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
) -> None:
    horizon = registry.env(LINE).spec.tasks[0].horizon
    monkeypatch.setattr("besttake.verbs.diagnose.policies.rehearse", lambda *_: 105 / horizon)  # 21 s every five steps
    plan = besttake.Plan(policy="python:rehearsed_policies:good", env=LINE, starts=60, seeds=1, arms="base", workers=1)
    besttake.diagnose(plan, tmp_path / "run", progress=True)
    assert "those of a take 21 s; score fewer with --stride 25" in capsys.readouterr().err.replace("\n", " ")
