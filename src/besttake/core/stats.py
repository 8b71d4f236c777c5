"""Intervals and one-sided tests over starts. A start with all its takes is the unit that is resampled.

Headroom, gains and within-start AUC are means of bounded values, and many starts have exactly zero. The percentile, BCa
and studentised bootstraps then cover far less than they claim. The intervals here come from the Bayesian bootstrap over
starts with half a pseudo-start at each end of the range (`Scale`), which on 0/1 data is the Jeffreys interval;
``tests/core/test_stats.py`` measures its coverage on simulated populations.

Coverage is not guaranteed where few starts are mixed. If none is, the interval of H or G comes from the pseudo-starts
alone, as does that of an AUC of 0 or 1. With a handful of mixed starts, coverage can leave 93-97 % in either direction.
Ratios of sums (probe, check, agreement) have percentile intervals: `cluster_bootstrap`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.arithmetic import F64, product
from besttake.core.headroom import chance_of_none

Rng = np.random.Generator | int
Statistic = Callable[[F64], F64]

_BLOCK = 4_000_000


YesNo = Literal["yes", "no", "open"]
_DECIMALS = 12
_ENDS = [(1 - 0.95) / 2, (1 + 0.95) / 2]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over ``n`` starts (or other units, where documented).

    Value and interval are None, with a ``reason``, where the value is undefined or was not measured.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        # Logarithms differ in the last bit from CPU to CPU; printed numbers must not.
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None:
                object.__setattr__(self, name, round(number, _DECIMALS))


@dataclass(frozen=True)
class Forecast:
    """The range of further starts that would settle a question 8 times in 10: from ``low`` to ``high``.

    ``most`` is how far the forecast looks, at most the starts that are left. ``high`` is None where it may take more
    than that, ``low`` where it will hardly be settled within them.
    """

    low: int | None
    high: int | None
    most: int


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a mean over starts: is it worth acting on?

    ``p_not_above_zero`` and ``p_not_below_worth`` are the p-values of the two nulls. ``variance`` is that of the values
    over starts, from which runs are planned. ``when_answered`` is the estimate when the question was answered, without
    an interval, if later starts of a run until decided moved the mean across ``worth``. The answer stays, because its
    test is over; show both estimates.
    """

    answer: YesNo
    estimate: Estimate
    p_not_above_zero: float = 1.0
    p_not_below_worth: float = 1.0
    variance: float | None = None
    when_answered: Estimate | None = None


@dataclass(frozen=True)
class Scale:
    """The range [lo, hi] of a per-start value, and the values of the two ``pseudo``-starts of its interval.

    The tests use the range. ``pseudo`` is the range as well, except for a difference of means over N takes, where it
    shrinks like 1 / sqrt(N) as typical differences do.
    """

    lo: float
    hi: float
    pseudo: tuple[float, float]


def headroom_scale(n: int, takes: ArrayLike | None = None) -> Scale:
    """H_i with n takes out of ``takes`` (one number, or one per start; n unless given): [0, b]; b = 1 - 1/n."""
    reach = _reach(n, takes)
    return Scale(0.0, reach, (0.0, reach))


def gain_scale(n: int, takes: ArrayLike | None = None) -> Scale:
    """G_i with n takes out of ``takes``: [-b, b]; b = 2/3 with 3 takes, 1/2 for n = 3 averaged over 5 takes."""
    reach = _reach(n, takes)
    return Scale(-reach, reach, (-reach, reach))


def difference_scale(n: int) -> Scale:
    """Difference between two arms of the mean over n takes: [-1, 1]."""
    return Scale(-1.0, 1.0, (-1 / n**0.5, 1 / n**0.5))


def pick_scale() -> Scale:
    """Difference between two chosen takes: -1, 0 or 1."""
    return Scale(-1.0, 1.0, (-1.0, 1.0))


def unit_scale() -> Scale:
    """A proportion or an AUC: [0, 1]."""
    return Scale(0.0, 1.0, (0.0, 1.0))


def mean_interval(values: ArrayLike, scale: Scale, *, rng: Rng = 0, draws: int = 10_000) -> Estimate:
    """Mean over starts of ``values`` (S,), NaN left out, with the interval that the module describes."""
    x = _existing(values)
    if not x.size:
        return Estimate(reason="no start has a value")
    pseudo = np.array(scale.pseudo)[:, None]
    low, high = _pseudo_bootstrap(x[:, None], pseudo, lambda m: m[:, 0], rng, draws)
    value = float(x.mean())
    # As with the Jeffreys interval of a proportion, the interval of a mean at an end of the range reaches that end.
    low = scale.lo if np.all(x <= scale.lo) else min(max(low, scale.lo), value)
    high = scale.hi if np.all(x >= scale.hi) else max(min(high, scale.hi), value)
    return Estimate(value, float(low), float(high), int(x.size))


def p_not_above(values: ArrayLike, mean: float, lo: float, *, rng: Rng = 0, draws: int = 20_000) -> float:
    """p-value against {true mean <= ``mean``} for values of at least ``lo``: Gaffke's test.

    The starts and one pseudo-start at ``lo`` get uniform Dirichlet weights; p is the chance that the weighted mean is
    at most ``mean``. On 0/1 data this is the Clopper-Pearson test. No bounded distribution is known on which it exceeds
    its level, so it needs no minimum number of mixed starts.
    """
    x = _existing(values)
    if not x.size:
        return 1.0
    hits = total = 0
    for means in _dirichlet_means(x[:, None], np.array([[lo]]), np.ones(1), rng, draws):
        hits += int(np.sum(means[:, 0] <= mean + 1e-12))
        total += len(means)
    return (hits + 1) / (total + 1)


def p_not_below(values: ArrayLike, mean: float, hi: float, *, rng: Rng = 0, draws: int = 20_000) -> float:
    """p-value against {true mean >= ``mean``} for values of at most ``hi``; see `p_not_above`."""
    return p_not_above(-np.asarray(values, dtype=np.float64), -mean, -hi, rng=rng, draws=draws)


def capture_interval(gains: ArrayLike, headrooms: ArrayLike, *, draws: int = 10_000) -> Estimate:
    """Capture, sum G_i / sum H_i, with its interval; undefined, with a reason, where no start is mixed.

    The pseudo-starts are half a mixed start of typical headroom where the choice succeeds (G = H), and half of one
    where it fails (G = H - 1).
    """
    g, h = np.asarray(gains, dtype=np.float64), np.asarray(headrooms, dtype=np.float64)
    both = ~(np.isnan(g) | np.isnan(h))
    g, h = g[both], h[both]
    mixed = h[h > 1e-12]
    if not mixed.size:
        return Estimate(n=int(g.size), reason="no start is mixed, so there is no headroom to capture")
    typical = float(mixed.mean())
    pseudo = np.array([[typical, typical], [typical - 1, typical]])
    low, high = _pseudo_bootstrap(np.stack([g, h], 1), pseudo, lambda m: m[:, 0] / m[:, 1], 0, draws)
    value = float(g.sum() / h.sum())
    high = 1.0 if np.all(g >= h - 1e-12) else min(high, 1.0)
    return Estimate(value, min(low, value), max(high, value), int(g.size))


def resample_counts(clusters: int, seed: int = 0) -> Iterator[F64]:
    """How often each cluster is drawn in 2000 resamples of a bootstrap, in blocks (100, clusters)."""
    rng = np.random.Generator(np.random.Philox(seed))
    for _ in range(20):
        yield rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=100).astype(np.float64)


def cluster_bootstrap(sums: F64, statistics: Statistic, counts: Iterable[F64] | None = None) -> list[Estimate]:
    """Statistics of column sums, with their percentile intervals under resampling of whole clusters.

    ``sums`` (C, q): each cluster's sums of q quantities; ``statistics`` maps totals (..., q) to k values (..., k).
    There are no intervals for fewer than two clusters. ``counts`` from `resample_counts` are drawn anew unless given.
    """
    values = statistics(sums.sum(axis=0))
    blocks = resample_counts(len(sums)) if counts is None else counts
    replicas = statistics(np.concatenate([product(block, sums) for block in blocks])) if len(sums) > 1 else None
    estimates = []
    for i, value in enumerate(values.tolist()):
        low, high = None, None
        if replicas is not None and not np.isnan(value):
            low, high = np.nanpercentile(replicas[:, i], [2.5, 97.5]).tolist()
        estimates.append(Estimate(reason="not measured") if np.isnan(value) else Estimate(value, low, high))
    return estimates


def over_seeds(values: ArrayLike) -> tuple[float, float | None]:
    """Mean and sample sd over seeds (None for one seed) of the mean over starts of ``values`` (S, N).

    The values are successes or a difference of two arms, as in the paper's mean +/- std.
    """
    array = np.asarray(values, dtype=np.float64)
    per_seed = np.array([c[~np.isnan(c)].mean() for c in array.T if not np.isnan(c).all()])
    if not per_seed.size:
        raise ValueError("no take to average over seeds")
    return float(per_seed.mean()), float(per_seed.std(ddof=1)) if per_seed.size > 1 else None


def _reach(n: int, takes: ArrayLike | None) -> float:
    """Largest H_i: max over successes c of pass@n - c/k, over the numbers of takes k that occur."""
    reach = 0.0
    for k in np.unique(np.asarray(n if takes is None else takes, dtype=np.int64)):
        if k >= 2:
            c = np.arange(1, k)
            missed = chance_of_none(k, c, min(n, k))
            reach = max(reach, float(np.max(1 - missed - c / k)))
    return reach


def _pseudo_bootstrap(rows: F64, pseudo: F64, statistic: Statistic, rng: Rng, draws: int) -> tuple[float, float]:
    weights = np.full(len(pseudo), 1 / len(pseudo))
    replicas = np.concatenate([statistic(m) for m in _dirichlet_means(rows, pseudo, weights, rng, draws)])
    low, high = np.quantile(replicas, _ENDS)
    return float(low), float(high)


def _dirichlet_means(rows: F64, pseudo: F64, weights: F64, rng: Rng, draws: int) -> Iterator[F64]:
    """Yield weighted means (B, q) of the Bayesian bootstrap, in blocks of B of all ``draws``.

    The weights are Dirichlet with parameter 1 for each of ``rows`` (S, q), and ``weights`` for the ``pseudo`` rows.

    Equal rows share one Gamma draw: their Dirichlet weights add up, and few distinct rows occur.
    """
    unique, counts = np.unique(np.round(rows, 12) + 0.0, axis=0, return_counts=True)
    points, shape = np.concatenate([unique, pseudo]), np.concatenate([counts.astype(np.float64), weights])
    generator = np.random.default_rng(rng)
    block = max(1, _BLOCK // len(points))
    for first in range(0, draws, block):
        gammas = generator.standard_gamma(shape, size=(min(block, draws - first), len(points)))
        yield product(gammas, points) / gammas.sum(axis=1, keepdims=True)


def _existing(values: ArrayLike) -> F64:
    """The values that are not NaN, sorted, so that the order in which starts were run changes no last digit."""
    x = np.asarray(values, dtype=np.float64).ravel()
    return np.sort(x[~np.isnan(x)])
