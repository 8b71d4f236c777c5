from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from besttake.core import headroom as h
from besttake.core import select as s

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


@given(st.integers(1, 5), st.integers(2, 6), st.randoms(), st.integers(0, 2**32 - 1))
def test_permuting_seeds_changes_nothing_without_ties(starts, seeds, random, seed):
    rng = np.random.default_rng(seed)
    y, score = (
        rng.integers(0, 2, (starts, seeds)).astype(float),
        rng.permuted(np.tile(np.arange(seeds), (starts, 1)), axis=1),
    )
    columns = list(range(seeds))
    random.shuffle(columns)
    for n in range(1, seeds + 1):
        np.testing.assert_allclose(
            s.start_selected(y[:, columns], score[:, columns], n), s.start_selected(y, score, n), atol=1e-12
        )


@pytest.mark.parametrize(("k", "n"), [(3, 3), (5, 3), (7, 2), (6, 1)])
def test_rank_weights_are_the_chances_of_being_the_best_of_a_subset(k, n):
    subsets = list(combinations(range(k), n))
    expected = [np.mean([min(sub) == r for sub in subsets]) for r in range(k)]
    np.testing.assert_allclose(s.rank_weights(k, n), expected, atol=1e-12)


def test_ties_go_to_the_lowest_seed():
    assert s.pick([[0.3, 0.7, 0.7]], [[0, 0, 1]]).index.tolist() == [1]


def test_a_take_without_a_valid_score_is_chosen_only_when_no_other_has_one():
    y = [[1, 0, 1], [1, 0, 0], [np.nan, 0, 1], [np.nan] * 3]
    score = [[np.nan, 0.1, np.inf], [np.nan, np.nan, np.nan], [0.9, np.nan, 0.2], [1, 1, 1]]
    picks = s.pick(score, y)
    assert picks.index.tolist() == [1, 0, 2, -1]
    assert (picks.invalid, picks.blind) == (6, 1)


def test_shortest_captures_all_headroom_where_success_ends_the_episode():
    y = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    lengths = np.where(y == 1, 40, 100)
    found = s.shortest(y, lengths)
    assert found.gain == pytest.approx(h.mean(h.start_headroom(y)))
    assert s.capture(found.gain, h.mean(h.start_headroom(y))) == pytest.approx(1)


def test_capture_is_undefined_not_infinite_without_headroom():
    assert s.capture(0.0, 0.0) is None
    assert s.capture(0.125, 0.181) == pytest.approx(0.69, abs=0.005)


@pytest.mark.parametrize("n", [0, 4])
def test_more_takes_than_there_are_cannot_be_chosen_among(n):
    for call in (lambda: s.select([[0, 1, 1]], [[1, 2, 3]], n), lambda: s.random([[0, 1, 1]], n)):
        with pytest.raises(ValueError, match="there are 3 seeds"):
            call()
