"""Choosing one of several scorers without fooling oneself: each start is judged by a scorer chosen on other starts.

The scorer with the highest mean gain among many looks better than it is: its gain was part of the choice. Here the
starts come in an order that has nothing to do with outcomes, and each is judged by the scorer with the highest mean
gain on those *before* it. Then no gain was part of its own choice, and, given all before it, the gain of a useless
scorer has mean zero: the gains are martingale differences, as the tests of `besttake.core.stats` and the bets of
`besttake.core.sequential` need.

Folds (chosen on the other four fifths) would also leave each start out of its own choice, and are not enough: when a
useless scorer is lucky everywhere, all folds choose it, and the mean over starts scatters more than its starts say.
With ten useless scorers a gain was then shown in 11 % of runs instead of 5 (`tests/core/test_crossfit.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
FOLDS = 5
_FIRST = 10
"""So many starts are judged by the first scorer, before there is enough to choose by."""


def folds_of(starts: int, folds: int = FOLDS) -> I64:
    """The fold (S,) of each start; neighbours fall into different ones, so that each fold has starts of every task."""
    return np.arange(starts, dtype=np.int64) % max(1, min(folds, starts))


def best(gains: F64) -> int:
    """The scorer with the highest mean gain of ``gains`` (S, K), NaN left out; of equal ones the first."""
    known = np.isfinite(gains)
    means = np.where(known, gains, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return int(np.argmax(np.where(known.any(axis=0), means, -np.inf)))


def chosen_in_order(gains: ArrayLike, order: I64) -> I64:
    """The scorer (S,) that each start is judged by: the best on the starts before it in ``order`` (S,)."""
    values = np.asarray(gains, dtype=np.float64)[order]
    known = np.isfinite(values)
    sums, counts = np.cumsum(np.where(known, values, 0.0), axis=0), np.cumsum(known, axis=0)
    chosen = np.zeros(len(values), dtype=np.int64)
    for place in range(_FIRST, len(values)):
        means = sums[place - 1] / np.maximum(counts[place - 1], 1)
        chosen[order[place]] = int(np.argmax(np.where(counts[place - 1] > 0, means, -np.inf)))
    return chosen
