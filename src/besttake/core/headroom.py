"""pass@k and recoverable headroom (Eqs. 1 and 2), and pass@k for up to twice as many takes as were made.

Throughout ``core``: ``outcomes`` is float (S, N), 1 for a success, 0 for a failure, NaN for a take that does not
exist (it errored). Starts are the units. A start uses the takes it has: where it has fewer than k, its pass@k is
that of all its takes, which can only understate it and keeps the curve monotone; a start without takes is NaN in
every per-start array and is left out of every mean.

Beyond the takes that were made pass@k is extrapolated. Starts have a chance of success p; its distribution is Beta
(beta-binomial counts), or that with a share of impossible starts where the likelihood ratio asks for it: 10 %
impossible starts bias the plain model by 7 to 10 points. The bounds are over every distribution of p that gives the
measured pass@1 .. pass@N. Both are without sampling error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog, minimize
from scipy.special import betaln, expit, logit

F64 = NDArray[np.float64]
LIKELIHOOD_RATIO = 2.71
"""Above this the zero-inflated model is used: the 10 % point of a chi-square with one degree of freedom."""
_DECIMALS, _GRID = 4, 400


def as_outcomes(outcomes: ArrayLike) -> F64:
    """``outcomes`` as float (S, N); ValueError unless every entry is 0, 1 or NaN."""
    array = np.asarray(outcomes, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"outcomes must have shape (starts, seeds), not {array.shape}")
    if not np.all(np.isnan(array) | (array == 0) | (array == 1)):
        raise ValueError("outcomes must be 0, 1 or NaN for a missing take")
    return array


def tally(outcomes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Takes n (S,) and successes c (S,) of each start."""
    array = as_outcomes(outcomes)
    return np.isfinite(array).sum(axis=1), np.nansum(array, axis=1).astype(np.int64)


def chance_of_none(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> F64:
    """C(n - c, k) / C(n, k): the chance that k of n takes, drawn without replacement, hold none of c certain ones."""
    n_, c_, k_ = (np.asarray(value, np.float64) for value in np.broadcast_arrays(n, c, k))
    chance = np.ones(n_.shape)
    for drawn in range(int(k_.max(initial=0))):
        left = np.maximum(n_ - drawn, 1)
        chance *= np.where(drawn < k_, np.maximum(left - c_, 0) / left, 1.0)
    return chance


def start_pass_at_k(outcomes: ArrayLike, k: int) -> F64:
    """Unbiased pass@k of each start (S,): 1 - C(n - c, k) / C(n, k), with k cut to the takes the start has."""
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


def pass_curve(outcomes: ArrayLike) -> F64:
    """pass@1 .. pass@N (N,)."""
    array = as_outcomes(outcomes)
    return np.array([pass_at_k(array, k) for k in range(1, array.shape[1] + 1)])


def start_headroom(outcomes: ArrayLike, n: int | None = None) -> F64:
    """H_i (S,) = pass@n_i - pass@1_i; with n = N takes it is max_j y_ij - mean_j y_ij."""
    array = as_outcomes(outcomes)
    return start_pass_at_k(array, width(array, n)) - start_pass_at_k(array, 1)


def mean(values: NDArray[Any]) -> float:
    """Mean of the values that exist; NaN when none does."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else float("nan")


def width(outcomes: ArrayLike, n: int | None) -> int:
    """How many takes of each start are chosen from: n, or all seeds unless given."""
    seeds = int(as_outcomes(outcomes).shape[1])
    if n is not None and not 1 <= n <= seeds:
        raise ValueError(f"n = {n} takes per start asked for, but there are {seeds} seeds")
    return seeds if n is None else n


@dataclass(frozen=True)
class BetaFit:
    """Chance of success ~ (1 - impossible) Beta(a, b) + impossible at 0; ``ratio``: the likelihood ratio statistic."""

    a: float
    b: float
    impossible: float
    ratio: float

    def pass_at(self, k: int) -> float:
        """pass@k under the fit."""
        return float((1 - self.impossible) * -np.expm1(betaln(self.a, self.b + k) - betaln(self.a, self.b)))


def fit_beta(outcomes: ArrayLike) -> BetaFit:
    """Beta-binomial by maximum likelihood, zero-inflated where the likelihood ratio exceeds 2.71."""
    n, c = tally(outcomes)
    n, c = n[n > 0], c[n > 0]
    if not n.size:
        raise ValueError("no start has a take, so there is nothing to extrapolate")
    cases, counts = np.unique(np.stack([n, c], axis=1), axis=0, return_counts=True)

    def negative(theta: F64) -> float:
        a, b, zero = _unpack(theta)
        takes, successes = cases[:, 0], cases[:, 1]
        logp = -np.log1p(takes) - betaln(takes - successes + 1, successes + 1)  # log C(takes, successes)
        logp = logp + betaln(a + cases[:, 1], b + cases[:, 0] - cases[:, 1]) - betaln(a, b)
        p = np.where(cases[:, 1] == 0, zero + (1 - zero) * np.exp(logp), (1 - zero) * np.exp(logp))
        return float(-np.sum(counts * np.log(np.maximum(p, 1e-300))))

    rate = float(np.clip(np.sum(c) / np.sum(n), 0.01, 0.99))
    # Limits keep Beta away from its degenerate ends, where all starts are alike or none is mixed.
    box = [(-7.0, 7.0), (-6.0, 6.0)]
    plain = _best(lambda t: negative(np.append(t, -np.inf)), [[logit(rate), s] for s in (-2.0, 0.5, 3.0)], box)
    starts = [[plain[0][0], s, z] for s in (0.0, 2.0) for z in (-4.0, -1.0)]
    inflated = _best(negative, starts, [*box, (-12.0, 4.0)])
    ratio = max(0.0, 2 * (plain[1] - inflated[1]))
    chosen = inflated[0] if ratio > LIKELIHOOD_RATIO else np.append(plain[0], -np.inf)
    a, b, zero = _unpack(chosen)
    return BetaFit(a, b, zero, ratio)


def sharp_bounds(outcomes: ArrayLike, k: int) -> tuple[float, float]:
    """Least and greatest pass@k over all distributions of p that give the measured pass@1 .. pass@N.

    A linear programme over the failure chance q = 1 - p on a grid, with E[q^j] = 1 - pass@j. Measured moments of few
    starts need not belong to any distribution; then they are met as closely as possible, in summed distance.
    """
    curve = pass_curve(outcomes)
    # Cosine spacing: extreme distributions put mass close to the ends.
    q = (1 - np.cos(np.linspace(0, np.pi, _GRID))) / 2
    powers = q[None, :] ** np.arange(1, curve.size + 1)[:, None]
    slack = np.eye(curve.size)
    equal = np.block([[np.ones((1, _GRID)), np.zeros((1, 2 * curve.size))], [powers, slack, -slack]])
    target = np.append(1.0, 1 - curve)
    distance = np.append(np.zeros(_GRID), np.ones(2 * curve.size))
    closest = linprog(distance, A_eq=equal, b_eq=target, method="highs")
    cap = {"A_ub": distance[None], "b_ub": [closest.fun * (1 + 1e-6) + 1e-9]}
    reached = np.append(q**k, np.zeros(2 * curve.size))
    worst, best = (linprog(s * reached, A_eq=equal, b_eq=target, method="highs", **cap) for s in (-1, 1))
    return float(np.clip(1 + worst.fun, 0, 1)), float(np.clip(1 - best.fun, 0, 1))


def extrapolate(outcomes: ArrayLike, k: int, model: BetaFit) -> tuple[float, float, float]:
    """pass@k of more takes than were made, by the fitted ``model`` held within the sharp bounds, and these bounds.

    All are rounded to four decimals: optimisers end a little apart on different CPUs. ValueError beyond 2N takes.
    """
    array = as_outcomes(outcomes)
    seeds = int(np.isfinite(array).sum(axis=1).max(initial=0))
    if k > 2 * seeds:
        raise ValueError(
            f"pass@{k} from {seeds} takes per start would be a guess: at most k = {2 * seeds}, or run more takes"
        )
    # Moments of few starts may belong to no distribution; pass@k still cannot fall below what was measured.
    measured = pass_at_k(array, seeds)
    low, high = (max(bound, measured) for bound in sharp_bounds(array, k))
    value = float(np.clip(model.pass_at(k), low, high))
    return round(value, _DECIMALS), round(low, _DECIMALS), round(high, _DECIMALS)


def _unpack(theta: F64) -> tuple[float, float, float]:
    mean, size = float(expit(theta[0])), float(np.exp(theta[1]))
    return mean * size, (1 - mean) * size, float(expit(theta[2]))


def _best(
    negative: Callable[[F64], float], starts: list[list[float]], box: list[tuple[float, float]]
) -> tuple[F64, float]:
    exactly = {"ftol": 1e-15, "gtol": 1e-9}
    runs = [
        minimize(negative, np.array(s), bounds=box, jac="3-point", method="L-BFGS-B", options=exactly) for s in starts
    ]
    best = min(runs, key=lambda run: run.fun)
    return best.x, float(best.fun)
