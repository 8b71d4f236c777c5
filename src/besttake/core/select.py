"""Selection of one take per start by a score (Eq. 5), its controls, retrying by the score, and the AUC of the score.

A selector is an array of scores (S, N), higher is better, NaN or infinite where a take has no valid score. The takes of
a start are ordered by score, ties to the lowest seed, takes without a valid score last. The choice among any subset of
takes is the first in that order. `shortest` uses ``-lengths`` as the score; `random` is the exact expectation of a
random choice, pass@1; `oracle` is pass@n.

Instead of picking the best of n takes, one may `retry` until the score of a take passes a threshold, at most n times;
if none passes, the take with the highest score is kept. With a threshold that no take passes this is the best of n,
with one that every take passes a single take. Takes come in random order, and every number is exact over all orders.

The AUC of a score is computed within starts (the problem that a selector solves) and pooled over all takes (the
paper's).
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
"""The thresholds tried are those that these fractions of the takes pass."""
KEEPS = 0.9
"""The chosen threshold keeps this fraction of the best gain of any threshold, with as few takes as possible."""


@dataclass(frozen=True)
class Picks:
    """Which take of each start is picked: its seed column ``index`` (S,), -1 where a start has no take.

    ``invalid`` is the number of takes without a valid score, ``blind`` that of starts in which no take has one, so that
    the lowest seed is kept.
    """

    index: I64
    invalid: int
    blind: int


@dataclass(frozen=True)
class Selection:
    """The result of keeping one of n takes per start: success (S,) and gain over pass@1, G_i (S,), of each start."""

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
    """Seed columns (S, N) of each start from first to last choice; takes that do not exist come last."""
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
    """w_r (k,): the chance that the r-th best of k takes is the best of n random ones, C(k - r, n - 1) / C(k, n)."""
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
        # With n = k the choice is a single take, whose outcome is read without rounding.
        weights = rank_weights(int(k), size)[:, None]
        success[rows] = ranked[rows, 0] if size == k else product(ranked[rows, :k], weights)[:, 0]
    return success


def start_gain(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> F64:
    """G_i (S,): success of the selector minus the mean of the start's takes. Never above H_i."""
    return start_selected(outcomes, scores, n) - start_pass_at_k(outcomes, 1)


def select(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> Selection:
    """Select one of n takes of each start by score."""
    array = as_outcomes(outcomes)
    n = width(array, n)
    successes = start_selected(array, scores, n)
    return Selection(n, successes, successes - start_pass_at_k(array, 1))


def shortest(outcomes: ArrayLike, lengths: ArrayLike, n: int | None = None) -> Selection:
    """The control that keeps the shortest take: what episode length alone gives away."""
    return select(outcomes, -np.asarray(lengths, dtype=np.float64), n)


def random(outcomes: ArrayLike, n: int | None = None) -> Selection:
    """The control that keeps a random take, by its exact expectation: pass@1, gain 0."""
    base = start_pass_at_k(outcomes, 1)
    return Selection(width(outcomes, n), base, base - base)


def oracle(outcomes: ArrayLike, n: int | None = None) -> Selection:
    """The pick that knows which take succeeds: its success is pass@n, its gain the headroom."""
    n = width(outcomes, n)
    return Selection(n, start_pass_at_k(outcomes, n), start_headroom(outcomes, n))


def follows_length(outcomes: ArrayLike, scores: ArrayLike, lengths: ArrayLike, *, pairs: int = 10) -> bool:
    """Whether a score is hardly more than the length of a take.

    It is if, of two takes of a start with the same outcome, the shorter one scores higher 19 times in 20. Takes with
    different outcomes tell nothing, because length gives outcomes away. False if there are fewer than ``pairs`` pairs.
    """
    y, s, steps = (np.asarray(part, dtype=np.float64) for part in (outcomes, scores, lengths))
    alike = (y[:, :, None] == y[:, None, :]) & np.isfinite(s)[:, :, None] & np.isfinite(s)[:, None, :]
    shorter = alike & (steps[:, :, None] < steps[:, None, :])
    count = int(shorter.sum())
    higher = int((shorter & (s[:, :, None] > s[:, None, :])).sum())
    return count >= pairs and higher >= 0.95 * count


def silent(outcomes: ArrayLike, scores: ArrayLike) -> bool:
    """Whether a score is equal for all takes of every start, so that it picks by the order of the seeds alone."""
    values = np.where(np.isfinite(np.asarray(outcomes, dtype=np.float64)), np.asarray(scores, dtype=np.float64), np.nan)
    valid = np.isfinite(values)
    highest, lowest = np.where(valid, values, -np.inf).max(axis=1), np.where(valid, values, np.inf).min(axis=1)
    return not bool(np.any(highest > lowest))


def selection_curve(outcomes: ArrayLike, scores: ArrayLike) -> F64:
    """Mean success (N,) of keeping the best-scored of k takes, k = 1..N, averaged over all subsets of k takes."""
    return np.array([mean(start_selected(outcomes, scores, k)) for k in range(1, width(outcomes, None) + 1)])


def _scores(scores: ArrayLike, taken: Bools) -> F64:
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != taken.shape:
        raise ValueError(f"scores have shape {values.shape}, outcomes {taken.shape}")
    return values


@dataclass(frozen=True)
class RetryOutcome:
    """The ``success`` (S,) of the kept take of each start, and the expected number of ``takes`` (S,)."""

    success: F64
    takes: F64


def retry(outcomes: ArrayLike, scores: ArrayLike, threshold: ArrayLike, n: int | None = None) -> RetryOutcome:
    """Retry until a score is at least ``threshold`` (one number, or one per start), at most n times.

    If p of the k takes of a start pass, none of the first t passes with chance C(k - p, t) / C(k, t), and each of the p
    is equally likely to be the first that passes.
    """
    array = as_outcomes(outcomes)
    n = width(array, n)
    ranked = order(scores, array)
    y, values = np.take_along_axis(array, ranked, 1), np.take_along_axis(np.asarray(scores, np.float64), ranked, 1)
    limits = np.broadcast_to(np.asarray(threshold, dtype=np.float64), len(array))[:, None]
    passing = (np.isfinite(y) & np.isfinite(values) & (values >= limits)).sum(axis=1)  # they come first in `ranked`
    counts = np.isfinite(y).sum(axis=1)
    success, takes = np.full(len(array), np.nan), np.full(len(array), np.nan)
    for k, p in {*zip(counts.tolist(), passing.tolist(), strict=True)}:
        if not k:
            continue
        rows, most = (counts == k) & (passing == p), min(n, k)
        none = chance_of_none(k, p, np.arange(most + 1))
        takes[rows] = none[:most].sum()
        success[rows] = (1 - none[most]) * y[rows, :p].mean(axis=1) if p else 0.0
        if none[most] > 0:
            success[rows] += none[most] * product(y[rows, p:k], rank_weights(k - p, most)[:, None])[:, 0]
    return RetryOutcome(success, takes)


def threshold_at(scores: F64, outcomes: F64, rate: float) -> float:
    """The threshold that a fraction ``rate`` of the takes with a score passes."""
    known = scores[np.isfinite(scores) & np.isfinite(outcomes)]
    if not known.size or rate <= 0:
        return float("inf")
    return float(np.quantile(known, 1 - rate, method="inverted_cdf")) if rate < 1 else float("-inf")


def choose_rate(outcomes: ArrayLike, scores: ArrayLike, n: int | None = None) -> float:
    """The share of takes to accept, of `RATES`, that needs the fewest takes and keeps `KEEPS` of the best gain."""
    array, values = as_outcomes(outcomes), np.asarray(scores, dtype=np.float64)
    tried = [(rate, retry(array, values, threshold_at(values, array, rate), n)) for rate in RATES]
    one = mean(start_pass_at_k(array, 1))
    most = max(mean(result.success) for _, result in tried) - one
    least = most - (1 - KEEPS) * abs(most) - 1e-12  # with abs, also right if even the best rate loses
    good = [(mean(result.takes), -rate) for rate, result in tried if mean(result.success) - one >= least]
    return -min(good)[1] if good else 1.0  # without an outcome every take passes


def held_out(outcomes: ArrayLike, scores: ArrayLike, folds: I64, n: int | None = None) -> RetryOutcome:
    """Cross-validated `retry`: the threshold of each fold of starts is chosen on the other folds (`choose_rate`).

    ``folds`` (S,) is the fold of each start. With a single fold, no take passes.
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
    """AUC (S,) over the pairs of a success and a failure of a start; a tie counts half. NaN if there is no pair.

    Takes without a valid score are left out.
    """
    y, s = _valid(outcomes, scores)
    win, lose = (y == 1)[:, :, None], (y == 0)[:, None, :]
    pairs = win & lose
    better = np.where(pairs, (s[:, :, None] > s[:, None, :]) + 0.5 * (s[:, :, None] == s[:, None, :]), 0.0)
    count = pairs.sum(axis=(1, 2))
    return np.where(count > 0, better.sum(axis=(1, 2)) / np.maximum(count, 1), np.nan)


def within_auc(outcomes: ArrayLike, scores: ArrayLike) -> Estimate:
    """Mean AUC within starts, over ``n`` mixed starts of equal weight.

    A selector chooses once per start, so a start counts once; with weights by pairs, starts with balanced outcomes
    would count more. With three takes the two are the same.
    """
    auc = mean_interval(start_auc(outcomes, scores), unit_scale())
    return auc if auc.n else Estimate(reason="no start has a success and a failure to rank")


def pooled_auc(outcomes: ArrayLike, scores: ArrayLike) -> Estimate:
    """AUC over all takes of all starts; ``n`` starts. The interval is clustered by start, on the logit scale.

    The variance is DeLong's, with the placements of a start's takes summed before squaring (Obuchowski, 1997). It is 0
    at an AUC of 0 or 1, where the interval is the exact one for as many trials as the rarer outcome has starts; these
    are also the degrees of freedom. With fewer than about 15 such starts the interval covers less than 95 %.
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
