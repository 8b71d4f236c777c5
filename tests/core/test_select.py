"""Retrying until a score passes, against every order of the takes."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from populations import PAIRS, draw

from besttake.core import headroom as h
from besttake.core import select
from besttake.core import select as s
from besttake.core.select import KEEPS, choose_rate, held_out, retry, threshold_at

shapes = st.tuples(st.integers(1, 5), st.integers(1, 6))


def worlds(shape):
    outcomes = arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, 0.0, 1.0, np.nan]))
    scores = arrays(np.float64, shape, elements=st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, np.nan, np.inf]))
    return st.tuples(outcomes, scores)


cells = shapes.flatmap(worlds)


def brute_choice(y: np.ndarray, score: np.ndarray, seeds: tuple[int, ...]) -> float:
    valid = [j for j in seeds if np.isfinite(score[j])]
    if not valid:
        return y[min(seeds)]
    best = max(score[j] for j in valid)
    return y[min(j for j in valid if score[j] == best)]


def brute_selected(y: np.ndarray, score: np.ndarray, n: int) -> float:
    seeds = [j for j in range(y.size) if not np.isnan(y[j])]
    if not seeds:
        return float("nan")
    return float(np.mean([brute_choice(y, score, sub) for sub in combinations(seeds, min(n, len(seeds)))]))


@settings(deadline=None)
@given(cells)
def test_selection_is_the_mean_over_all_subsets_for_every_n(cell):
    y, score = cell
    for n in range(1, y.shape[1] + 1):
        expected = [brute_selected(a, b, n) for a, b in zip(y, score, strict=True)]
        np.testing.assert_allclose(s.start_selected(y, score, n), expected, atol=1e-12)


@settings(deadline=None)
@given(cells)
def test_gain_never_exceeds_headroom_and_one_take_gains_nothing(cell):
    y, score = cell
    for n in range(1, y.shape[1] + 1):
        gain, room = s.start_gain(y, score, n), h.start_headroom(y, n)
        assert np.all((gain <= room + 1e-12) | np.isnan(gain))
    np.testing.assert_allclose(s.start_gain(y, score, 1), 0 * h.start_pass_at_k(y, 1), atol=1e-12)


@settings(deadline=None)
@given(cells)
def test_the_controls_are_pass_1_and_pass_n_exactly(cell):
    y, _ = cell
    np.testing.assert_equal(s.random(y).success, h.pass_at_k(y, 1))
    np.testing.assert_equal(s.oracle(y).success, h.pass_at_k(y, y.shape[1]))
    np.testing.assert_equal(s.oracle(y).gains, h.start_headroom(y))


def test_a_take_without_a_valid_score_is_chosen_only_when_no_other_has_one():
    y = [[1, 0, 1], [1, 0, 0], [np.nan, 0, 1], [np.nan] * 3]
    score = [[np.nan, 0.1, np.inf], [np.nan, np.nan, np.nan], [0.9, np.nan, 0.2], [1, 1, 1]]
    picks = s.pick(score, y)
    assert picks.index.tolist() == [1, 0, 2, -1]
    assert (picks.invalid, picks.blind) == (6, 1)


ranked_shapes = st.tuples(st.integers(1, 5), st.integers(1, 5))
ranked = ranked_shapes.flatmap(
    lambda shape: st.tuples(
        arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, 0.0, 1.0, np.nan])),
        arrays(np.float64, shape, elements=st.sampled_from([0.1, 0.2, 0.3, 0.4, np.nan])),
    )
)


def brute_auc(y, s):
    wins = [b for a, b in zip(y, s, strict=True) if a == 1 and np.isfinite(b)]
    losses = [b for a, b in zip(y, s, strict=True) if a == 0 and np.isfinite(b)]
    pairs = [(a > b) + 0.5 * (a == b) for a in wins for b in losses]
    return float(np.mean(pairs)) if pairs else float("nan")


@settings(deadline=None)
@given(ranked)
def test_within_start_auc_compares_takes_of_the_same_start_only(cell):
    y, s = cell
    np.testing.assert_allclose(select.start_auc(y, s), [brute_auc(a, b) for a, b in zip(y, s, strict=True)], atol=1e-12)


@settings(deadline=None)
@given(ranked)
def test_pooled_auc_compares_every_success_with_every_failure(cell):
    y, s = cell
    expected, found = brute_auc(y.ravel(), s.ravel()), select.pooled_auc(y, s)
    if np.isnan(expected):
        assert found.value is None
    else:
        assert found.value == pytest.approx(expected)
        assert 0 <= found.low <= found.value + 1e-12 <= found.high + 2e-12 <= 1 + 4e-12


def test_a_perfect_pooled_ranking_keeps_a_lower_bound_below_one():
    y = np.tile([1.0, 0.0, 0.0], (10, 1))
    found = select.pooled_auc(y, y)
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025**0.1)
    assert select.pooled_auc(y, -y).low == 0.0


@pytest.mark.slow
def test_the_pooled_interval_covers_where_both_outcomes_have_enough_starts():
    rng = np.random.default_rng(4)
    hits = []
    for name in ("pi0", "smolvla", "bridge spoon", "openvla"):
        big = draw(rng, PAIRS[name], 100_000, ranking=1.5)
        truth = select.pooled_auc(big.base, big.scores).value
        for _ in range(400):
            sample = draw(rng, PAIRS[name], 60, ranking=1.5)
            found = select.pooled_auc(sample.base, sample.scores)
            hits.append(found.low <= truth <= found.high)
    assert 0.93 - 0.01 <= np.mean(hits) <= 0.97 + 0.01, np.mean(hits)


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


def test_a_perfect_score_is_retried_until_it_passes_and_a_useless_one_not_at_all() -> None:
    rng = np.random.default_rng(5)
    y = (rng.random((400, 3)) < 0.5).astype(float)
    assert choose_rate(y, y + 0.01 * rng.random(y.shape), 3) == pytest.approx(0.5, abs=0.11)
    held = np.arange(400) % 5
    chosen = held_out(y, y, held, 3)
    assert np.mean(chosen.success) >= np.mean(y) + KEEPS * (np.mean(y.max(axis=1)) - np.mean(y)) - 0.02
    assert np.mean(chosen.takes) < 1.9


def test_a_fold_is_judged_by_the_threshold_of_the_others() -> None:
    rng = np.random.default_rng(6)
    y, s = rng.integers(0, 2, (40, 3)).astype(float), rng.normal(size=(40, 3))
    folds = np.arange(40) % 4
    got = held_out(y, s, folds, 3)
    for fold in range(4):
        held = folds == fold
        limit = threshold_at(s[~held], y[~held], choose_rate(y[~held], s[~held], 3))
        expected = retry(y[held], s[held], limit, 3)
        np.testing.assert_allclose(got.success[held], expected.success)
        np.testing.assert_allclose(got.takes[held], expected.takes)
