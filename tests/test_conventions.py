"""What numbers and pictures mean: recognised where they can be, refused where they are known to differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from besttake.conventions import (
    BRIDGE_STATE,
    CLOSES_UP,
    CONTROLLER,
    LIBERO,
    LIBERO_STATE,
    MANISKILL_BRIDGE,
    METRIC,
    OPENNESS,
    OPENS_UP,
    POSE_STATE,
    Convention,
    Gripper,
    action_in,
    axis_angle,
    check_compatible,
    gripper_by_moments,
    gripper_in,
    state_in,
)  # fmt: skip
from besttake.errors import ComponentError
from besttake.types import EnvSpec, PolicySpec

# As wide as in the published statistics of these sets; the layouts are told apart by what does not overlap.
LIBERO_RANGES = [(-0.5, 0.2), (-0.3, 0.4), (0.0, 1.4), (0.3, 3.7), (-3.6, 3.4), (-1.8, 1.9), (0, 0.041), (-0.041, 0)]
BRIDGE_RANGES = [(-0.04, 0.6), (-0.4, 0.5), (-0.2, 0.4), (-3.1, 3.1), (-1.6, 1.5), (-3.1, 3.1), (0, 0), (0.04, 1.1)]


def env(known=LIBERO, **changes):
    means = replace(known, **changes)
    opens = -1 if means.gripper is None or means.gripper.open == -1 else 1
    return EnvSpec("sim", (), range(1), 7, 8, ("wrist",), "wrist", gripper_dim=6, gripper_open=opens, convention=means)


def policy(**means):
    return PolicySpec("lerobot:org/pi0", "flow", 50, 7, 10, turns_gripper=True, convention=Convention(**means))


def test_states_are_known_by_their_ranges():
    assert state_in(LIBERO_RANGES) == LIBERO_STATE
    assert state_in(BRIDGE_RANGES) == BRIDGE_STATE
    assert state_in([(-1, 1)] * 3 + [(-0.9, 0.99)] * 4 + [(0.0, 1.0)]) == POSE_STATE
    assert state_in([(-5, 5)] * 8) == ""
    # Six joints of a WidowX and its two fingers, as ManiSkill records its Bridge tasks: no pose.
    assert state_in([(-0.8, 0.8)] * 6 + [(0.015, 0.037)] * 2) == ""
    assert state_in([(-1, 1)] * 14) == ""


def test_grippers_and_units_are_known_by_their_ranges():
    libero = [(-0.94, 0.94)] * 3 + [(-0.26, 0.36)] * 3 + [(-1.0, 1.0)]
    bridge = [(-0.03, 0.04)] * 3 + [(-0.2, 0.2)] * 3 + [(0.0, 1.0)]
    assert gripper_in(libero, 6) == Gripper(-1, 1)
    assert gripper_in(bridge, -1) == Gripper(0, 1)
    assert gripper_in(bridge, None) is None
    assert gripper_in([(-3.0, 3.0)], 0) is None
    assert (action_in(libero), action_in(bridge), action_in([(-0.4, 0.4)] * 7)) == (CONTROLLER, METRIC, "")


@pytest.mark.parametrize("chance", [0.2, 0.47, 0.8])
def test_a_gripper_of_two_values_is_known_by_mean_and_deviation(chance):
    opens = np.random.default_rng(0).random(4000) < chance
    zero_one, signed = opens.astype(float), 2.0 * opens - 1
    assert gripper_by_moments(zero_one.mean(), zero_one.std()) == Gripper(0, 1)
    assert gripper_by_moments(signed.mean(), signed.std()) == Gripper(-1, 1)
    assert gripper_by_moments(0.5, 0.2) is None
    assert gripper_by_moments(1.0, 0.0) is None


def test_what_is_not_known_is_never_refused():
    check_compatible(policy(), env())
    check_compatible(policy(gripper=Gripper(-1, 1), state=LIBERO_STATE), env())
    check_compatible(policy(gripper=OPENNESS), replace(env(gripper=None), gripper_dim=None))


@pytest.mark.parametrize(
    ("means", "where", "words"),
    [
        ({"gripper": Gripper(0, 1)}, LIBERO, r"by 0 to 1, but sim takes -1 open, \+1 closed; add \?gripper=libero"),
        ({"gripper": OPENNESS}, MANISKILL_BRIDGE, r"takes \+1 open, -1 closed; add \?gripper=simpler to the policy"),
        ({"gripper": OPENS_UP}, LIBERO, "was not made for this env"),
        ({"state": BRIDGE_STATE}, MANISKILL_BRIDGE, r"add \?state=bridge to the env's URI"),
        ({"state": LIBERO_STATE}, MANISKILL_BRIDGE, "reads a state of position 3, axis-angle 3, fingers 2, but sim"),
        ({"action": METRIC}, LIBERO, "in metres and radians, but sim takes changes of position"),
    ],
)
def test_a_known_conflict_is_one_line_with_the_option_that_mends_it(means, where, words):
    with pytest.raises(ComponentError, match=words) as error:
        check_compatible(policy(**means), env(where))
    assert "\n" not in str(error.value)


def test_openness_becomes_a_command_and_back():
    open_to_closed = np.array([1.0, 0.7, 0.3, 0.0], np.float32)
    assert CLOSES_UP.command(open_to_closed).tolist() == [-1, -1, 1, 1]
    assert OPENS_UP.command(open_to_closed).tolist() == [1, 1, -1, -1]
    assert CLOSES_UP.openness(np.array([-1.0, 0.0, 1.0], np.float32)).tolist() == [1, 0.5, 0]


def test_axis_angle_turns_as_its_quaternion_does():
    turns = Rotation.from_rotvec(np.random.default_rng(1).normal(size=(50, 3)))
    for sign in (1, -1):
        again = Rotation.from_rotvec(axis_angle(sign * turns.as_quat()))
        assert (again * turns.inv()).magnitude().max() < 1e-6


def test_a_canonical_quaternion_gives_scipys_rotation_vector():
    turns = Rotation.random(50, random_state=2)
    np.testing.assert_allclose(axis_angle(turns.as_quat(canonical=True)), turns.as_rotvec(), atol=1e-9)


def test_no_rotation_is_zero_and_rows_do_not_depend_on_each_other():
    np.testing.assert_array_equal(axis_angle([[0, 0, 0, 1.0], [0, 0, 0, -1.0]]), np.zeros((2, 3)))
    quaternions = Rotation.random(9, random_state=3).as_quat()
    np.testing.assert_array_equal(axis_angle(quaternions), [axis_angle(row) for row in quaternions])
