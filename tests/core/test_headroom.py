from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from populations import PAIRS, beta_pass, matched
from scipy.optimize import minimize
from scipy.stats import betabinom

from besttake.core import headroom as h

takes = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, np.nan]))
)


def brute_pass(row: np.ndarray, k: int) -> float:
    seen = row[~np.isnan(row)]
    if not seen.size:
        return float("nan")
    return float(np.mean([max(s) for s in combinations(seen, min(k, seen.size))]))


@given(takes)
def test_pass_at_k_is_the_mean_of_the_best_over_all_subsets(y):
    for k in range(1, y.shape[1] + 1):
        expected = [brute_pass(row, k) for row in y]
        np.testing.assert_allclose(h.start_pass_at_k(y, k), expected, atol=1e-12)


@given(takes)
def test_headroom_of_a_start_is_its_best_take_minus_its_mean(y):
    for row, value in zip(y, h.start_headroom(y), strict=True):
        if np.isnan(row).all():
            assert np.isnan(value)
        else:
            assert value == pytest.approx(np.nanmax(row) - np.nanmean(row))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: h.pass_at_k([[0, 1]], 0), "k >= 1"),
        (lambda: h.pass_at_k([[0, 2]], 1), "0, 1 or NaN"),
        (lambda: h.pass_at_k([0, 1], 1), "shape"),
        (lambda: h.start_headroom([[0, 1]], 3), "2 seeds"),
        (lambda: h.extrapolate([[0, 1]], 5, h.BetaFit(1, 1, 0, 0)), "a guess"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, says):
    with pytest.raises(ValueError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


small = st.tuples(st.integers(2, 12), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0]))
)


def beta_takes(rng, pair, starts, seeds=3, impossible=0.0):
    p = rng.beta(*matched(*pair), starts) * (rng.random(starts) >= impossible)
    return (rng.random((starts, seeds)) < p[:, None]).astype(float)


def test_the_fit_is_the_maximum_likelihood_of_scipys_beta_binomial():
    y = beta_takes(np.random.default_rng(0), PAIRS["pi0"], 400, seeds=5)
    counts = y.sum(1)
    other = minimize(lambda t: -np.sum(betabinom.logpmf(counts, 5, *np.exp(t))), [0, 0], method="Nelder-Mead")
    found = h.fit_beta(y)
    assert found.impossible == 0
    assert (found.a, found.b) == pytest.approx(tuple(np.exp(other.x)), rel=0.02)


@pytest.mark.parametrize("name", ["pi0", "pi05", "openvla"])
def test_twice_the_takes_are_foreseen_on_matched_populations(name):
    pair = PAIRS[name]
    y = beta_takes(np.random.default_rng(1), pair, 4000)
    model = h.fit_beta(y)
    value, low, high = h.extrapolate(y, 6, model)
    assert model.impossible == 0
    assert value == pytest.approx(beta_pass(*matched(*pair), 6), abs=0.02)
    assert low <= value <= high


def test_impossible_starts_are_noticed_and_keep_the_forecast_honest():
    """With five takes, a tenth of the starts impossible: the plain model promises too much."""
    rng = np.random.default_rng(2)
    y = beta_takes(rng, (0.7, 0.955), 1500, seeds=5, impossible=0.1)
    truth = 0.9 * beta_pass(*matched(0.7, 0.955), 10)
    model = h.fit_beta(y)
    assert model.impossible > 0
    assert h.extrapolate(y, 10, model)[0] == pytest.approx(truth, abs=0.015)


@settings(deadline=None, max_examples=15)
@given(small)
def test_bounds_hold_the_forecast(y):
    value, low, high = h.extrapolate(y, 2 * y.shape[1], h.fit_beta(y))
    assert 0 <= low <= value <= high <= 1


def test_bounds_are_sharp_for_one_take():
    """From pass@1 = m alone, pass@2 is anywhere between m (starts are all or nothing) and 1 - (1 - m)^2 (all alike)."""
    y = np.array([[1.0], [0.0], [1.0], [1.0], [0.0]])
    low, high = h.sharp_bounds(y, 2)
    assert (low, high) == pytest.approx((0.6, 1 - 0.4**2), abs=1e-4)


def test_bounds_hold_the_truth_of_every_population_with_the_same_curve():
    rng = np.random.default_rng(3)
    for impossible in (0.0, 0.2):
        y = beta_takes(rng, PAIRS["pi0 libero-10"], 40_000, impossible=impossible)
        truth = (1 - impossible) * beta_pass(*matched(*PAIRS["pi0 libero-10"]), 6)
        low, high = h.sharp_bounds(y, 6)
        assert low - 0.01 <= truth <= high + 0.01
