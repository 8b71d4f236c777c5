import numpy as np
import pytest

from besttake.testbed.tasks import REACH, STATE_DIM, TASKS, World


@pytest.mark.parametrize("task", TASKS)
def test_the_state_says_where_things_are_and_which_task_it_is(task):
    world = World(task)
    world.reset(7)
    state = world.state()
    assert state.shape == (STATE_DIM,)
    assert state.dtype == np.float32
    np.testing.assert_allclose(state[10:13], state[4:7] - state[:3], atol=1e-6)
    np.testing.assert_allclose(state[13:16], state[7:10] - state[4:7], atol=1e-6)
    assert TASKS[int(np.argmax(state[16:]))] == task


def test_the_hand_moves_with_the_action_and_actions_are_bounded():
    world = World("pick")
    moved = []
    for action in ([1.0, 0, 0, -1], [5.0, 0, 0, -1]):
        world.reset(3)
        before = world.hand()
        for _ in range(3):
            world.step(np.array(action))
        moved.append(world.hand() - before)
    assert moved[0][0] > REACH
    assert abs(moved[0][1]) < 0.01
    assert np.array_equal(moved[0], moved[1])


def test_the_gripper_closes_above_zero_and_opens_below():
    world = World("pick")
    world.reset(3)
    for _ in range(6):
        world.step(np.array([0, 0, 0, 1.0]))
    closed = world.opening()
    for _ in range(6):
        world.step(np.array([0, 0, 0, -1.0]))
    assert closed < 0.005 < 0.06 < world.opening()


def test_success_needs_two_steps_and_then_stays():
    world = World("pick")
    world.reset(3)
    joint = world.model.joint("object").qposadr[0]
    away = world.data.qpos[joint : joint + 2].copy()
    world.data.qpos[joint : joint + 2] = world.goal()[:2]
    still = np.array([0, 0, 0, -1.0])
    assert not world.step(still)
    assert world.step(still)
    world.data.qpos[joint : joint + 2] = away
    assert world.step(still)
