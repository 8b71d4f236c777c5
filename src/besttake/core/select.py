"""Choosing one take per start by a score (Eq. 5), its controls, retrying by the score, and how well the score ranks.

A selector is an array of scores (S, N), higher is better, NaN or infinite where a take has no valid score. Within a
start takes are ordered by score, ties to the lowest seed, takes without a valid score last; the choice among any
subset of takes is the first of it in that order. `shortest` is the same with ``-lengths`` as the score; `random` is
its exact expectation, which is pass@1; `oracle` is pass@n.

Instead of picking the best of n one may `retry` until the score of a take passes a threshold, at most n times. With a
threshold that no take passes it is the best of n, with one that all pass it is a single take; between them it stops
early where the first takes look good. Takes come in random order, and every number is exact over all orders. When none
of n takes passes, the one with the highest score is kept.

A score ranks takes with an AUC within starts (the real problem) and pooled over all takes (the paper's).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from besttake.core.arithmetic import F64, I64, Bools, product
from besttake.core.headroom import as_outcomes, chance_of_none, mean, start_headroom, start_pass_at_k, width
from besttake.core.stats import Estimate, mean_interval, unit_scale

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Thresholds are tried that this fraction of the takes passes."""
KEEPS = 0.9
"""The chosen threshold keeps this part of the best gain that any keeps, with as few takes as that allows."""


@dataclass(frozen=True)
class Picks:
    """``index`` (S,): the chosen seed column, -1 where a start has no take.

    ``invalid``: takes that exist but have no valid score; ``blind``: starts where no take has one, so that the
    lowest seed was kept.
    """

    index: I64
    invalid: int
    blind: int


@dataclass(frozen=True)
class Selection:
    """What keeping one of n takes per start achieves: success (S,) and gain over pass@1, G_i (S,), of each start."""

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


def order(scores: ArrayLike, outcomes: ArrayLike) -> I64:
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


def selection_curve(outcomes: ArrayLike, scores: ArrayLike) -> F64:
    """Success of the selector (N,) with 1, 2, .. N takes per start, each averaged over all subsets."""
    return np.array([mean(start_selected(outcomes, scores, k)) for k in range(1, width(outcomes, None) + 1)])


def _scores(scores: ArrayLike, taken: Bools) -> F64:
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != taken.shape:
        raise ValueError(f"scores have shape {values.shape}, outcomes {taken.shape}")
    return values


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


def held_out(outcomes: ArrayLike, scores: ArrayLike, folds: I64, n: int | None = None) -> Retried:
    """Cross-validated `retry`: each fold of the starts has a threshold chosen on the other folds (`choose_rate`).

    ``folds`` (S,) says which fold each start is in. Where there is only one fold, no take passes.
    """
    array, values = as_outcomes(outcomes), np.asarray(scores, dtype=np.float64)
    limits = np.full(len(array), np.inf)
    for fold in np.unique(folds):
        others = folds != fold
        if others.any():
            rate = choose_rate(array[others], values[others], n)
            limits[~others] = threshold_at(values[others], array[others], rate)
    return retry(array, values, limits, n)


def start_auc(outcomes: ArrayLike, scores: ArrayLike) -> F64:
    """AUC (S,) over the pairs of a success and a failure of the same start, ties one half; NaN if there is no pair.

    Takes without a valid score are left out.
    """
    y, s = _valid(outcomes, scores)
    win, lose = (y == 1)[:, :, None], (y == 0)[:, None, :]
    pairs = win & lose
    better = np.where(pairs, (s[:, :, None] > s[:, None, :]) + 0.5 * (s[:, :, None] == s[:, None, :]), 0.0)
    count = pairs.sum(axis=(1, 2))
    return np.where(count > 0, better.sum(axis=(1, 2)) / np.maximum(count, 1), np.nan)


def within_auc(outcomes: ArrayLike, scores: ArrayLike) -> Estimate:
    """Within-start AUC, ``n`` mixed starts, each of weight one.

    A selector chooses once per start, so a start counts once; weighing by pairs would let starts with balanced
    outcomes count more. With three takes the two are the same.
    """
    auc = mean_interval(start_auc(outcomes, scores), unit_scale())
    return auc if auc.n else Estimate(reason="no start has a success and a failure to rank")


def pooled_auc(outcomes: ArrayLike, scores: ArrayLike) -> Estimate:
    """AUC over all takes of all starts; ``n`` starts. The interval is clustered by start, on the logit scale.

    Variance as in DeLong's, with the placements of a start's takes summed before squaring (Obuchowski, 1997). At an
    AUC of 0 or 1 it vanishes; the interval is then the exact one for as many trials as the rarer outcome has starts,
    which also set the degrees of freedom. With fewer than about 15 such starts it covers less than it says.
    """
    y, s = _valid(outcomes, scores)
    mask = ~np.isnan(y)
    start = np.broadcast_to(np.arange(len(y))[:, None], y.shape)[mask]
    label, value = y[mask] == 1, s[mask]
    wins, losses = int(label.sum()), int((~label).sum())
    size = int(mask.any(axis=1).sum())
    if not wins or not losses:
        return Estimate(n=size, reason="all takes ended alike, so there is nothing to rank")
    place = np.empty(value.size)
    place[label] = _below(value[~label], value[label]) / losses
    place[~label] = 1 - _below(value[label], value[~label]) / wins
    auc = float(place[label].mean())
    rare = min(np.unique(start[label]).size, np.unique(start[~label]).size)
    if auc in (0.0, 1.0):
        reach = 1 - ((1 - 0.95) / 2) ** (1 / rare)
        return Estimate(auc, auc and auc - reach, auc or reach, size)
    pull = np.where(label, (place - auc) / wins, (place - auc) / losses)
    per_start = np.bincount(start, weights=pull, minlength=len(y))
    error = np.sqrt(size / max(size - 1, 1) * np.sum(per_start**2))
    reach = stdtrit(max(rare - 1, 1), (1 + 0.95) / 2) * error / (auc * (1 - auc))
    logit = np.log(auc / (1 - auc))
    low, high = 1 / (1 + np.exp(-(logit + np.array([-reach, reach]))))
    return Estimate(auc, float(low), float(high), size)


def _below(reference: F64, values: F64) -> F64:
    ranked = np.sort(reference)
    between: F64 = np.searchsorted(ranked, values, "left") / 2 + np.searchsorted(ranked, values, "right") / 2
    return between


def _valid(outcomes: ArrayLike, scores: ArrayLike) -> tuple[F64, F64]:
    y, s = as_outcomes(outcomes), np.asarray(scores, dtype=np.float64)
    if y.shape != s.shape:
        raise ValueError(f"scores have shape {s.shape}, outcomes {y.shape}")
    return np.where(np.isfinite(s), y, np.nan), s
