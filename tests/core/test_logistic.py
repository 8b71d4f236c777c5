"""Logistic regression against Newton's method, written out, and against its own first-order condition."""

from __future__ import annotations

import numpy as np
import pytest

from besttake.core.logistic import choose, fit


def data(n: int = 120, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(2.0, 3.0, (n, d))
    return x, (x[:, 0] - x[:, 1] + rng.normal(0, 2, n) > 0).astype(float)


def newton(z: np.ndarray, y: np.ndarray, strength: float) -> np.ndarray:
    """The same minimum by iteratively reweighted least squares."""
    design = np.column_stack([z, np.ones(len(z))])
    penalty = np.diag([strength] * z.shape[1] + [0.0])
    w = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ w))
        gradient = design.T @ (p - y) / len(y) + penalty @ w
        curvature = (design.T * (p * (1 - p))) @ design / len(y) + penalty
        w -= np.linalg.solve(curvature, gradient)
    return w


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_the_fit_is_the_minimum_that_newtons_method_finds(strength: float) -> None:
    x, y = data()
    model = fit(x, y, strength)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    expected = newton(z, y, strength)
    np.testing.assert_allclose(model.weights, expected, atol=1e-4)
    np.testing.assert_allclose(model.chance(x), 1 / (1 + np.exp(-(z @ expected[:-1] + expected[-1]))), atol=1e-4)


def test_the_mean_chance_is_the_rate_of_success() -> None:
    x, y = data(seed=3)
    assert fit(x, y, 0.5).chance(x).mean() == pytest.approx(y.mean(), abs=1e-5)


def test_noise_asks_for_the_strongest_penalty_and_signal_for_a_weak_one() -> None:
    x, y = data(200, 6)
    noise = np.random.default_rng(1).normal(size=(200, 60))
    starts = [i // 3 for i in range(200)]
    assert choose(noise, y, starts, (1e-3, 1.0)) == 1.0
    assert choose(x, y, starts, (1e-3, 100.0)) == 1e-3


def test_takes_of_a_start_are_left_out_together() -> None:
    """With a copy of each take in another fold a weak penalty would win: the copies give the answer away."""
    rng = np.random.default_rng(2)
    x = np.repeat(rng.normal(size=(40, 60)), 3, axis=0)
    y = np.repeat((rng.random(40) < 0.5).astype(float), 3)
    starts = np.repeat(np.arange(40), 3).tolist()
    assert choose(x, y, starts, (1e-4, 1.0)) == 1.0
    assert choose(x, y, list(range(120)), (1e-4, 1.0)) == 1e-4
