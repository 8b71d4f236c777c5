from __future__ import annotations

import numpy as np
import pytest

from besttake.core.retrieve import RetrievalConfig
from besttake.verbs.diagnose.rollouts import arm_of, winner

A, B, C = (RetrievalConfig(rule="frame", prior=prior) for prior in (0.1, 0.3, 0.5))
RNG = np.random.default_rng(0)


def outcomes(**rates: float) -> dict[str, np.ndarray]:
    """Outcomes at 200 starts that share their difficulty, by arm."""
    hard = RNG.random(200)
    arms = {arm_of(config): (hard < rates[name]).astype(float) for name, config in (("a", A), ("b", B), ("c", C))}
    return {"cooled?noise=0.1": (hard < 0.5).astype(float), **arms}


def test_the_highest_success_wins_and_of_equals_the_weakest() -> None:
    assert winner(outcomes(a=0.62, b=0.62, c=0.62), [C, B, A]).config == A
    clear = winner(outcomes(a=0.45, b=0.62, c=0.2), [A, B, C])
    assert clear.config == B
    assert clear.content.value == pytest.approx(0.12, abs=0.07)
