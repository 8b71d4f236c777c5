"""MetaWorld through Gymnasium: the contract, and seeds that are starts although MetaWorld ignores them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from besttake import registry, testing
from besttake.errors import ComponentError
from besttake.types import Start

METAWORLD = "gym:metaworld:Meta-World/MT1?env_name={}&seed=0&goes_on=true&camera_name=corner2&width=64&height=64"


@pytest.mark.parametrize("task", ["reach-v3", "drawer-open-v3"])
def test_the_contract_holds_for_metaworld(task: str) -> None:
    env = registry.env(METAWORLD.format(task))
    assert "starts" in testing.check_env(env, steps=5)
    assert env.spec.tasks[0].name == task
    assert env.spec.tasks[0].horizon == 500
    env.close()


def test_metaworlds_own_expert_succeeds_and_success_stays() -> None:
    from metaworld.policies import SawyerReachV3Policy

    env: Any = registry.env(METAWORLD.format("reach-v3"))
    env.reset(Start("reach-v3", 0))
    expert, reached = SawyerReachV3Policy(), []
    # MetaWorld hides the goal from MT observations of float32; the expert reads the env's own.
    for _ in range(80):
        observed = env._inner.unwrapped._get_obs()
        step = env.step(np.clip(expert.get_action(observed), -1, 1).astype(np.float32))
        reached.append(step.success)
        assert not step.done
    assert reached[-1]
    assert sorted(reached) == reached
    env.close()


def test_gymnasiums_own_envs_work_when_told_where_success_is() -> None:
    env = registry.env("gym:MountainCarContinuous-v0?success=goal&starts=5&horizon=20")
    assert env.spec.starts == range(5)
    env.reset(Start("MountainCarContinuous-v0", 0))
    with pytest.raises(ComponentError, match=r"info has no goal .* name the key with success="):
        env.step(np.zeros(1, np.float32))
    env.close()
