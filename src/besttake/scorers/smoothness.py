"""A scorer that prefers smooth actions. It needs neither pictures nor demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec


class Smoothness:
    """Minus the mean squared change of the actions."""

    spec = ScorerSpec("smoothness", reads=("actions",), fingerprint="smoothness 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``-mean_t |a[t + 1] - a[t]|^2 / dim`` over the actions of each window."""
        scores = []
        for take in takes:
            assert take.actions is not None
            changes = np.square(np.diff(take.actions.astype(np.float64), axis=0)).mean(axis=1)
            values = [-float(changes[: end - 1].mean()) if end > 1 else float("nan") for end in take.ends]
            scores.append(Score(values))
        return scores
