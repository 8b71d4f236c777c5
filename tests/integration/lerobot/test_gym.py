"""The Gymnasium envs that LeRobot's policies were trained in: they are seen through their own pictures."""

from __future__ import annotations

import numpy as np
import pytest

from besttake import registry, testing
from besttake.types import Start

PUSHT = "gym:gym_pusht:gym_pusht/PushT-v0"
ALOHA = "gym:gym_aloha:gym_aloha/AlohaTransferCube-v0"


def test_a_pusht_policy_sees_the_picture_inside_the_observation():
    import gymnasium

    env = registry.env(f"{PUSHT}?obs_type=pixels_agent_pos")
    theirs = gymnasium.make("gym_pusht/PushT-v0", obs_type="pixels_agent_pos", disable_env_checker=True)
    env.reset(Start(env.spec.tasks[0].name, 3))
    observed, _ = theirs.reset(seed=3)
    for action in np.random.default_rng(0).uniform(0, 512, (4, 2)).astype(np.float32):
        env.step(action)
        observed, *_ = theirs.step(action)
    seen = env.observe(("pixels",))
    assert np.array_equal(seen.images["pixels"], observed["pixels"])
    assert seen.images["pixels"].shape == (96, 96, 3)
    assert np.array_equal(seen.state, observed["agent_pos"].astype(np.float32))
    env.close()


@pytest.mark.parametrize("uri", [f"{PUSHT}?obs_type=pixels_agent_pos", ALOHA, f"{ALOHA}?obs_type=pixels_agent_pos"])
def test_the_contract_holds(uri):
    env = registry.env(uri)
    assert "starts" in testing.check_env(env, steps=3)
    env.close()
