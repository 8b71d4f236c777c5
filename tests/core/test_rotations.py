from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from besttake.core.rotations import axis_angle


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
