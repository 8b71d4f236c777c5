"""A real robot without a simulator: what BestTake can measure on its demonstrations alone.

``besttake probe`` asks a policy for chunks at demonstrated states, so the env only has to say what the robot is like.
"""

import numpy as np

from besttake.core.retrieve import warm_start
from besttake.types import EnvSpec, PolicySpec, TaskSpec


class WidowX:
    """The WidowX of BridgeData V2 as its LeRobot sets describe it: pose and gripper, 5 steps a second."""

    spec = EnvSpec(
        "widowx", (TaskSpec("put carrot on plate", "carrot", "put carrot on plate", horizon=60),), range(100),
        action_dim=7, state_dim=7, cameras=("image_0",), score_camera="image_0", gripper_dim=6, gripper_open=1,
        eef_dims=(0, 1, 2), fps=5,
    )  # fmt: skip

    def reset(self, start):
        """Nobody can: this is a real robot. `besttake serve` runs a session on one."""
        raise NotImplementedError

    step = observe = reset

    def close(self):
        """Nothing is held."""


class Still:
    """A flow policy that hardly moves and keeps the gripper open: the least that a policy of yours should beat."""

    spec = PolicySpec(
        "still", "flow", horizon=8, action_dim=7, replan=8, state_dim=7, warm_start=True, cools=True, fingerprint="1"
    )

    def sample(self, observations, draws, warm=None):
        """Noise of a hundredth, warm-started like that of any flow policy; the gripper stays open."""
        rows = []
        for draw, start in zip(draws, warm or [None] * len(draws), strict=True):
            eps = 0.01 * draw.normal((8, 7))
            eps[:, 6] = 1
            rows.append(eps if start is None else warm_start(eps, start.noise, start.prior, start.chunk))
        return np.asarray(rows, np.float32)
