"""Choosing a scorer on other starts: no start is judged by a choice that it was part of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats as sps

from besttake.core import select, stats, verdict
from besttake.core.crossfit import best, chosen_in_order, folds_of


def by_folds(gains: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """The choice by folds, which is not enough: the best on the other folds."""
    chosen = np.zeros(len(gains), dtype=np.int64)
    for fold in np.unique(folds):
        chosen[folds == fold] = best(gains[folds != fold])
    return chosen


def test_changing_a_start_changes_no_choice_up_to_it() -> None:
    rng = np.random.default_rng(1)
    gains, order = rng.normal(size=(30, 5)), rng.permutation(30)
    before = chosen_in_order(gains, order)
    for place, i in enumerate(order):
        changed = gains.copy()
        changed[i] = 100 * rng.normal(size=5)
        after = chosen_in_order(changed, order)
        assert [after[j] for j in order[: place + 1]] == [before[j] for j in order[: place + 1]]


def test_in_order_is_the_best_of_those_before() -> None:
    rng = np.random.default_rng(2)
    gains, order = rng.normal(size=(40, 3)), rng.permutation(40)
    chosen = chosen_in_order(gains, order)
    for place, i in enumerate(order):
        expected = 0 if place < 10 else int(np.argmax(gains[order[:place]].mean(axis=0)))
        assert chosen[i] == expected


def test_a_scorer_without_a_value_is_chosen_last_and_ties_go_to_the_first() -> None:
    assert best(np.array([[np.nan, -0.2], [np.nan, -0.4]])) == 1
    assert best(np.array([[0.1, 0.1, 0.0]])) == 0
    assert best(np.full((3, 2), np.nan)) == 0


def shown(starts: int, runs: int, seed: int, choose: Callable[[np.ndarray], np.ndarray]) -> int:
    """How often a gain is shown where ten scorers that know nothing pick among takes of starts of mixed difficulty."""
    rng, count = np.random.default_rng(seed), 0
    for _ in range(runs):
        y = (rng.random((starts, 3)) < rng.beta(1, 1, (starts, 1))).astype(float)
        gains = np.stack([select.start_gain(y, rng.random(y.shape), 3) for _ in range(10)], axis=1)
        judged = gains[np.arange(starts), choose(gains)]
        count += verdict.ask(judged, stats.gain_scale(3), 0.03, rng=rng, draws=500).answer == "yes"
    return count


@pytest.mark.slow
@pytest.mark.parametrize("starts", [60, 240])
def test_ten_useless_scorers_are_declared_a_gain_in_at_most_5_percent(starts: int) -> None:
    count = shown(starts, 500, 3, lambda gains: chosen_in_order(gains, np.arange(len(gains))))
    assert sps.binomtest(count, 500, 0.05, alternative="greater").pvalue > 0.01, f"{count} of 500"


@pytest.mark.slow
def test_choosing_by_folds_or_on_the_same_starts_would_break_that_promise() -> None:
    for choose in (lambda g: by_folds(g, folds_of(len(g))), lambda g: np.full(len(g), best(g))):
        count = shown(60, 200, 4, choose)
        assert sps.binomtest(count, 200, 0.05, alternative="greater").pvalue < 0.05, f"{count} of 200"
