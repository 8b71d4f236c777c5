"""LIBERO's conventions, each in one place: which way up pictures are, what opens the gripper, how long things settle.

Everything in BestTake that touches LIBERO (the env, HDF5 demonstrations, scripted experts, OpenVLA) reads them here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from besttake.types import U8

Convention = Literal["lerobot", "openpi", "vla-eval"]
"""Whose evaluation is followed."""


@dataclass(frozen=True)
class Evaluation:
    """How one harness runs LIBERO: steps per suite, edge of the pictures as rendered and as given to a policy.

    ``folds``: the axis-angle in the state is that of the shorter turn, where the others take the quaternion as it is.
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
"""As lerobot-eval 0.6.1, openpi's examples/libero and vla-eval 0.8.0 have them by default."""
CAMERAS = {"agentview": "agentview", "wrist": "robot0_eye_in_hand"}
"""BestTake's camera names and robosuite's."""
SETTLE_STEPS = 10
"""Steps of `REST` after each reset, so that objects come to rest, as every LIBERO evaluator does."""
GRIPPER_DIM = 6
GRIPPER_OPEN = -1
"""The gripper command is the last of 7 action numbers: -1 opens and +1 closes."""
REST = np.array([0, 0, 0, 0, 0, 0, GRIPPER_OPEN], np.float32)
"""The action that stands still with the gripper open."""


def upright(pictures: U8) -> U8:
    """Flip LIBERO's pictures (..., H, W, 3), as robosuite renders and its HDF5 files store them, in both directions.

    They have their bottom row first. LeRobot and openpi rotate them by 180 degrees before a policy sees them, which
    also swaps left and right, and policies were trained on that; so do we.
    """
    return np.ascontiguousarray(pictures[..., ::-1, ::-1, :])


def as_evaluated(picture: U8, size: int) -> U8:
    """An upright picture brought to ``size`` x ``size`` pixels, bilinear as openpi does."""
    if picture.shape[:2] == (size, size):
        return picture
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR), np.uint8)
