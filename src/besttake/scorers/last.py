"""``last``: the last frames of a take against the last frames of demonstrations, or of the policy's own successes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from besttake.core.search import Index
from besttake.demos.library import View
from besttake.options import Reader
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.scorers.own import Successes
from besttake.types import F32


class Last:
    """``mean_t max_f S[t, f]`` over the last ``count`` frames t of each window and f of each demonstration."""

    def __init__(self, count: int, name: str = "last") -> None:
        self._count = count
        self.spec = ScorerSpec(name, reads=("embeddings", "library"), fingerprint=f"last 1 {count}")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """For each window; NaN where it has no frame."""
        assert demos is not None
        index = _ends(demos, self._count)
        return [likeness(take, index, self._count) for take in takes]


class OwnLast:
    """`Last` with the policy's own successes instead of demonstrations."""

    def __init__(self, successes: Successes, count: int, name: str = "last own") -> None:
        self._count = count
        self.spec = successes.spec(name, f"last of successes 1 {count}")

        @cache
        def index(policy: str, task: str) -> Index | None:
            frames = successes.frames(policy, task, count)
            return Index.build(frames) if len(frames) else None

        self._index = index

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """For each window; NaN where the policy had no success on the task."""
        return [likeness(take, self._index(take.policy, take.task), self._count) for take in takes]


def likeness(take: Footage, index: Index | None, count: int) -> Score:
    """The mean highest cosine of the last ``count`` frames of each window to those of ``index``."""
    assert take.embeddings is not None
    if index is None:
        return Score([float("nan")] * len(take.windows))
    trace = index.nearest(take.embeddings).best
    ends = [trace[window][-count:] for window in take.windows]
    return Score([float(end.mean(dtype=np.float64)) if len(end) else float("nan") for end in ends], trace)


@lru_cache(maxsize=8)
def _ends(demos: View, count: int) -> Index:
    """The last ``count`` frames of each demonstration."""
    rows: list[int] = []
    for demo in demos.demos:
        own = np.flatnonzero(demos.frame_demo == demo)
        rows += own[np.argsort(demos.frame_step[own], kind="stable")][-count:].tolist()
    frames: F32 = demos.embeddings[np.array(rows)]
    return Index.build(frames)


def make(rest: str, frames: str = "3", name: str = "") -> Last | OwnLast:
    """``last``, or ``last:RUN`` for the successes of a run on tuning starts (``last own``), unless it has a ``name``.

    ``frames`` counts the last ones.
    """
    count = Reader("last").whole("frames", frames)
    if rest:
        return OwnLast(Successes.of("last", rest), count, name or "last own")
    return Last(count, name or "last")
