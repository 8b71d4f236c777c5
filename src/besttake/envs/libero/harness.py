"""LIBERO's conventions: which way up pictures are, which command opens the gripper, how long objects settle.

Everything in BestTake that uses LIBERO (the env, HDF5 demonstrations, scripted experts, OpenVLA) takes them from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from besttake.types import U8

Convention = Literal["lerobot", "openpi", "vla-eval"]
"""The harness whose evaluation is reproduced."""


@dataclass(frozen=True)
class Evaluation:
    """How one harness runs LIBERO: steps per suite, side of the pictures as rendered and as given to a policy.

    ``folds``: the axis-angle in the state is that of the shorter rotation; others convert the quaternion as it is.
    """

    horizons: Mapping[str, int]
    rendered: int
    given: int
    folds: bool = False


_HORIZONS = {"spatial": 220, "object": 280, "goal": 300, "10": 520, "90": 400}
EVALUATIONS: Mapping[Convention, Evaluation] = {
    "lerobot": Evaluation({**_HORIZONS, "spatial": 280}, 360, 360),
    "openpi": Evaluation(_HORIZONS, 256, 224),
    "vla-eval": Evaluation(_HORIZONS, 256, 256, folds=True),
}
"""The defaults of lerobot-eval 0.6.1, openpi's examples/libero and vla-eval 0.8.0."""
CAMERAS = {"agentview": "agentview", "wrist": "robot0_eye_in_hand"}
"""BestTake's camera names and robosuite's."""
SETTLE_STEPS = 10
"""Steps of `REST` after each reset, so that objects come to rest, as in every LIBERO evaluation."""
GRIPPER_DIM = 6
GRIPPER_OPEN = -1
"""The gripper command is the last of 7 action numbers: -1 opens and +1 closes."""
REST = np.array([0, 0, 0, 0, 0, 0, GRIPPER_OPEN], np.float32)
"""The action that keeps the arm still with the gripper open."""


def upright(pictures: U8) -> U8:
    """Rotate pictures (..., H, W, 3), as robosuite renders them and LIBERO's HDF5 files store them, by 180 degrees.

    Their bottom row comes first. LeRobot and openpi also rotate them by 180 degrees, which swaps left and right as
    well; policies were trained on that.
    """
    return np.ascontiguousarray(pictures[..., ::-1, ::-1, :])


def as_evaluated(picture: U8, size: int) -> U8:
    """An upright picture resized to ``size`` x ``size`` pixels, bilinearly as by openpi."""
    if picture.shape[:2] == (size, size):
        return picture
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR), np.uint8)
