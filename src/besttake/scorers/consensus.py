"""``consensus``: how much a take looks like the other takes of its start. It needs no demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.core.arithmetic import product
from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec, no_rest
from besttake.types import F32


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


def make(rest: str) -> Consensus:
    """The scorer ``consensus``."""
    no_rest("consensus", rest)
    return Consensus()
