"""Retrying until a score passes, against every order of the takes."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from besttake.core.headroom import start_pass_at_k
from besttake.core.reject import KEEPS, RATES, choose_rate, held_out, retry, threshold_at
from besttake.core.select import start_selected


def by_hand(y: np.ndarray, s: np.ndarray, limit: float, n: int) -> tuple[float, float]:
    """Mean success and takes over all orders of the takes that exist."""
    there = [i for i in range(len(y)) if np.isfinite(y[i])]
    success, takes = [], []
    for order in permutations(there):
        seen = list(order[:n])
        first = next((place for place, i in enumerate(seen) if np.isfinite(s[i]) and s[i] >= limit), None)
        if first is not None:
            kept, count = seen[first], first + 1
        else:
            kept = min(seen, key=lambda i: (not np.isfinite(s[i]), -s[i] if np.isfinite(s[i]) else 0.0, i))
            count = len(seen)
        success.append(y[kept])
        takes.append(count)
    return float(np.mean(success)), float(np.mean(takes))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_success_and_takes_are_those_over_all_orders(n: int) -> None:
    rng = np.random.default_rng(n)
    y = rng.integers(0, 2, (30, 5)).astype(float)
    s = np.round(rng.normal(size=(30, 5)), 1)
    y[rng.random((30, 5)) < 0.15] = np.nan
    s[rng.random((30, 5)) < 0.1] = np.nan
    y[0], y[1, 1:] = np.nan, np.nan
    limits = rng.normal(size=30)
    got = retry(y, s, limits, n)
    assert np.isnan(got.success[0])
    for i in range(1, 30):
        if np.isfinite(y[i]).any():
            assert (got.success[i], got.takes[i]) == pytest.approx(by_hand(y[i], s[i], limits[i], n))


def test_it_lies_between_a_single_take_and_the_best_of_n() -> None:
    rng = np.random.default_rng(4)
    y, s = rng.integers(0, 2, (50, 4)).astype(float), rng.normal(size=(50, 4))
    never, always = retry(y, s, np.inf, 3), retry(y, s, -np.inf, 3)
    np.testing.assert_allclose(never.success, start_selected(y, s, 3))
    np.testing.assert_allclose(always.success, start_pass_at_k(y, 1))
    assert set(never.takes) == {3.0}
    assert set(always.takes) == {1.0}


def test_a_threshold_lets_the_asked_fraction_pass() -> None:
    s = np.arange(20.0).reshape(10, 2)
    y = np.ones_like(s)
    for rate in RATES:
        assert np.mean(s >= threshold_at(s, y, rate)) == pytest.approx(rate, abs=0.051)


def others(folds: np.ndarray) -> np.ndarray:
    return np.stack([folds != fold for fold in np.unique(folds)])


def test_a_perfect_score_is_retried_until_it_passes_and_a_useless_one_not_at_all() -> None:
    rng = np.random.default_rng(5)
    y = (rng.random((400, 3)) < 0.5).astype(float)
    assert choose_rate(y, y + 0.01 * rng.random(y.shape), 3) == pytest.approx(0.5, abs=0.11)
    held = np.arange(400) % 5
    chosen = held_out(y, np.stack([y] * 5), held, others(held), None, 3)
    assert np.mean(chosen.success) >= np.mean(y) + KEEPS * (np.mean(y.max(axis=1)) - np.mean(y)) - 0.02
    assert np.mean(chosen.takes) < 1.9


def test_a_fold_is_judged_by_the_threshold_of_the_others() -> None:
    rng = np.random.default_rng(6)
    y, s = rng.integers(0, 2, (40, 3)).astype(float), rng.normal(size=(40, 3))
    folds = np.arange(40) % 4
    got = held_out(y, np.stack([s] * 4), folds, others(folds), 0.3, 3)
    for fold in range(4):
        held = folds == fold
        limit = np.sort(s[~held].ravel())[int(np.ceil(0.7 * 90)) - 1]
        expected = retry(y[held], s[held], limit, 3)
        np.testing.assert_allclose(got.success[held], expected.success)
        np.testing.assert_allclose(got.takes[held], expected.takes)
