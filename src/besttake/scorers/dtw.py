"""``dtw``: dynamic time warping to the best demonstration, the control of `progress`: it may stretch time at will."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.core.arithmetic import product
from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec, no_rest
from besttake.types import F32, F64, I64

_BLOCK = 5_000
"""Demonstration frames that a take is compared with at once."""


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
        each = max(1, _BLOCK // max(map(len, parts)))
        blocks = [_padded(parts[first : first + each]) for first in range(0, len(parts), each)]
        scores = []
        for take in takes:
            assert take.embeddings is not None
            counts = [int(window.sum()) for window in take.windows]
            gaps = [warped(take.embeddings, *block, counts) for block in blocks]
            scores.append(Score(-np.concatenate(gaps).min(axis=0)))
        return scores


def _padded(parts: Sequence[F32]) -> tuple[F64, I64]:
    """Demonstrations (J, L, d) of one length, zeros after the end of each, and their own lengths (J,)."""
    lengths = np.array([len(part) for part in parts])
    whole = np.zeros((len(parts), lengths.max(), parts[0].shape[1]))
    for own, part in zip(whole, parts, strict=True):
        own[: len(part)] = part
    return whole, lengths


def warped(take: F32, demos: F64, lengths: I64, counts: Sequence[int]) -> F64:
    """DTW (J, W) of the first ``counts`` (W,) frames of ``take`` (T, d) and each demonstration of ``demos`` (J, L, d).

    Demonstration j has ``lengths[j]`` frames; its distance is divided by the sum of both lengths.
    ``D[t, l] = c[t, l] + min(D[t-1, l], D[t-1, l-1], D[t, l-1])``. With C the running sum of a row of costs, the last
    of the three is ``D[t, l] = C[l] + min_{k <= l} (m[k] - C[k-1])``, m the least of the first two. Nothing that
    follows l counts for it, so that what follows a demonstration's end does no harm.
    """
    count, longest, dim = demos.shape
    cost = 1.0 - product(take.astype(np.float64), demos.reshape(-1, dim).T.astype(np.float64)).reshape(
        len(take), count, longest
    )
    ends = np.full((len(take) + 1, count), np.nan)
    before = np.full((count, longest + 1), np.inf)  # the last row of D, with a column in front of it
    before[:, 0] = 0.0
    for t, own in enumerate(cost):
        total = np.cumsum(own, axis=1)
        come = np.minimum(before[:, 1:], before[:, :-1])
        before[:, 1:] = total + np.minimum.accumulate(come - (total - own), axis=1)
        before[:, 0] = np.inf
        ends[t + 1] = before[np.arange(count), lengths] / (t + 1 + lengths)
    return ends[list(counts)].T


def make(rest: str) -> Warping:
    """The scorer ``dtw``."""
    no_rest("dtw", rest)
    return Warping()
