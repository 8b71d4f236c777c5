import numpy as np
import pytest

from besttake.testbed import seeds
from besttake.testbed.expert import Expert
from besttake.testbed.tasks import HORIZONS, TASKS, World


def _success(task, style, starts, limit=1):
    world, won = World(task), 0
    for seed in starts:
        world.reset(seed)
        expert = Expert(task, np.random.default_rng(seed), style)
        won += any(world.step(expert.act(world)) for _ in range(limit * HORIZONS[task]))
    return won / len(starts)


@pytest.mark.parametrize("task", TASKS)
def test_experts_do_their_task(task):
    assert _success(task, "std", seeds.TUNING[:12]) >= 11 / 12


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_experts_succeed_on_95_percent_of_200_fresh_starts(task):
    assert _success(task, "std", seeds.TUNING[200:400]) >= 0.95
