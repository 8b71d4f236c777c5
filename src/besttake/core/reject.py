"""Rejecting instead of picking: retry until the score of a take passes a threshold, at most n times.

With a threshold that no take passes it is the best of n, with one that all pass it is a single take; between them it
stops early where the first takes look good. Takes come in random order, and every number is exact over all orders. When
none of n takes passes, the one with the highest score is kept, as by `besttake.core.select`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from besttake.core.arithmetic import product
from besttake.core.headroom import F64, as_outcomes, chance_of_none, mean, start_pass_at_k, width
from besttake.core.select import order, rank_weights

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Thresholds are tried that this fraction of the takes passes."""
KEEPS = 0.9
"""The chosen threshold keeps this part of the best gain that any keeps, with as few takes as that allows."""


@dataclass(frozen=True)
class Retried:
    """``success`` (S,) of the take that is kept, and the expected number of ``takes`` (S,), of each start."""

    success: F64
    takes: F64


def retry(outcomes: ArrayLike, scores: ArrayLike, threshold: ArrayLike, n: int | None = None) -> Retried:
    """Retry until a score is at least ``threshold`` (one number, or one per start), at most n times.

    Of k takes of a start, of which p pass, in random order: none of the first t passes with chance C(k - p, t) /
    C(k, t); any of the p is equally likely the first to pass.
    """
    array = as_outcomes(outcomes)
    n = width(array, n)
    ranked = order(scores, array)
    y, values = np.take_along_axis(array, ranked, 1), np.take_along_axis(np.asarray(scores, np.float64), ranked, 1)
    limits = np.broadcast_to(np.asarray(threshold, dtype=np.float64), len(array))[:, None]
    passing = (np.isfinite(y) & np.isfinite(values) & (values >= limits)).sum(axis=1)  # the first so many in this order
    counts = np.isfinite(y).sum(axis=1)
    success, takes = np.full(len(array), np.nan), np.full(len(array), np.nan)
    for k, p in {*zip(counts.tolist(), passing.tolist(), strict=True)}:
        own, most, t = (counts == k) & (passing == p), min(n, k), np.arange(min(n, k) + 1)
        if not k:
            continue
        none = chance_of_none(k, p, t)
        takes[own] = none[:most].sum()
        success[own] = (1 - none[most]) * y[own, :p].mean(axis=1) if p else 0.0
        if none[most] > 0:
            success[own] += none[most] * product(y[own, p:k], rank_weights(k - p, most)[:, None])[:, 0]
    return Retried(success, takes)


def threshold_at(scores: F64, outcomes: F64, rate: float) -> float:
    """The threshold that a fraction ``rate`` of the takes that have a score passes."""
    known = scores[np.isfinite(scores) & np.isfinite(outcomes)]
    if not known.size or rate <= 0:
        return float("inf")
    return float(np.quantile(known, 1 - rate, method="inverted_cdf")) if rate < 1 else float("-inf")


def choose_rate(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> float:
    """Of `RATES`, the one with the fewest takes among those that keep `KEEPS` of the best gain over a single take."""
    array, values = as_outcomes(outcomes), np.asarray(scores, dtype=np.float64)
    tried = [(rate, retry(array, values, threshold_at(values, array, rate), n)) for rate in RATES]
    one = mean(start_pass_at_k(array, 1))
    most = max(mean(result.success) for _, result in tried) - one
    least = most - (1 - KEEPS) * abs(most) - 1e-12  # also where even the best of them loses
    good = [(mean(result.takes), -rate) for rate, result in tried if mean(result.success) - one >= least]
    return -min(good)[1] if good else 1.0  # without an outcome nothing can be chosen, and every take passes


def held_out(
    outcomes: ArrayLike,
    scores: ArrayLike,
    groups: NDArray[np.int64],
    others: NDArray[np.bool_],
    rate: float | None,
    n: int | None = None,
) -> Retried:
    """`retry` where the threshold of each group of starts comes from other starts.

    ``groups`` (S,) are numbered from 0; group g has the scores ``scores`` (G, S, N)[g] and learns from the starts
    ``others`` (G, S)[g]. ``rate`` is the fraction of takes that passes; where it is None, it is chosen on the others,
    too, and without any no take passes.
    """
    array, own = as_outcomes(outcomes), np.full(np.shape(outcomes), np.nan)
    limits = np.full(len(array), np.inf)
    for group, (values, rest) in enumerate(zip(np.asarray(scores, dtype=np.float64), others, strict=True)):
        held = groups == group
        own[held] = values[held]
        if rate is None and rest.any():
            chosen = choose_rate(array[rest], values[rest], n)
            limits[held] = threshold_at(values[rest], array[rest], chosen)
        elif rate is not None:
            known = rest if rest.any() else held
            limits[held] = threshold_at(values[known], array[known], rate)
    return retry(array, own, limits, n)
