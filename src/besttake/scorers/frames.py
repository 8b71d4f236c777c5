"""Scorers that compare the pictures of a take with those of demonstrations, or of other takes of the same start.

``manifold`` is the paper's score (Eq. 4): how close a take stays to the demonstrations. ``coverage`` adds how much of
the best matching demonstration it visits. ``last`` compares only the last frames, and ``consensus`` needs no
demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from besttake.core.arithmetic import product
from besttake.core.score import coverage, manifold
from besttake.core.search import Index
from besttake.demos.library import View
from besttake.options import Reader
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


class Last:
    """``mean_t max_f S[t, f]`` over the last ``count`` frames t of each window and f of each demonstration."""

    def __init__(self, count: int, name: str = "last") -> None:
        self._count = count
        self.spec = ScorerSpec(name, reads=("embeddings", "library"), fingerprint=f"last 1 {count}")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """For each window; NaN where it has no frame."""
        assert demos is not None
        index = _ends(demos, self._count)
        return [_last_likeness(take, index, self._count) for take in takes]


@lru_cache(maxsize=8)
def _ends(demos: View, count: int) -> Index:
    """The last ``count`` frames of each demonstration."""
    rows: list[int] = []
    for demo in demos.demos:
        own = np.flatnonzero(demos.frame_demo == demo)
        rows += own[np.argsort(demos.frame_step[own], kind="stable")][-count:].tolist()
    frames: F32 = demos.embeddings[np.array(rows)]
    return Index.build(frames)


def _last_likeness(take: Footage, index: Index | None, count: int) -> Score:
    """The mean highest cosine of the last ``count`` frames of each window to those of ``index``."""
    assert take.embeddings is not None
    if index is None:
        return Score([float("nan")] * len(take.windows))
    trace = index.nearest(take.embeddings).best
    ends = [trace[window][-count:] for window in take.windows]
    return Score([float(end.mean(dtype=np.float64)) if len(end) else float("nan") for end in ends])


def make_last(_: str = "", frames: str = "3", name: str = "last") -> Last:
    """``last``, where ``frames`` counts the last ones."""
    return Last(Reader("last").whole("frames", frames), name)


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
