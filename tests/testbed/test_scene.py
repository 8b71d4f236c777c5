import numpy as np
import pytest

from besttake.testbed import scene
from besttake.testbed.tasks import TASKS, World


@pytest.mark.parametrize("task", TASKS)
def test_playing_a_start_leaves_the_model_as_it_was_compiled(task):
    world, fresh = World(task), scene.model(task)
    world.reset(5)
    for action in np.random.default_rng(0).uniform(-1, 1, (10, 4)):
        world.step(action)
    assert np.array_equal(world.model.body_pos, fresh.body_pos)
    assert np.array_equal(world.model.geom_rgba, fresh.geom_rgba)
