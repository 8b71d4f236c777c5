"""Logistic regression with an L2 penalty, and its strength chosen by folds of whole starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from besttake.core.arithmetic import product

F64 = NDArray[np.float64]
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
"""Penalties that are tried; each is per take, on standardised features."""


@dataclass(frozen=True)
class Model:
    """``weights`` (d + 1,), the intercept last, for features standardised by ``mean`` (d,) and ``scale`` (d,)."""

    weights: F64
    mean: F64
    scale: F64

    def chance(self, x: ArrayLike) -> F64:
        """The chance of success (n,) of features ``x`` (n, d)."""
        z = (np.asarray(x, dtype=np.float64) - self.mean) / self.scale
        chance: F64 = expit(_margins(z, self.weights))
        return chance


def fit(x: ArrayLike, y: ArrayLike, strength: float) -> Model:
    """Minimise ``mean_i log(1 + exp(-s_i (w . z_i + b))) + strength / 2 |w|^2``.

    s_i is 1 for a success, -1 for a failure; ``x`` (n, d) is standardised to z; the intercept b is not penalised.
    """
    features, sign = np.asarray(x, dtype=np.float64), np.where(np.asarray(y, dtype=np.float64) > 0.5, 1.0, -1.0)
    mean, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    z = (features - mean) / scale

    def loss(w: F64) -> tuple[float, F64]:
        margin = sign * _margins(z, w)
        pull = -sign * expit(-margin) / len(z)
        value = -log_expit(margin).mean() + strength / 2 * np.square(w[:-1]).sum()
        return float(value), np.append(product(pull, z) + strength * w[:-1], pull.sum())

    start = np.zeros(z.shape[1] + 1)
    found_at = minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-7, "ftol": 1e-14}
    )
    return Model(found_at.x, mean, scale)


def _margins(z: F64, weights: F64) -> F64:
    """``w . z_i + b`` (n,) of standardised features ``z`` (n, d)."""
    margins: F64 = product(z, weights[:-1, None])[:, 0] + weights[-1]
    return margins


def choose(
    x: ArrayLike, y: ArrayLike, starts: Sequence[object], strengths: Sequence[float] = STRENGTHS, folds: int = 5
) -> float:
    """The penalty with the lowest log-loss on starts that were left out of the fit; of equal ones the strongest."""
    features, label = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    known = sorted(set(starts), key=repr)
    place = {start: i % folds for i, start in enumerate(known)}
    fold = np.array([place[start] for start in starts])
    losses = dict.fromkeys(sorted(strengths, reverse=True), 0.0)
    for held in range(folds):
        train, test = fold != held, fold == held
        if not test.any() or len(set(label[train])) < 2:
            continue
        for strength in losses:
            chance = np.clip(fit(features[train], label[train], strength).chance(features[test]), 1e-9, 1 - 1e-9)
            losses[strength] -= float(np.sum(np.log(np.where(label[test] > 0.5, chance, 1 - chance))))
    return min(losses, key=losses.__getitem__)
