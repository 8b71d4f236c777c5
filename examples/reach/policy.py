"""A policy: heads for the dot, but misjudges where it is, anew for every chunk of eight actions."""

import numpy as np

from besttake import FunctionPolicy


def clumsy(observation, draw, noise):
    point, dot = observation.state[:2], observation.state[2:]
    aim = dot + 0.16 * noise * draw.normal((2,))
    return [np.clip(1.25 * (aim - point), -1, 1)] * 8  # eight such steps lead to the aim


def make():
    return FunctionPolicy(clumsy, horizon=8, action_dim=2, small=True)
