"""Estimates with intervals, and one-sided tests, over starts: a start with all its takes is the unit that is resampled.

Headroom, gains and within-start AUC are means of bounded values of which many starts give exactly zero. There the
percentile, BCa and studentised bootstraps cover far less than they say. What holds is the Bayesian bootstrap over
starts with half a pseudo-start at each end of the range (`Scale`), which on 0/1 data is the Jeffreys interval; its
coverage on simulated populations is measured in ``tests/core/test_stats.py``.

It does not hold where the starts seen cannot show the variation: when no start is mixed, the interval of H or G
rests on the pseudo-starts alone, as that of an AUC of 0 or 1 does; and with a handful of mixed starts coverage at a
single population can leave 93-97 % in either direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from besttake.core.arithmetic import product
from besttake.core.headroom import F64, chance_of_none

Rng = np.random.Generator | int
Statistic = Callable[[F64], F64]

_BLOCK = 4_000_000


YesNo = Literal["yes", "no", "open"]
_DECIMALS = 12
_ENDS = [(1 - 0.95) / 2, (1 + 0.95) / 2]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over ``n`` starts (or other units, where said).

    All three are None, with a ``reason``, where the value is undefined or was not measured.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        # Logarithms and the like differ in the last bit from CPU to CPU; what is printed must not.
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None:
                object.__setattr__(self, name, round(number, _DECIMALS))


@dataclass(frozen=True)
class Forecast:
    """How many further starts would settle something, 8 times in 10: from ``low`` to ``high``.

    ``most`` is how far the forecast looks, never more starts than there are. ``high`` is None where it may take more,
    ``low`` is None where it will hardly be settled within them.
    """

    low: int | None
    high: int | None
    most: int


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a mean over starts: is it worth acting on?

    ``p_not_above_zero`` and ``p_not_below_worth`` are the p-values of the two nulls. ``variance`` is that of the values
    over starts, which plans are worked out from. ``when_answered``: the estimate at the answer, without an interval,
    where later starts of a run until decided moved the mean across what is worth acting on. The answer stays, because
    its test is over; both estimates are to be shown.
    """

    answer: YesNo
    estimate: Estimate
    p_not_above_zero: float = 1.0
    p_not_below_worth: float = 1.0
    variance: float | None = None
    when_answered: Estimate | None = None


@dataclass(frozen=True)
class Scale:
    """Where a per-start value lives: it cannot leave [lo, hi]; pseudo-starts of the interval stand at +/- ends.

    The tests use the hard range. The interval uses ``pseudo``, the range of a typical start that moved: it is the
    hard range except for a difference of means over N takes, which shrinks like 1 / sqrt(N).
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
    """Mean over starts of ``values`` (S,), NaN left out, with its interval (see the module)."""
    x = _kept(values)
    if not x.size:
        return Estimate(reason="no start has a value")
    pseudo = np.array(scale.pseudo)[:, None]
    low, high = _pseudo_bootstrap(x[:, None], pseudo, lambda m: m[:, 0], rng, draws)
    value = float(x.mean())
    # As for the Jeffreys interval of a proportion: at an end of the range the interval reaches that end.
    low = scale.lo if np.all(x <= scale.lo) else min(max(low, scale.lo), value)
    high = scale.hi if np.all(x >= scale.hi) else max(min(high, scale.hi), value)
    return Estimate(value, float(low), float(high), int(x.size))


def p_not_above(values: ArrayLike, mean: float, lo: float, *, rng: Rng = 0, draws: int = 20_000) -> float:
    """p-value against {true mean <= ``mean``} for values of at least ``lo``: Gaffke's test.

    Uniform Dirichlet weights over the starts and one pseudo-start at ``lo``; p is the chance that the weighted mean
    is at most ``mean``. It is the Clopper-Pearson test on 0/1 data, and no bounded distribution is known on which it
    exceeds its level, so it needs no minimum of mixed starts.
    """
    x = _kept(values)
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

    A pseudo-start is a mixed start of typical headroom: half of one where the choice succeeds (G = H), half of one
    where it fails (G = H - 1).
    """
    g, h = np.asarray(gains, dtype=np.float64), np.asarray(headrooms, dtype=np.float64)
    kept = ~(np.isnan(g) | np.isnan(h))
    g, h = g[kept], h[kept]
    mixed = h[h > 1e-12]
    if not mixed.size:
        return Estimate(n=int(g.size), reason="no start is mixed, so there is no headroom to capture")
    typical = float(mixed.mean())
    pseudo = np.array([[typical, typical], [typical - 1, typical]])
    low, high = _pseudo_bootstrap(np.stack([g, h], 1), pseudo, lambda m: m[:, 0] / m[:, 1], 0, draws)
    value = float(g.sum() / h.sum())
    high = 1.0 if np.all(g >= h - 1e-12) else min(high, 1.0)
    return Estimate(value, min(low, value), max(high, value), int(g.size))


def bootstrap(columns: ArrayLike, statistic: Statistic, *, rng: Rng = 0, draws: int = 10_000) -> Estimate:
    """Cluster bootstrap over starts with a BCa interval for a smooth function of means.

    ``columns`` (S, q) holds what each start contributes, one column per arm or quantity, so that arms stay paired;
    ``statistic`` maps means (B, q) to values (B,). Rows with a NaN are left out.
    """
    rows = np.asarray(columns, dtype=np.float64)
    rows = rows[~np.isnan(rows).any(axis=1)]
    size = len(rows)
    if size < 2:
        return Estimate(n=size, reason="fewer than two starts")
    value = float(statistic(rows.mean(axis=0, keepdims=True))[0])
    unique, counts = _collapse(rows)
    replicas = np.concatenate([statistic(m) for m in _resampled_means(unique, counts, rng, draws)])
    replicas = replicas[np.isfinite(replicas)]
    if not np.isfinite(value) or replicas.size < draws // 2:
        return Estimate(n=size, reason="these starts leave it open")
    left_out = statistic((rows.sum(axis=0) - unique) / (size - 1))
    pull = np.sum(counts * left_out) / size - left_out
    scale = np.sum(counts * pull**2)
    skew = float(np.sum(counts * pull**3) / (6 * scale**1.5)) if scale > 1e-300 else 0.0
    below = np.mean(replicas < value - 1e-12) + 0.5 * np.mean(np.abs(replicas - value) <= 1e-12)
    shift = ndtri(np.clip(below, 1 / replicas.size, 1 - 1 / replicas.size))
    tails = shift + ndtri(_ENDS)
    low, high = np.quantile(replicas, ndtr(shift + tails / (1 - skew * tails)))
    return Estimate(value, float(low), float(high), size)


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


def _resampled_means(unique: F64, counts: NDArray[np.int64], rng: Rng, draws: int) -> Iterator[F64]:
    """Means (B, q) of starts drawn with replacement, in blocks; equal starts are drawn together where that is less."""
    size, generator = int(counts.sum()), np.random.default_rng(rng)
    if len(unique) > size // 8:
        columns = np.repeat(unique, counts, axis=0).T.copy()
        for block in _blocks(draws, size):
            index = generator.integers(size, size=(block, size), dtype=np.int32)
            yield np.stack([column.take(index).mean(axis=1) for column in columns], axis=1)
        return
    for block in _blocks(draws, len(unique)):
        yield product(generator.multinomial(size, counts / size, size=block).astype(np.float64), unique) / size


def _dirichlet_means(rows: F64, pseudo: F64, weights: F64, rng: Rng, draws: int) -> Iterator[F64]:
    """Weighted means (B, q) of rows (S, q) of weight 1 and pseudo rows of their weights, in blocks.

    Equal rows share one Gamma draw: their Dirichlet weights add, and few distinct rows occur.
    """
    unique, counts = _collapse(rows)
    points, shape = np.concatenate([unique, pseudo]), np.concatenate([counts.astype(np.float64), weights])
    generator = np.random.default_rng(rng)
    for block in _blocks(draws, len(points)):
        gammas = generator.standard_gamma(shape, size=(block, len(points)))
        yield product(gammas, points) / gammas.sum(axis=1, keepdims=True)


def _collapse(rows: F64) -> tuple[F64, NDArray[np.int64]]:
    unique, counts = np.unique(np.round(rows, 12) + 0.0, axis=0, return_counts=True)
    return unique, counts


def _blocks(draws: int, width: int) -> Iterator[int]:
    step = max(1, _BLOCK // width)
    for start in range(0, draws, step):
        yield min(step, draws - start)


def _kept(values: ArrayLike) -> F64:
    x = np.asarray(values, dtype=np.float64).ravel()
    # Sorted, so that the order in which starts were run changes no last digit.
    return np.sort(x[~np.isnan(x)])
