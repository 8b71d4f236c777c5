"""Scorers that compare the pictures of a take with those of demonstrations.

``manifold`` is the paper's score (Eq. 4): how close a take stays to the demonstrations. ``coverage`` adds how much of
the best matching demonstration it visits.
"""

from __future__ import annotations

from collections.abc import Sequence

from besttake.core.score import coverage, manifold
from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec


class Manifold:
    """The mean over the frames of a window of the highest cosine to any demonstration frame."""

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
