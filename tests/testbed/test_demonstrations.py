import numpy as np

from besttake import registry
from besttake.testbed import seeds
from besttake.testbed.demonstrations import demonstrations
from besttake.testbed.tasks import TASKS, World


def test_replaying_the_actions_of_a_demonstration_visits_its_states_and_succeeds():
    for task in TASKS:
        demo = next(demonstrations(task, seeds.LIBRARY))
        world = World(task)
        world.reset(demo.seed)
        for state, action in zip(demo.states, demo.actions, strict=True):
            assert np.array_equal(world.state(), state)
            world.step(action)
        assert world.succeeded


def test_the_source_gives_the_same_bits_each_time_it_is_read():
    source = registry.demos("testbed", demos_per_task=2)
    first, second = list(source), list(source)
    assert len(first) == len(source) == 8
    assert [demo.id for demo in first] == [demo.id for demo in second]
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.frames, b.frames)
        assert np.array_equal(a.states, b.states)
        assert np.array_equal(a.actions, b.actions)


def test_what_decides_the_demonstrations_decides_the_fingerprint():
    prints = {
        registry.demos(uri).fingerprint
        for uri in ("testbed", "testbed:pick", "testbed?stride=1", "testbed?demos_per_task=3", "testbed?style=alt")
    }
    assert len(prints) == 5
