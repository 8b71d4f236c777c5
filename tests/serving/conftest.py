from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Warm


class NoisyPolicy:
    """Chunk = state mean + picture mean + noise of the draw, so that an answer tells what reached the policy."""

    spec = PolicySpec("noisy", "flow", horizon=4, action_dim=3, replan=2, cameras=("wrist",), state_dim=5)

    def sample(
        self,
        observations: Sequence[Observation],
        draws: Sequence[Draw],
        warm: Sequence[Warm | None] | None = None,
    ) -> F32:
        rows = []
        for seen, draw in zip(observations, draws, strict=True):
            if seen.instruction == "fail":
                raise RuntimeError("the model fell over")
            if seen.instruction == "nan":
                rows.append(np.full((4, 3), np.nan, np.float32))
                continue
            rows.append(draw.normal((4, 3)) + seen.state.mean() + seen.images["wrist"].mean())
        return np.stack(rows).astype(np.float32)


@pytest.fixture
def policy() -> NoisyPolicy:
    return NoisyPolicy()


@pytest.fixture
def observation() -> Observation:
    return Observation({"wrist": np.full((8, 8, 3), 2, np.uint8)}, np.full(5, 3, np.float32), "push")
