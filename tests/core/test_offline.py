"""The check at held-out demonstration states, on arrays whose errors are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from besttake.core.offline import CLOSE, GAIN, REACH, Comparison, ConfigCheck, States, choose_config, judge, of_group
from besttake.core.retrieve import RetrievalConfig
from besttake.core.stats import Estimate

M, K, STEPS, DIMS = 120, 8, 4, 3
SPREAD = np.array([2.0, 0.5, 0.0])
RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=(M, STEPS, DIMS)) * SPREAD
STATES = States(TRUTH, np.repeat(np.arange(30), 4), np.zeros((M, DIMS)), np.tile(SPREAD, (M, 1)))


def samples(bias: Any, noise: float, seed: int = 1) -> Any:
    """Samples that are off by ``bias`` (of each dimension, in standard deviations) and noisy by ``noise``."""
    drawn = np.random.default_rng(seed).normal(size=(M, K, STEPS, DIMS))
    return TRUTH[:, None] + SPREAD * (np.asarray(bias) + noise * drawn)


def test_the_error_of_a_sample_by_hand() -> None:
    compare, off = Comparison(STATES), samples((0.3, 0.4, 9.0), 0.5)
    error = compare.error(off)
    gaps = ((off - TRUTH[:, None]) / [2, 0.5, np.inf])[..., :2]
    assert error.value == pytest.approx(np.sqrt((gaps**2).mean()))
    assert error.value == pytest.approx(np.sqrt((0.3**2 + 0.4**2) / 2 + 0.5**2), abs=0.01)
    assert error.low is not None and error.high is not None  # noqa: PT018
    assert error.low < error.value < error.high
    assert compare.mean_action().value == pytest.approx(1.0, abs=0.05)


def test_the_interval_resamples_demonstrations_and_holds_for_the_difference() -> None:
    compare, own, control = Comparison(STATES), samples((0.1, 0.1, 0), 0.3), samples((0.4, 0.1, 0), 0.3)
    added = compare.difference(own, control)
    assert added.value == pytest.approx(compare.error(own).value - compare.error(control).value)  # type: ignore[operator]
    rng, values = np.random.default_rng(5), []
    squares = [
        (((one - TRUTH[:, None]) / [2, 0.5, np.inf])[..., :2] ** 2).mean(axis=(1, 2, 3)) for one in (own, control)
    ]
    for _ in range(1000):
        rows = (4 * rng.integers(30, size=30)[:, None] + np.arange(4)).ravel()
        values.append(np.sqrt(squares[0][rows].mean()) - np.sqrt(squares[1][rows].mean()))
    assert (added.low, added.high) == pytest.approx(np.percentile(values, [2.5, 97.5]), abs=0.003)


def checked(bias: Any, control: Any, noise: float = 0.3, **settings: Any) -> ConfigCheck:
    config = RetrievalConfig(**{"rule": "frame", "rerank": 10, "prior": 0.2, **settings})
    own, other = samples(bias, noise), samples(control, 0.3)
    return judge(Comparison(STATES), config, own, own, other, samples((0, 0, 0), 0.9))


def test_what_lowers_the_error_of_a_sample_helps_and_what_spreads_it_does_not() -> None:
    assert checked((0.4, 0.4, 0), (0.5, 0.5, 0)).helps
    assert not checked((0.5, 0.5, 0), (0.5, 0.5, 0)).helps
    assert not checked((0.49, 0.49, 0), (0.5, 0.5, 0)).helps, "it falls by less than GAIN"
    assert not checked((0.4, 0.4, 0), (0.5, 0.5, 0), noise=0.5).helps, "a better mean, and more spread"
    assert not checked((-0.4, -0.4, 0), (0.5, 0.5, 0)).helps, "it moves the sample too far"


def stated(added: float, **settings: Any) -> ConfigCheck:
    one = checked((0.4, 0.4, 0), (0.5, 0.5, 0), **settings)
    return replace(one, added=Estimate(added, added - 0.01, added + 0.01), reach=0.3)


def test_reach_is_the_shift_of_the_mean_over_the_spread_of_base_samples() -> None:
    own, control, base = samples((0.1, 0.4, 0), 0.3), samples((0.4, 0.4, 0), 0.3, 2), samples((0, 0, 0), 0.6, 3)
    assert Comparison(STATES).reach(own, control, base) == pytest.approx(np.sqrt(0.3**2 / 2) / 0.6, abs=0.02)
    assert Comparison(STATES).reach(own, own, base) == 0
    assert Comparison(STATES).reach(own, control, control * 0) is None


def test_the_prior_with_the_lowest_error_is_taken_unless_it_moves_the_sample_too_far() -> None:
    """As `alt`, whose error falls up to prior 0.5, where it succeeds less often than with 0.2."""
    weak, medium, strong = stated(-0.03, prior=0.1), stated(-0.06, prior=0.2), stated(-0.1, prior=0.5)
    assert choose_config([weak, medium, strong]) == strong.config
    assert choose_config([weak, medium, replace(strong, reach=1.01 * REACH)]) == medium.config
    assert choose_config([stated(0.02), stated(-0.99 * GAIN)]) is None
    assert choose_config([]) is None


def test_of_those_that_do_about_as_well_the_simplest_and_then_the_weakest_is_taken() -> None:
    plain, variant = stated(-0.050), stated(-0.055, reliability=1.0)
    assert choose_config([variant, plain]) == plain.config
    much = stated(-0.051 - CLOSE, reliability=1.0)
    assert choose_config([plain, much]) == much.config
    weaker = stated(-0.045, prior=0.1)
    assert choose_config([plain, weaker]) == weaker.config
    assert choose_config([stated(-0.05, rerank=0), plain]) == plain.config


def test_a_group_takes_the_prior_that_helps_it_and_none_where_a_gain_is_ruled_out() -> None:
    def about(added: float, width: float, prior: float = 0.2) -> ConfigCheck:
        return replace(stated(added, prior=prior), added=Estimate(added, added - width, added + width))

    chosen = stated(-0.03).config
    assert of_group([about(-0.01, 0.03, 0.1), about(-0.05, 0.01, 0.3)], chosen, 60).prior == 0.3
    assert of_group([about(-0.05, 0.01)], None, 60).prior == 0.2, "though all groups together show nothing"
    assert of_group([about(-0.005, 0.01)], chosen, 60).prior == 0, "a gain of 0.02 is ruled out"
    assert of_group([about(-0.01, 0.03)], chosen, 60).prior == 0.2, "open here, and shown over all groups"
    none = of_group([about(-0.01, 0.03)], None, 60)
    assert (none.prior, none.states, none.added.value) == (0, 60, -0.01)
