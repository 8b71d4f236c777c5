"""Choosing one take per start (Eq. 5), and the controls that a choice is measured against.

A selector is an array of scores (S, N), higher is better, NaN or infinite where a take has no valid score. Within a
start takes are ordered by score, ties to the lowest seed, takes without a valid score last; the choice among any
subset of takes is the first of it in that order. `shortest` is the same with ``-lengths`` as the score; `random` is
its exact expectation, which is pass@1; `oracle` is pass@n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from besttake.core.arithmetic import product
from besttake.core.headroom import F64, as_outcomes, chance_of_none, mean, start_headroom, start_pass_at_k, width


@dataclass(frozen=True)
class Picks:
    """``index`` (S,): the chosen seed column, -1 where a start has no take.

    ``invalid``: takes that exist but have no valid score; ``blind``: starts where no take has one, so that the
    lowest seed was kept.
    """

    index: NDArray[np.int64]
    invalid: int
    blind: int


@dataclass(frozen=True)
class Selection:
    """A selector on one cell with n takes per start: success (S,) and gain over pass@1, G_i (S,), of each start."""

    n: int
    successes: F64
    gains: F64

    @property
    def success(self) -> float:
        """Mean success over starts."""
        return mean(self.successes)

    @property
    def gain(self) -> float:
        """Mean gain over starts."""
        return mean(self.gains)


def order(scores: ArrayLike, outcomes: ArrayLike) -> NDArray[np.int64]:
    """Seed columns (S, N) of each start from first to last choice; takes that do not exist stand at the end."""
    taken = np.isfinite(as_outcomes(outcomes))
    values = _scores(scores, taken)
    valid = np.isfinite(values)
    group = np.where(taken, np.where(valid, 0, 1), 2)
    seeds = np.broadcast_to(np.arange(taken.shape[1]), taken.shape)
    return np.lexsort((seeds, -np.where(valid, values, 0.0), group), axis=1)


def pick(scores: ArrayLike, outcomes: ArrayLike) -> Picks:
    """The chosen take of each start (Eq. 5)."""
    taken = np.isfinite(as_outcomes(outcomes))
    valid = np.isfinite(_scores(scores, taken)) & taken
    exists = taken.any(axis=1)
    return Picks(
        index=np.where(exists, order(scores, outcomes)[:, 0], -1),
        invalid=int(np.sum(taken & ~valid)),
        blind=int(np.sum(exists & ~valid.any(axis=1))),
    )


def rank_weights(k: int, n: int) -> F64:
    """Chance (k,) that the r-th best of k takes is the best of a random n of them: C(k - r, n - 1) / C(k, n)."""
    if not 1 <= n <= k:
        raise ValueError(f"cannot choose among {n} of {k} takes")
    r = np.arange(1, k + 1)
    return n / k * chance_of_none(k - 1, r - 1, n - 1)


def start_selected(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> F64:
    """Success (S,) of the selector with n takes per start, averaged over all n-subsets of the takes a start has."""
    array = as_outcomes(outcomes)
    n = width(array, n)
    ranked = np.take_along_axis(array, order(scores, array), axis=1)
    takes = np.isfinite(array).sum(axis=1)
    success = np.full(len(array), np.nan)
    for k in np.unique(takes[takes > 0]):
        rows, size = takes == k, min(n, int(k))
        # With n = k the choice is one take: read it off, so that no rounding enters.
        weights = rank_weights(int(k), size)[:, None]
        success[rows] = ranked[rows, 0] if size == k else product(ranked[rows, :k], weights)[:, 0]
    return success


def start_gain(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> F64:
    """G_i (S,): success of the selector minus the mean of the start's takes. Never above H_i."""
    return start_selected(outcomes, scores, n) - start_pass_at_k(outcomes, 1)


def select(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> Selection:
    """A selector by score on one cell."""
    array = as_outcomes(outcomes)
    n = width(array, n)
    successes = start_selected(array, scores, n)
    return Selection(n, successes, successes - start_pass_at_k(array, 1))


def shortest(outcomes: ArrayLike, lengths: ArrayLike, n: int | None = None) -> Selection:
    """The control that keeps the shortest take: what episode length alone gives away."""
    return select(outcomes, -np.asarray(lengths, dtype=np.float64), n)


def random(outcomes: ArrayLike, n: int | None = None) -> Selection:
    """The control that keeps any take, by its exact expectation: pass@1, gain 0."""
    base = start_pass_at_k(outcomes, 1)
    return Selection(width(outcomes, n), base, base - base)


def oracle(outcomes: ArrayLike, n: int | None = None) -> Selection:
    """The control that sees success: pass@n, gain = headroom."""
    n = width(outcomes, n)
    return Selection(n, start_pass_at_k(outcomes, n), start_headroom(outcomes, n))


def follows_length(outcomes: ArrayLike, scores: ArrayLike, lengths: ArrayLike, *, pairs: int = 10) -> bool:
    """Whether a score is little but the length of a take: of two takes of a start that ended alike, the shorter one
    scores higher 19 times in 20. Length gives outcomes away, so takes that ended differently cannot tell.

    False where there are fewer than ``pairs`` such pairs.
    """
    y, s, steps = (np.asarray(part, dtype=np.float64) for part in (outcomes, scores, lengths))
    alike = (y[:, :, None] == y[:, None, :]) & np.isfinite(s)[:, :, None] & np.isfinite(s)[:, None, :]
    shorter = alike & (steps[:, :, None] < steps[:, None, :])
    count = int(shorter.sum())
    higher = int((shorter & (s[:, :, None] > s[:, None, :])).sum())
    return count >= pairs and higher >= 0.95 * count


def silent(outcomes: ArrayLike, scores: ArrayLike) -> bool:
    """Whether a score tells no two takes of any start apart, so that the order of the seeds is all that it picks by."""
    values = np.where(np.isfinite(np.asarray(outcomes, dtype=np.float64)), np.asarray(scores, dtype=np.float64), np.nan)
    valid = np.isfinite(values)
    highest, lowest = np.where(valid, values, -np.inf).max(axis=1), np.where(valid, values, np.inf).min(axis=1)
    return not bool(np.any(highest > lowest))


def selection_curve(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> F64:
    """Success of the selector (n,) with 1, 2, .. n takes per start, each averaged over all subsets."""
    return np.array([mean(start_selected(outcomes, scores, k)) for k in range(1, width(outcomes, n) + 1)])


def capture(gain: float, headroom: float) -> float | None:
    """gain / headroom; None where there is no headroom to capture."""
    return gain / headroom if headroom > 1e-12 else None


def _scores(scores: ArrayLike, taken: NDArray[np.bool_]) -> F64:
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != taken.shape:
        raise ValueError(f"scores have shape {values.shape}, outcomes {taken.shape}")
    return values
