from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from besttake.core import probe as p


def data(seed=0, states=12, k=3, horizon=4, action=2, demos=4):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((states, horizon, action))
    samples = truth[:, None] + 0.3 * rng.standard_normal((states, k, horizon, action))
    return samples, truth, np.arange(states) % demos


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 6))
def test_dfe_is_the_mean_over_states_of_the_least_distance_over_samples(seed, k, horizon):
    samples, truth, demo = data(seed, k=k, horizon=horizon)
    by_hand = [
        min(math.sqrt(sum((float(x) - float(y)) ** 2 for x, y in zip(s.ravel(), t.ravel(), strict=True))) for s in row)
        for row, t in zip(samples, truth, strict=True)
    ]
    np.testing.assert_allclose(p.fit_error(samples, truth), by_hand, rtol=1e-12)
    assert p.probe(samples, truth, demo).dfe.value == pytest.approx(np.mean(by_hand))


def brute_floor(features, chunks, demo, states, k):
    z = (features - features.mean(0)) / features.std(0)
    result = []
    for i in states:
        stand_ins = []
        for other in set(demo.tolist()) - {int(demo[i])}:
            rows = [r for r in range(len(demo)) if demo[r] == other]
            near = min(rows, key=lambda r: float(((z[r] - z[i]) ** 2).sum()))
            stand_ins.append((float(((z[near] - z[i]) ** 2).sum()), near))
        chosen = [near for _, near in sorted(stand_ins)[:k]]
        result.append(min(float(np.linalg.norm(chunks[r] - chunks[i])) for r in chosen))
    return result


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 6))
def test_the_floor_is_what_the_nearest_states_of_other_demonstrations_did(seed, demos, k):
    rng = np.random.default_rng(seed)
    demo = rng.permutation(np.repeat(np.arange(demos) * 3, 7))
    features, chunks = rng.standard_normal((len(demo), 3)), rng.standard_normal((len(demo), 2, 2))
    states = np.sort(rng.permutation(len(demo))[:9])
    found = p.leave_one_out(features, chunks, demo, states, k)
    np.testing.assert_allclose(found, brute_floor(features, chunks, demo, states, k), rtol=1e-9)


def test_correlation_is_pearson_of_the_closest_sampled_first_action_as_in_the_paper():
    samples, truth, demo = data(4, states=40)
    rows = list(zip(samples, truth, strict=True))
    closest = [int(np.argmin([math.dist(s[0], t[0]) for s in row])) for row, t in rows]
    whole = [int(np.argmin([np.linalg.norm(s - t) for s in row])) for row, t in rows]
    assert closest != whole, "the sample with the closest chunk need not have the closest first action"
    first = np.array([samples[i, c, 0] for i, c in enumerate(closest)])
    expected = stats.pearsonr(first.ravel(), truth[:, 0].ravel()).statistic
    assert p.probe(samples, truth, demo).correlation.value == pytest.approx(expected)
    assert p.probe(samples, np.zeros_like(truth), demo).correlation.value is None


def test_spread_is_the_root_mean_square_distance_from_the_mean_and_needs_two_samples():
    samples, _, _ = data(5)
    for row, value in zip(samples, p.sampling_spread(samples), strict=True):
        assert value == pytest.approx(np.sqrt(row.reshape(3, -1).var(axis=0, ddof=1).sum()))
    assert np.isnan(p.sampling_spread(samples[:, :1])).all()


def test_intervals_resample_whole_demonstrations():
    rng = np.random.default_rng(6)
    demo = np.repeat(np.arange(30), 10)
    shift = rng.standard_normal(30)[demo] + 5
    truth = np.zeros((300, 1, 1))
    result = p.probe(shift[:, None, None, None], truth, demo)
    per_demo = np.array([np.abs(shift[demo == d]).mean() for d in range(30)])
    reference = stats.bootstrap((per_demo,), np.mean, method="percentile", rng=np.random.default_rng(0))
    low, high = reference.confidence_interval
    assert result.dfe.low == pytest.approx(low, abs=0.06)
    assert result.dfe.high == pytest.approx(high, abs=0.06)
    assert (result.states, result.samples) == (300, 1)
    assert p.probe(shift[:, None, None, None], truth, demo).dfe == result.dfe


def test_one_demonstration_gives_a_value_without_an_interval_and_no_floor_gives_none():
    samples, truth, _ = data(7)
    result = p.probe(samples, truth, np.zeros(12, int))
    assert result.dfe.value > 0
    assert result.dfe.low is None
    assert result.floor.value is None
    assert result.ratio.value is None


def test_states_of_demonstrations_are_spread_over_their_course_and_over_all_of_them():
    """40 demonstrations of 20 frames: every 20th row would be the same moment of each."""
    demo = np.repeat(np.arange(40), 20)
    rows = p.spread_over(demo, 40)
    assert demo[rows].tolist() == list(range(40))
    assert np.bincount(rows % 20 // 5).tolist() == pytest.approx([10] * 4, abs=1)
    many = p.spread_over(demo, 160)
    assert len(set(many.tolist())) == 160
    assert np.bincount(demo[many]).tolist() == [4] * 40
    assert np.bincount(many % 20 // 5).tolist() == pytest.approx([40] * 4, abs=1)
