"""Scorers that compare the pictures of a take with those of demonstrations, or of other takes of the same start.

``manifold`` is the paper's score (Eq. 4): how close a take stays to the demonstrations. ``coverage`` adds how much of
the best matching demonstration it visits. ``progress`` asks whether it moves forward through the demonstrations, to
their end; ``dtw`` is its control, which may stretch time at will. ``last`` compares only the last frames, and
``consensus`` needs no demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import isotonic_regression

from besttake.core.arithmetic import product
from besttake.core.score import coverage, manifold
from besttake.core.search import Index
from besttake.demos.library import View
from besttake.options import Reader
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.scorers.own import OwnLast, Successes, last_likeness
from besttake.types import F32, F64


class Manifold:
    """The mean over a window's frames of the highest cosine to any demonstration frame."""

    spec = ScorerSpec("manifold", reads=("nearest",), fingerprint="manifold 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """Eq. 4 for each window."""
        scores = []
        for take in takes:
            assert take.nearest is not None
            scores.append(Score([manifold(take.nearest, window) for window in take.windows]))
        return scores


class Coverage:
    """The manifold score plus the visited share of the demonstration that the take follows best."""

    spec = ScorerSpec("coverage", reads=("nearest", "visited"), fingerprint="coverage 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """`besttake.core.score.coverage` for each window."""
        scores = []
        for take in takes:
            assert take.nearest is not None
            assert take.visited is not None
            pairs = zip(take.windows, take.visited, strict=True)
            scores.append(Score([coverage(take.nearest, float(visited), window) for window, visited in pairs]))
        return scores


class Progress:
    """The phase that a take has reached by a monotone alignment, less how far it strays from that alignment."""

    spec = ScorerSpec("progress", reads=("nearest", "library"), fingerprint="progress 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``q[last] - sqrt(mean_t (p[t] - q[t])^2)``: p[t] is the phase (0 to 1) of the demonstration frame nearest to
        frame t, q the non-decreasing sequence closest to p."""
        assert demos is not None
        phase = phases(demos)
        scores = []
        for take in takes:
            assert take.nearest is not None
            nearest = take.nearest.frame
            p = np.where(nearest >= 0, phase[nearest], np.nan)
            scores.append(Score([advance(p[window]) for window in take.windows]))
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


class Warping:
    """Minus the warped distance to the nearest demonstration, per frame."""

    spec = ScorerSpec("dtw", reads=("embeddings", "library"), fingerprint="dtw 2")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``-min_j DTW(take, demonstration j) / (T + L_j)`` for the T frames of each window, at cost 1 - cosine."""
        assert demos is not None
        parts = []
        for demo in demos.demos:
            rows = np.flatnonzero(demos.frame_demo == demo)
            parts.append(demos.embeddings[rows[np.argsort(demos.frame_step[rows], kind="stable")]])
        scores = []
        for take in takes:
            assert take.embeddings is not None
            counts = [int(window.sum()) for window in take.windows]
            scores.append(Score(-np.min([warped(take.embeddings, part, counts) for part in parts], axis=0)))
        return scores


def warped(take: F32, demo: F32, counts: Sequence[int]) -> F64:
    """DTW (W,) of the first ``counts`` (W,) frames of ``take`` (T, d) and ``demo`` (L, d), divided by their lengths.

    ``D[t, l] = c[t, l] + min(D[t-1, l], D[t-1, l-1], D[t, l-1])``. With C the running sum of a row of costs, the last
    of the three is ``D[t, l] = C[l] + min_{k <= l} (m[k] - C[k-1])``, m the least of the first two.
    """
    cost = 1.0 - product(take.astype(np.float64), demo.T.astype(np.float64))
    ends = np.full(len(take) + 1, np.nan)
    before = np.full(len(demo) + 1, np.inf)  # the last row of D, with a column in front of it
    before[0] = 0.0
    for t, own in enumerate(cost):
        total = np.cumsum(own)
        come = np.minimum(before[1:], before[:-1])
        before[1:] = total + np.minimum.accumulate(come - (total - own))
        before[0] = np.inf
        ends[t + 1] = before[-1] / (t + 1 + len(demo))
    return ends[list(counts)]


class Last:
    """``mean_t max_f S[t, f]`` over the last ``count`` frames t of each window and f of each demonstration."""

    def __init__(self, count: int, name: str = "last") -> None:
        self._count = count
        self.spec = ScorerSpec(name, reads=("embeddings", "library"), fingerprint=f"last 1 {count}")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """For each window; NaN where it has no frame."""
        assert demos is not None
        index = _ends(demos, self._count)
        return [last_likeness(take, index, self._count) for take in takes]


@lru_cache(maxsize=8)
def _ends(demos: View, count: int) -> Index:
    """The last ``count`` frames of each demonstration."""
    rows: list[int] = []
    for demo in demos.demos:
        own = np.flatnonzero(demos.frame_demo == demo)
        rows += own[np.argsort(demos.frame_step[own], kind="stable")][-count:].tolist()
    frames: F32 = demos.embeddings[np.array(rows)]
    return Index.build(frames)


def make_last(rest: str, frames: str = "3", name: str = "") -> Last | OwnLast:
    """``last``, or ``last:RUN`` for the successes of a run on tuning starts (``last own``), unless it has a ``name``.

    ``frames`` counts the last ones.
    """
    count = Reader("last").whole("frames", frames)
    if rest:
        return OwnLast(Successes.of("last", rest), count, name or "last own")
    return Last(count, name or "last")


class Consensus:
    """Mean frame-by-frame similarity of a take to the other takes of its start."""

    spec = ScorerSpec("consensus", reads=("embeddings",), fingerprint="consensus 1", compares=True)

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``mean_j mean_t max_u <e[t], e_j[u]>`` over the frames of each window, j being the other takes."""
        return [
            Score([_likeness(takes, i, window) for window in range(len(take.windows))]) for i, take in enumerate(takes)
        ]


def _likeness(takes: Sequence[Footage], i: int, window: int) -> float:
    own = _seen(takes[i], window)
    others = [seen for j, take in enumerate(takes) if j != i and len(seen := _seen(take, window))]
    if not len(own) or not others:
        return float("nan")
    # Sorted, so that the order of the takes does not reach the last bit.
    return float(np.mean(sorted(float(product(own, other.T).max(axis=1).mean(dtype=np.float64)) for other in others)))


def _seen(take: Footage, window: int) -> F32:
    assert take.embeddings is not None
    return take.embeddings[take.windows[window]]
