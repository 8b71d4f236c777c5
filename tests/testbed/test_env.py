import pickle
from typing import Any

import numpy as np
import pytest

from besttake import registry, testing
from besttake.testbed.tasks import TASKS
from besttake.types import Start


def _actions(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 4)).astype(np.float32)


@pytest.mark.parametrize("task", TASKS)
def test_each_task_keeps_the_contract_of_an_env(task):
    held = testing.check_env(registry.env(f"testbed:{task}"))
    assert held == ("spec", "observe", "reset", "lazy", "starts", "restore")


@pytest.mark.parametrize("task", TASKS)
def test_a_snapshot_taken_in_the_middle_goes_on_bit_for_bit_in_another_env(task):
    first: Any = registry.env("testbed")
    second: Any = registry.env("testbed")
    first.reset(Start(task, 4))
    for action in _actions(15):
        first.step(action)
    snapshot = pickle.loads(pickle.dumps(first.save()))
    second.reset(Start("drawer", 9))
    second.step(_actions(1)[0])
    second.restore(snapshot)
    for action in _actions(25, seed=1):
        assert first.step(action) == second.step(action)
        a, b = first.observe(("wrist",)), second.observe(("wrist",))
        assert np.array_equal(a.state, b.state)
        assert np.array_equal(a.images["wrist"], b.images["wrist"])
    assert np.array_equal(first.save().physics, second.save().physics)
