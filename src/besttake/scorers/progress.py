"""``progress``: does a take move forward through the demonstrations, to their end?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression

from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec, no_rest
from besttake.types import F64


class Progress:
    """The phase that a take has reached by a monotone alignment, less how far it strays from that alignment."""

    spec = ScorerSpec("progress", reads=("nearest", "library"), fingerprint="progress 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``q[last] - sqrt(mean_t (p[t] - q[t])^2)``: p[t] is the phase (0 to 1) of the demonstration frame nearest to
        frame t, q the non-decreasing sequence closest to p. The trace is p."""
        assert demos is not None
        phase = phases(demos)
        scores = []
        for take in takes:
            assert take.nearest is not None
            nearest = take.nearest.frame
            trace = np.where(nearest >= 0, phase[nearest], np.nan)
            scores.append(Score([advance(trace[window]) for window in take.windows], trace.astype(np.float32)))
        return scores


def advance(p: F64) -> float:
    """How far the phases ``p`` (T,) get, and in what order; NaN where there are none or one is not known."""
    if not len(p) or not np.isfinite(p).all():
        return float("nan")
    q = isotonic_regression(p).x
    return float(q[-1] - np.sqrt(np.mean((p - q) ** 2)))


def phases(demos: View) -> F64:
    """How far into its demonstration each frame (F,) is, from 0 at its first frame to 1 at its last."""
    phase = np.zeros(len(demos.frame_demo))
    for demo in demos.demos:
        own = np.flatnonzero(demos.frame_demo == demo)
        steps = demos.frame_step[own].astype(np.float64)
        phase[own] = (steps - steps.min()) / max(float(np.ptp(steps)), 1.0)
    return phase


def make(rest: str) -> Progress:
    """The scorer ``progress``."""
    no_rest("progress", rest)
    return Progress()
