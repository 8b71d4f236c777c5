"""Scripted demonstrations: they succeed, they vary, they repeat, and they come from no start that is evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from besttake import registry, testing
from besttake.envs.libero.env import LiberoEnv
from besttake.types import Start
from scripted_libero import DEMO_STARTS
from scripted_libero.rollout import attempt

pytestmark = pytest.mark.usefixtures("assets")


def _env(uri: str) -> LiberoEnv:
    env = registry.env(uri)
    assert isinstance(env, LiberoEnv)
    return env


def test_the_expert_succeeds_in_more_than_one_way() -> None:
    env = _env("libero:object?task=2&state=objects")
    name = env.spec.tasks[0].name
    episodes = [attempt(env, Start(name, index)) for index in (5, 6)]
    assert all(each.success for each in episodes)
    assert len({len(each.actions) for each in episodes}) == 2
    for each in episodes:
        assert each.states.shape == (len(each.actions), 18)
        assert each.actions.shape[1] == 7
        assert np.abs(each.actions).max() <= 1
        item, place = each.states[:, 8:11], each.states[:, 15:18]
        # What the goal moves has been moved to where the goal wants it.
        assert np.linalg.norm(item[0, :2] - place[0, :2]) > 0.1
        assert np.linalg.norm(item[-1, :2] - place[-1, :2]) < 0.06
    env.close()


def test_demonstrations_are_a_source_that_repeats_and_uses_no_start_of_the_benchmark() -> None:
    source = registry.demos("libero-scripted:object?task=7&demos_per_task=1&stride=40&size=48")
    assert "repeat" in testing.check_demos(source)
    (demo,) = source
    assert demo.source["start"] in DEMO_STARTS
    assert demo.source["expert"] == "besttake.scripted_libero"  # part of the fingerprint of every library made so far
    assert not set(DEMO_STARTS) & {
        *registry.env("libero:object").spec.starts,
        *registry.env("libero:object").spec.tuning,
    }
    assert demo.frames.shape == (len(demo.frame_steps), 48, 48, 3)
    assert demo.frame_steps.tolist() == list(range(0, len(demo.actions), 40))
    assert source.camera == "wrist"
    assert source.gripper_dim == 6


def test_the_expert_plays_scenes_with_occluders_that_have_no_collision_shape() -> None:
    env = _env("libero-occ:goal?task=1")
    assert attempt(env, Start(env.spec.tasks[0].name, 0)).success
    env.close()
