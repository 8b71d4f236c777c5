"""``smoothness``: how little the executed actions change from step to step. It needs no demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.demos.view import View
from besttake.scorers.base import Footage, Score, ScorerSpec, no_rest


class Smoothness:
    """Minus the mean squared change of the actions."""

    spec = ScorerSpec("smoothness", reads=("actions",), fingerprint="smoothness 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``-mean_t |a[t + 1] - a[t]|^2 / dim`` over the actions of each window; the trace is that of each frame."""
        scores = []
        for take in takes:
            assert take.actions is not None
            changes = np.square(np.diff(take.actions.astype(np.float64), axis=0)).mean(axis=1)
            values = [-float(changes[: end - 1].mean()) if end > 1 else float("nan") for end in take.ends]
            trace = np.full(len(take.steps), np.nan, np.float32)
            within = take.steps < len(changes)
            trace[within] = -changes[take.steps[within]]
            scores.append(Score(values, trace))
        return scores


def make(rest: str) -> Smoothness:
    """The scorer ``smoothness``."""
    no_rest("smoothness", rest)
    return Smoothness()
