"""A policy of your own: BestTake asks for chunks of actions, and gives the randomness."""

import numpy as np

from besttake.types import PolicySpec


class Clumsy:
    """Heads for the dot, but misjudges where it is, anew for every chunk of eight actions."""

    spec = PolicySpec(
        name="clumsy", kind="flow", horizon=8, action_dim=2, replan=8, cameras=(), state_dim=4,
        cools=True, small=True, fingerprint="clumsy, version 1",
    )  # fmt: skip

    def sample(self, observations, draws, warm=None):
        """One chunk per row, float32 (rows, horizon, action_dim). All noise comes from the row's draw."""
        chunks = []
        for row, (observation, draw) in enumerate(zip(observations, draws, strict=True)):
            calmer = warm[row].alpha if warm and warm[row] else 0.0  # the arm `cooled` asks for less noise
            point, dot = observation.state[:2], observation.state[2:]
            aim = dot + 0.16 * (1 - calmer) * draw.normal((2,))
            chunks.append([np.clip(1.25 * (aim - point), -1, 1)] * 8)  # eight such steps lead to the aim
        return np.asarray(chunks, np.float32)


def make():
    """Called for `--policy python:policy:make`."""
    return Clumsy()
