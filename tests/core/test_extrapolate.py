import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from populations import PAIRS, beta_pass, matched
from scipy.optimize import minimize
from scipy.stats import betabinom

from besttake.core import extrapolate as e
from besttake.core.headroom import pass_at_k

small = st.tuples(st.integers(2, 12), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0]))
)


def takes(rng, pair, starts, seeds=3, impossible=0.0):
    p = rng.beta(*matched(*pair), starts) * (rng.random(starts) >= impossible)
    return (rng.random((starts, seeds)) < p[:, None]).astype(float)


def test_the_fit_is_the_maximum_likelihood_of_scipys_beta_binomial():
    y = takes(np.random.default_rng(0), PAIRS["pi0"], 400, seeds=5)
    counts = y.sum(1)
    other = minimize(lambda t: -np.sum(betabinom.logpmf(counts, 5, *np.exp(t))), [0, 0], method="Nelder-Mead")
    found = e.fit(y)
    assert found.impossible == 0
    assert (found.a, found.b) == pytest.approx(tuple(np.exp(other.x)), rel=0.02)


@pytest.mark.parametrize("name", ["pi0", "pi05", "openvla"])
def test_twice_the_takes_are_foreseen_on_matched_populations(name):
    pair = PAIRS[name]
    found = e.extrapolate(takes(np.random.default_rng(1), pair, 4000), 6)
    assert found.model == "beta-binomial"
    assert found.value == pytest.approx(beta_pass(*matched(*pair), 6), abs=0.02)
    assert found.low <= found.value <= found.high


def test_impossible_starts_are_noticed_and_keep_the_forecast_honest():
    """With five takes, a tenth of the starts impossible: the plain model promises too much."""
    rng = np.random.default_rng(2)
    y = takes(rng, (0.7, 0.955), 1500, seeds=5, impossible=0.1)
    truth = 0.9 * beta_pass(*matched(0.7, 0.955), 10)
    found = e.extrapolate(y, 10)
    assert found.model == "zero-inflated beta-binomial"
    assert found.value == pytest.approx(truth, abs=0.015)


@settings(deadline=None, max_examples=15)
@given(small)
def test_bounds_hold_the_measured_pass_n_and_the_forecast(y):
    n = y.shape[1]
    found = e.extrapolate(y, 2 * n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert e.extrapolate(y, n).value == pass_at_k(y, n)


def test_bounds_are_sharp_for_one_take():
    """From pass@1 = m alone, pass@2 is anywhere between m (starts are all or nothing) and 1 - (1 - m)^2 (all alike)."""
    y = np.array([[1.0], [0.0], [1.0], [1.0], [0.0]])
    low, high = e.sharp_bounds(y, 2)
    assert (low, high) == pytest.approx((0.6, 1 - 0.4**2), abs=1e-4)


def test_bounds_hold_the_truth_of_every_population_with_the_same_curve():
    rng = np.random.default_rng(3)
    for impossible in (0.0, 0.2):
        y = takes(rng, PAIRS["pi0 libero-10"], 40_000, impossible=impossible)
        truth = (1 - impossible) * beta_pass(*matched(*PAIRS["pi0 libero-10"]), 6)
        low, high = e.sharp_bounds(y, 6)
        assert low - 0.01 <= truth <= high + 0.01


def test_a_guess_is_refused_in_one_line():
    with pytest.raises(ValueError, match="pass@7 from 3 takes per start") as caught:
        e.extrapolate(np.ones((4, 3)), 7)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="nothing to extrapolate"):
        e.fit(np.full((2, 2), np.nan))
