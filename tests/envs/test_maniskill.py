"""The parts of `maniskill:` that need no simulator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from besttake.envs.maniskill import bridge_state

# A gripper that points down, as bridge_data_robot's WidowX controller has it.
DOWN = [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]


def pose(turn: Rotation) -> np.ndarray:
    x, y, z, w = turn.as_quat()
    return np.array([0.3, 0.1, 0.2, w, x, y, z])


def test_a_gripper_that_points_down_has_no_roll_pitch_or_yaw() -> None:
    state = bridge_state(pose(Rotation.from_matrix(DOWN)), 0.8)
    assert state == pytest.approx([0.3, 0.1, 0.2, 0, 0, 0, 0, 0.8], abs=1e-6)
    assert state.dtype == np.float32


def test_angles_are_those_about_fixed_axes_x_then_y_then_z() -> None:
    """The formula for static xyz angles, as transforms3d and SimplerEnv's policies use it, written out."""
    turn = Rotation.from_rotvec([0.4, -0.7, 0.3]) * Rotation.from_matrix(DOWN)
    m = turn.as_matrix() @ np.array(DOWN).T
    flat = math.hypot(m[0, 0], m[1, 0])
    expected = [math.atan2(m[2, 1], m[2, 2]), math.atan2(-m[2, 0], flat), math.atan2(m[1, 0], m[0, 0])]
    assert bridge_state(pose(turn), 1.0)[3:6] == pytest.approx(expected, abs=1e-6)
