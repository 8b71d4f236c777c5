"""What takes get from a policy stays theirs."""

from __future__ import annotations

import numpy as np

from besttake.arms.base import TakeState
from besttake.arms.sampler import arm_sampler
from besttake.core.retrieve import RetrievalConfig
from besttake.takes.draws import Draw
from besttake.types import Observation, PolicySpec, WorldSpec


class Frugal:
    """Gives every call's chunks in the same memory, as models with fixed buffers do."""

    spec = PolicySpec("frugal", "flow", horizon=2, action_dim=3, replan=2)

    def __init__(self):
        self._out = np.zeros((8, 2, 3), np.float32)

    def sample(self, observations, draws, warm=None):
        chunks = self._out[: len(draws)]
        chunks[:] = np.stack([draw.normal((2, 3)) for draw in draws])
        return chunks


def test_a_policy_that_uses_its_memory_again_does_not_change_what_takes_have():
    sampler = arm_sampler(Frugal(), WorldSpec("w", "", 3, 0), RetrievalConfig())

    def chunk(start):
        draw, seen = Draw(0, "task", start, 0), Observation({}, np.zeros(0, np.float32), "")
        return sampler.chunks([TakeState("task", "base", draw, seen, 0, [seen.state], [], [])])[0]

    first = chunk(0)
    before = first.copy()
    chunk(1)
    np.testing.assert_array_equal(first, before)
