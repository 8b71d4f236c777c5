"""Scorers that compare the pictures of a take with those of demonstrations, or of other takes of the same start.

``manifold`` is the paper's score (Eq. 4): how close a take stays to the demonstrations. ``coverage`` adds how much of
the best matching demonstration it visits. ``consensus`` needs no demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.core.arithmetic import product
from besttake.core.score import coverage, manifold
from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.types import F32


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
