from math import ceil

import numpy as np
import pytest
from populations import PAIRS, beta_pass, draw, matched

from besttake.core import planning as p
from besttake.core.headroom import pass_at_k
from besttake.core.select import start_gain


@pytest.mark.parametrize(("seeds", "n", "factor"), [(3, 3, 2 / 3), (5, 3, 0.26), (5, 5, 0.8), (2, 2, 0.5)])
def test_a_blind_choice_has_the_variance_of_the_formula(seeds, n, factor):
    assert p.blind_variance(1.0, seeds, n) == pytest.approx(factor)
    sample = draw(np.random.default_rng(seeds), PAIRS["pi0"], 60_000, seeds=seeds, ranking=0.0)
    v = beta_pass(*matched(*PAIRS["pi0"]), 2) - PAIRS["pi0"][0]
    found = np.var(start_gain(sample.base, sample.scores, n))
    assert found == pytest.approx(p.blind_variance(v, seeds, n), rel=0.03)


@pytest.mark.parametrize("name", PAIRS)
def test_on_the_papers_populations_a_good_score_varies_no_more_than_a_blind_one(name):
    sample = draw(np.random.default_rng(1), PAIRS[name], 40_000, ranking=2.5)
    v = beta_pass(*matched(*PAIRS[name]), 2) - PAIRS[name][0]
    assert np.var(start_gain(sample.base, sample.scores)) <= p.blind_variance(v) * 1.03


def test_where_successes_are_rare_a_perfect_score_varies_twice_as_much():
    rng = np.random.default_rng(2)
    y = (rng.random((60_000, 3)) < 0.02).astype(float)
    v = 0.02 * 0.98
    assert np.var(start_gain(y, y)) > 1.8 * p.blind_variance(v)


def test_v_of_a_pilot_is_pass_2_minus_pass_1():
    sample = draw(np.random.default_rng(3), PAIRS["smolvla"], 20_000)
    assert pass_at_k(sample.base, 2) - pass_at_k(sample.base, 1) == pytest.approx(
        beta_pass(*matched(*PAIRS["smolvla"]), 2) - 0.656, abs=0.005
    )


def test_v_from_pass_1_is_typical_of_the_paper_and_never_above_its_limit():
    shares = []
    for pair in PAIRS.values():
        v = beta_pass(*matched(*pair), 2) - pair[0]
        shares.append(v / (pair[0] * (1 - pair[0])))
        assert v <= p.v_from_pass1(pair[0])[1]
    assert np.mean(shares) == pytest.approx(0.66, abs=0.01)
    assert (min(shares), max(shares)) == pytest.approx((0.44, 0.85), abs=0.01)
    with pytest.raises(ValueError, match="between 0 and 1"):
        p.v_from_pass1(64)


def test_the_half_width_comes_out_when_that_many_starts_are_run():
    v = beta_pass(*matched(*PAIRS["pi0"]), 2) - 0.642
    starts = p.starts_for_half_width(p.blind_variance(v), 0.05)
    assert starts == ceil(1.959964**2 * 2 / 3 * v / 0.05**2)
    rng = np.random.default_rng(4)
    means = []
    for _ in range(400):
        sample = draw(rng, PAIRS["pi0"], starts, ranking=0.0)
        means.append(start_gain(sample.base, sample.scores).mean())
    assert 1.96 * np.std(means) == pytest.approx(0.05, rel=0.12)


def test_the_smallest_effect_is_found_with_its_power():
    effect = p.smallest_effect(0.1, 200)
    x = np.random.default_rng(5).normal(effect, 0.1**0.5, (4000, 200))
    assert np.mean(x.mean(1) > 1.645 * (0.1 / 200) ** 0.5) == pytest.approx(0.8, abs=0.02)


def test_a_take_with_five_seeds_is_worth_half_as_much_again_when_the_score_is_blind():
    assert p.seeds_worth(5) == pytest.approx(1.54, abs=0.01)
    assert p.seeds_worth(3) == pytest.approx(1)


def test_a_plan_from_a_pilot_uses_its_gains():
    sample = draw(np.random.default_rng(6), PAIRS["pi0"], 60, ranking=3.0)
    gains = start_gain(sample.base, sample.scores)
    v, sigma2 = pass_at_k(sample.base, 2) - pass_at_k(sample.base, 1), float(np.var(gains, ddof=1))
    found = p.plan(v, gain=gains.mean(), sigma2=sigma2, starts=100, within_auc=0.95)
    assert found.sigma2 == sigma2
    assert found.yes_starts == p.starts_until_decided(found.sigma2, gains.mean())
    assert found.smallest_effect == pytest.approx(p.smallest_effect(found.sigma2, 100))
    assert found.no_takes == 3 * found.no_starts
    without = p.plan(v)
    assert without.sigma2 == pytest.approx(2 / 3 * v)
    assert (without.yes_starts, without.smallest_effect) == (None, None)


def test_nonsense_is_refused():
    for call in (lambda: p.plan(0.1, 0), lambda: p.starts_for_half_width(1, 0), lambda: p.smallest_effect(1, 0)):
        with pytest.raises(ValueError):
            call()
    assert p.content_variance(0.15, 3) == pytest.approx(0.1)
