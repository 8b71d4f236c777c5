"""pass@k and recoverable headroom (Eqs. 1 and 2).

Throughout ``core``, ``outcomes`` is float (S, N) over S starts and N seeds: 1 for a success, 0 for a failure, NaN for a
take that does not exist (it errored). A start with fewer than k takes has the pass@k of all its takes, which can only
understate it and keeps the curve monotone. A start without takes is NaN in every per-start array and is left out of
every mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from besttake.core.arithmetic import F64, I64


def as_outcomes(outcomes: ArrayLike) -> F64:
    """``outcomes`` as float (S, N); ValueError unless every entry is 0, 1 or NaN."""
    array = np.asarray(outcomes, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"outcomes must have shape (starts, seeds), not {array.shape}")
    if not np.all(np.isnan(array) | (array == 0) | (array == 1)):
        raise ValueError("outcomes must be 0, 1 or NaN for a missing take")
    return array


def tally(outcomes: ArrayLike) -> tuple[I64, I64]:
    """The number of takes n (S,) and of successes c (S,) of each start."""
    array = as_outcomes(outcomes)
    return np.isfinite(array).sum(axis=1), np.nansum(array, axis=1).astype(np.int64)


def chance_of_none(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> F64:
    """C(n - c, k) / C(n, k): the chance that k of n takes, drawn without replacement, include none of c given takes."""
    n_, c_, k_ = (np.asarray(value, np.float64) for value in np.broadcast_arrays(n, c, k))
    chance = np.ones(n_.shape)
    for drawn in range(int(k_.max(initial=0))):
        left = np.maximum(n_ - drawn, 1)
        chance *= np.where(drawn < k_, np.maximum(left - c_, 0) / left, 1.0)
    return chance


def start_pass_at_k(outcomes: ArrayLike, k: int) -> F64:
    """Unbiased pass@k of each start (S,): 1 - C(n - c, k) / C(n, k), where k is at most the start's number of takes."""
    if k < 1:
        raise ValueError(f"pass@k needs k >= 1, not {k}")
    n, c = tally(outcomes)
    cut = np.minimum(k, np.maximum(n, 1))
    missed = chance_of_none(np.maximum(n, 1), c, cut)
    # k = 1 is the plain mean: computed as such so that `random` equals pass@1 to the last bit.
    values = np.where(cut == 1, c / np.maximum(n, 1), 1.0 - missed)
    values = np.where(cut == n, (c > 0).astype(np.float64), values)
    return np.where(n > 0, values, np.nan)


def pass_at_k(outcomes: ArrayLike, k: int) -> float:
    """pass@k (Eq. 1), the mean over starts; NaN when no start has a take."""
    return mean(start_pass_at_k(outcomes, k))


def start_headroom(outcomes: ArrayLike, n: int | None = None) -> F64:
    """H_i (S,) = pass@n_i - pass@1_i; with n = N takes it is max_j y_ij - mean_j y_ij."""
    array = as_outcomes(outcomes)
    return start_pass_at_k(array, width(array, n)) - start_pass_at_k(array, 1)


def mean(values: NDArray[Any]) -> float:
    """Mean of the values that exist; NaN when none does."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else float("nan")


def width(outcomes: ArrayLike, n: int | None) -> int:
    """How many takes of each start are chosen from: n if given, else all seeds."""
    seeds = int(as_outcomes(outcomes).shape[1])
    if n is not None and not 1 <= n <= seeds:
        raise ValueError(f"n = {n} takes per start asked for, but there are {seeds} seeds")
    return seeds if n is None else n
