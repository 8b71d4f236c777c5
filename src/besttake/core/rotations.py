"""Rotations as robot data writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def axis_angle(xyzw: Any) -> NDArray[np.float64]:
    """Unit quaternions (..., 4), x y z w, as rotation vectors (..., 3), as robosuite's ``quat2axisangle`` gives them.

    q and -q, the same rotation, are not folded together: LeRobot and openpi agree on this form, and policies were
    trained on it.
    """
    quaternions = np.asarray(xyzw, np.float64)
    w = np.clip(quaternions[..., 3:], -1.0, 1.0)
    sine = np.sqrt(1.0 - w * w)
    turned = quaternions[..., :3] * 2.0 * np.arccos(w) / np.where(sine == 0, 1.0, sine)
    return np.where(sine == 0, 0.0, turned)
