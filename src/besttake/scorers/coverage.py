"""``coverage``: `manifold`, plus how much of its best demonstration a take visits, the later frames weighing more."""

from __future__ import annotations

from collections.abc import Sequence

from besttake.core.score import coverage
from besttake.demos.view import View
from besttake.scorers.base import Footage, Score, ScorerSpec, no_rest


class Coverage:
    """The manifold score plus the visited share of the demonstration that the take follows best."""

    spec = ScorerSpec("coverage", reads=("nearest", "visited"), fingerprint="coverage 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """`besttake.core.score.coverage` for each window; it has no trace of its own."""
        scores = []
        for take in takes:
            assert take.nearest is not None
            assert take.visited is not None
            pairs = zip(take.windows, take.visited, strict=True)
            scores.append(Score([coverage(take.nearest, float(visited), window) for window, visited in pairs]))
        return scores


def make(rest: str) -> Coverage:
    """The scorer ``coverage``."""
    no_rest("coverage", rest)
    return Coverage()
