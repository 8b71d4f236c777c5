"""Gymnasium envs of one's own: how success is told, which numbers are the state, and when an env is another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.errors import ComponentError
from besttake.types import Start

ENV = """
import gymnasium, numpy as np
class Counter(gymnasium.Env):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def __init__(self, vectors=1):
        self.vectors = vectors
    def seen(self):
        parts = {"place": np.zeros(2, np.float32), "goal": np.ones(3, np.float32)}
        return parts if self.vectors > 1 else parts["place"]
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}
    def step(self, action):
        self.steps += 1
        return self.seen(), 0.0, self.steps == 2, False, {}
    def render(self):
        return np.zeros((8, 8, 3), np.uint8)
gymnasium.register("Counter-v0", Counter, max_episode_steps=20)
"""
COUNTER = "gym:counter_env:Counter-v0"


@pytest.fixture(autouse=True, scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("envs") / "counter_env.py"
    file.write_text(ENV)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(file.parent))
        yield file


def test_an_env_without_render_modes_is_made_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    env = registry.env(COUNTER)
    assert env.spec.tasks[0].horizon == 20
    assert (env.spec.state_dim, env.spec.action_dim, env.spec.cameras) == (2, 1, ("render",))
    assert not recwarn.list
    env.close()


def test_success_can_be_that_the_env_terminates_but_only_if_one_says_so() -> None:
    env = registry.env(f"{COUNTER}?success=terminated")
    env.reset(Start("Counter-v0", 0))
    told = [env.step(np.zeros(1, np.float32)) for _ in range(2)]
    assert [step.success for step in told] == [False, True]
    env = registry.env(COUNTER)
    env.reset(Start("Counter-v0", 0))
    with pytest.raises(ComponentError, match=r"info has no success or is_success.*add success=terminated if"):
        env.step(np.zeros(1, np.float32))


@pytest.mark.parametrize("ends", ["no", float("nan"), None])
def test_an_end_that_is_neither_true_nor_false_is_no_end(ends: object, monkeypatch: pytest.MonkeyPatch) -> None:
    env = registry.env(f"{COUNTER}?success=terminated")
    env.reset(Start("Counter-v0", 0))
    inner = type(env._inner.unwrapped)  # type: ignore[attr-defined]
    monkeypatch.setattr(inner, "step", lambda self, action: (self.seen(), 0.0, ends, False, {}))
    with pytest.raises(ComponentError, match="terminated is .*, which is neither true nor false"):
        env.step(np.zeros(1, np.float32))


def test_files_may_name_the_env_that_the_user_named(tmp_path: Path) -> None:
    file = registry.FromFile(f"{COUNTER}?vectors=1", tmp_path / "takes.sqlite")
    with pytest.raises(ComponentError, match="names code to run"):
        registry.env(file)
    registry.env(f"{COUNTER}?vectors=1")
    assert registry.env(file).spec.state_dim == 2


def test_of_several_vectors_the_user_says_which_are_the_state() -> None:
    with pytest.raises(ComponentError, match=r"several vectors \(place 2, goal 3 numbers\).*state=place,goal"):
        registry.env(f"{COUNTER}?vectors=2")
    assert registry.env(f"{COUNTER}?vectors=2&state=place,goal").spec.state_dim == 5


def test_an_env_that_mujoco_draws_inside_it_is_drawn_small_too(module: Path) -> None:
    maze = """
class Drawn(Counter):
    def __init__(self, width=480, height=480):
        super().__init__()
        self.size, self.mujoco_renderer = (height, width, 3), None
    def render(self):
        return np.zeros(self.size, np.uint8)
class Maze(Counter):
    def __init__(self, **size):
        super().__init__()
        self.robot = Drawn(**size)
    def render(self):
        return self.robot.render()
gymnasium.register("Maze-v0", Maze, max_episode_steps=20)
"""
    (module.parent / "maze_env.py").write_text(ENV.replace("Counter-v0", "Counter-v1") + maze)
    env = registry.env("gym:maze_env:Maze-v0")
    env.reset(Start("Maze-v0", 0))
    assert env.observe(("render",)).images["render"].shape == (256, 256, 3)
