import numpy as np
import pytest

from besttake.testbed import seeds
from besttake.testbed.demonstrations import PATIENCE
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


@pytest.mark.parametrize("task", TASKS)
def test_the_other_style_does_its_task_when_it_is_given_time(task):
    assert _success(task, "alt", seeds.TUNING[:8], PATIENCE) >= 7 / 8


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_experts_succeed_on_95_percent_of_200_fresh_starts(task):
    assert _success(task, "std", seeds.TUNING[200:400]) >= 0.95


def test_the_other_style_moves_higher_and_slower():
    def way(style):
        world = World("pick")
        heights, speeds = [], []
        for seed in seeds.TUNING[:5]:
            world.reset(seed)
            expert = Expert("pick", np.random.default_rng(seed), style)
            while not world.succeeded:
                action = expert.act(world)
                world.step(action)
                heights.append(world.hand()[2])
                speeds.append(np.abs(action[:3]).max())
        return np.mean(heights), np.mean(speeds)

    (low, fast), (high, slow) = way("std"), way("alt")
    assert high > low
    assert slow < fast
