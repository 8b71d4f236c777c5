"""pass@k for more takes than were made: a model for k <= 2N, with the sharp bounds that need none.

Starts have a chance of success p; its distribution is Beta (beta-binomial counts), or that with a share of impossible
starts where the likelihood ratio asks for it: 10 % impossible starts bias the plain model by 7 to 10 points. The
bounds are over every distribution of p that gives the measured pass@1 .. pass@N. Both are without sampling error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog, minimize
from scipy.special import betaln, expit, logit

from besttake.core.headroom import F64, as_outcomes, pass_at_k, pass_curve, tally

LIKELIHOOD_RATIO = 2.71
"""Above this the zero-inflated model is used: the 10 % point of a chi-square with one degree of freedom."""
_DECIMALS = 4


@dataclass(frozen=True)
class Extrapolation:
    """pass@k: ``value`` by ``model``; [low, high] are the sharp bounds, equal to the value where k was measured.

    What was not measured is rounded to four decimals: optimisers end a little apart on different CPUs.
    """

    k: int
    value: float
    low: float
    high: float
    model: Literal["measured", "beta-binomial", "zero-inflated beta-binomial"]


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


def fit(outcomes: ArrayLike) -> BetaFit:
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


def sharp_bounds(outcomes: ArrayLike, k: int, grid: int = 400) -> tuple[float, float]:
    """Least and greatest pass@k over all distributions of p that give the measured pass@1 .. pass@N.

    A linear programme over the failure chance q = 1 - p on a grid, with E[q^j] = 1 - pass@j. Measured moments of few
    starts need not belong to any distribution; then they are met as closely as possible, in summed distance.
    """
    curve = pass_curve(outcomes)
    # Cosine spacing: extreme distributions put mass close to the ends.
    q = (1 - np.cos(np.linspace(0, np.pi, grid))) / 2
    powers = q[None, :] ** np.arange(1, curve.size + 1)[:, None]
    slack = np.eye(curve.size)
    equal = np.block([[np.ones((1, grid)), np.zeros((1, 2 * curve.size))], [powers, slack, -slack]])
    target = np.append(1.0, 1 - curve)
    distance = np.append(np.zeros(grid), np.ones(2 * curve.size))
    closest = linprog(distance, A_eq=equal, b_eq=target, method="highs")
    cap = {"A_ub": distance[None], "b_ub": [closest.fun * (1 + 1e-6) + 1e-9]}
    reached = np.append(q**k, np.zeros(2 * curve.size))
    worst, best = (linprog(s * reached, A_eq=equal, b_eq=target, method="highs", **cap) for s in (-1, 1))
    return float(np.clip(1 + worst.fun, 0, 1)), float(np.clip(1 - best.fun, 0, 1))


def extrapolate(outcomes: ArrayLike, k: int, model: BetaFit | None = None) -> Extrapolation:
    """pass@k: measured for k <= N, by the fitted model, held within the sharp bounds, for k <= 2N, refused beyond.

    ``model`` spares fitting again where several k are asked for.
    """
    array = as_outcomes(outcomes)
    seeds = int(np.isfinite(array).sum(axis=1).max(initial=0))
    if k <= seeds:
        value = pass_at_k(array, k)
        return Extrapolation(k, value, value, value, "measured")
    if k > 2 * seeds:
        raise ValueError(
            f"pass@{k} from {seeds} takes per start would be a guess: at most k = {2 * seeds}, or run more takes"
        )
    model = fit(array) if model is None else model
    # Moments of few starts may belong to no distribution; pass@k still cannot fall below what was measured.
    measured = pass_at_k(array, seeds)
    low, high = (max(bound, measured) for bound in sharp_bounds(array, k))
    name: Literal["beta-binomial", "zero-inflated beta-binomial"] = (
        "zero-inflated beta-binomial" if model.impossible > 0 else "beta-binomial"
    )
    value = float(np.clip(model.pass_at(k), low, high))
    return Extrapolation(k, round(value, _DECIMALS), round(low, _DECIMALS), round(high, _DECIMALS), name)


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
