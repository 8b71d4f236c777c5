"""The recommendation, its correction, Holm and closed testing against brute force, and the error on exact nulls."""

from __future__ import annotations

from itertools import combinations

import evidence
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from besttake.core import verdict as o
from besttake.core.sequential import RepeatedLooks, wealth
from besttake.core.stats import gain_scale, p_not_above

S = 400
YES, NO = np.r_[np.full(160, 1 / 3), np.zeros(S - 160)], np.zeros(S)
# Mean of two points, spread so wide that nothing is settled.
OPEN = np.r_[np.full(100, 2 / 3), np.full(88, -2 / 3), np.zeros(S - 188)]
ROOM_OPEN = np.r_[np.full(15, 2 / 3), np.zeros(S - 15)]


def decide(**given):
    given = {"headroom": YES, **given}
    return evidence.decide(evidence.Evidence(**given), draws=1000)


@pytest.mark.parametrize(
    ("headroom", "gain", "answer", "reason"),
    [
        (NO, NO, "no", "no-headroom"),
        (YES, YES, "yes", ""),
        (ROOM_OPEN, YES, "yes", ""),
        (YES, NO, "no", ""),
        (YES, OPEN, "open", ""),
        (YES, None, "open", "no-score"),
        (NO, None, "no", "no-headroom"),
    ],
)
def test_more_takes_help_where_the_score_finds_what_they_hold(headroom, gain, answer, reason):
    found = decide(headroom=headroom, gain=gain).takes
    assert (found.answer, found.reason) == (answer, reason)


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        ({}, "not measured", "not-run"),
        ({"cooled": YES}, "not measured", "not-run"),
        ({"retrieve": YES, "cooled": NO, "content": YES}, "yes", ""),
        ({"retrieve": YES, "cooled": YES, "content": NO}, "no", ""),
        ({"retrieve": YES, "cooled": YES, "content": OPEN}, "open", ""),
        ({"retrieve": YES}, "open", "no-control"),
        ({"retrieve": NO}, "no", "no-control"),
    ],
)
def test_demonstrations_help_where_they_add_something_at_equal_noise(given, answer, reason):
    """Without the control, a gain of retrieval is not credited to what was retrieved."""
    found = decide(**given).demonstrations
    assert (found.answer, found.reason) == (answer, reason)


@pytest.mark.parametrize(
    ("pair", "alone", "answer"),
    [
        (None, None, "not measured"),
        (YES, YES, "yes"),
        (YES, NO, "no"),
        (NO, YES, "no"),
        (OPEN, NO, "no"),
        (OPEN, YES, "open"),
        (YES, OPEN, "open"),
    ],
)
def test_both_have_to_beat_either_alone(pair, alone, answer):
    assert decide(combine=pair, retrieve_selection=alone).both.answer == answer


def test_identical_takes_have_nothing_to_reuse():
    found = decide(headroom=np.zeros(3), gain=np.zeros(3), deterministic=True).takes
    assert (found.answer, found.reason) == ("no", "identical-takes")


def test_one_take_per_start_does_not_deny_headroom():
    found = decide(headroom=np.zeros(S), n=1).takes
    assert (found.answer, found.reason) == ("open", "one-take")
    assert decide(headroom=np.zeros(S), n=2, takes=np.ones(S, int)).takes.answer == "open"


def test_on_a_window_that_leaks_a_gain_that_the_shortest_take_matches_decides_nothing():
    found = decide(gain=YES, shortest=YES, leak_free=False).takes
    assert (found.answer, found.reason) == ("open", "length-leak")
    assert decide(gain=YES, shortest=NO, leak_free=False).takes.answer == "yes"
    assert decide(gain=YES, shortest=YES).takes.answer == "yes"


def test_a_run_that_was_looked_at_before_is_decided_by_the_test_for_repeated_looks():
    rng = np.random.default_rng(0)
    gain = rng.permutation(np.r_[np.full(14, 1 / 3), np.zeros(46)])
    asked = evidence.Evidence(headroom=gain, gain=gain)
    once = evidence.decide(asked)
    again = evidence.decide(asked, looks=RepeatedLooks(np.arange(60), (20, 40)))
    assert evidence.decide(asked, looks=RepeatedLooks(np.arange(60))) == once
    assert (once.takes.answer, again.takes.answer) == ("yes", "open")
    assert again.takes.gain == once.takes.gain
    kept = evidence.decide(asked, looks=RepeatedLooks(np.arange(60), (40,), answered={"gain": once.questions["gain"]}))
    assert kept.takes.answer == "yes"


def by_hand(e: NDArray[np.float64], alpha: float) -> list[bool]:
    """Closed testing by the book: an option is claimed when every set that holds it is rejected."""
    options = range(len(e))
    return [
        all(
            e[[i, *rest]].mean() >= 1 / alpha - 1e-9
            for size in options
            for rest in combinations([j for j in options if j != i], size)
        )
        for i in options
    ]


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0, 5.0, 19.0, 20.0, 21.0, 60.0, 119.0, 500.0]), min_size=1, max_size=6))
def test_claims_are_those_of_closed_testing_over_every_set(values: list[float]) -> None:
    e = np.array(values)
    assert o.claimed(e[None]).tolist() == by_hand(e, 0.05)


@pytest.mark.parametrize(
    ("p", "rejected"),
    [
        ([0.001], [True]),
        ([0.03, 0.03], [False, False]),
        ([0.02, 0.04], [True, True]),
        ([0.2, 0.012, 0.01, 0.03], [False, True, True, False]),
    ],
)
def test_holm_steps_down(p: list[float], rejected: list[bool]) -> None:
    assert o.holm(p).tolist() == rejected


def rows(*means: float, starts: int = 400, seed: int = 0) -> NDArray[np.float64]:
    """Success (S, K) of options whose starts succeed with these chances, paired: an easy start is easy for all."""
    ease = np.random.default_rng(seed).random((starts, 1))
    return (ease < np.array(means)).astype(np.float64)


def test_the_cheapest_option_that_is_shown_to_be_within_worth_of_all_is_recommended() -> None:
    alike = rows(0.5, 0.7, 0.7, 0.71)
    assert o.recommend(alike, 0.03) == o.Recommendation(option=1, within=True, best=3, cheaper=0)
    assert o.recommend(rows(0.7, 0.7, 0.705), 0.03).option == 0


def test_where_a_cheaper_option_is_not_shown_to_do_as_well_the_best_estimate_is_recommended() -> None:
    few = rows(0.4, 0.62, 0.66, starts=20)
    advice = o.recommend(few, 0.03)
    assert (advice.option, advice.within) == (advice.best, False)
    assert advice.cheaper is not None
    far = o.recommend(rows(0.4, 0.5, 0.8), 0.03)
    assert (far.option, far.within, far.cheaper) == (2, True, 1)


def test_starts_without_a_value_for_an_option_leave_the_others_as_they_are() -> None:
    success = rows(0.4, 0.8, 0.5)
    success[::2, 2] = np.nan
    assert o.recommend(success, 0.03).option == 1
    assert o.optimism(success, 0.03) == pytest.approx(0.0, abs=0.01)
    few = rows(0.2, 0.9, 0.3, starts=6)
    few[:4, 1] = np.nan
    assert np.isfinite(o.optimism(few, 0.03))
    few[:, 1:] = np.nan
    assert o.optimism(few, 0.03) == 0.0
    assert o.recommend(np.full((3, 2), np.nan), 0.03) == o.Recommendation(0, False, 0, None)


def test_a_choice_that_every_division_makes_is_not_corrected_and_one_of_equals_is() -> None:
    clear = rows(0.2, 0.9, 0.3, starts=80)
    assert o.optimism(clear, 0.03) == 0.0
    rng = np.random.default_rng(1)
    equal = (rng.random((40, 6)) < 0.5).astype(float)
    raised = o.recommend(equal, 0.03)
    gain = float((equal[:, raised.option] - equal[:, 0]).mean())
    assert gain > 0.05
    assert 0.3 * gain < o.optimism(equal, 0.03)
    assert o.optimism(equal[:8], 0.03) > 0.0
    assert o.optimism(equal[:1], 0.03) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("starts", [20, 80])
def test_the_corrected_gain_of_a_chosen_option_is_right_on_average(starts: int) -> None:
    """Six options of nearly the same success: the raw estimate of the chosen one is points too high."""
    rng = np.random.default_rng(starts)
    raw, corrected, claimed = [], [], []
    for truth in ([0.4, 0.5, 0.55, 0.6, 0.62, 0.64], [0.5] * 6):
        for _ in range(150):
            ease = rng.beta(0.8, 0.8, (starts, 1))
            shift = np.array(truth) - 0.5
            success = (rng.random((starts, 6)) < np.clip(ease + shift, 0, 1)).astype(float)
            many = np.clip(rng.beta(0.8, 0.8, (20_000, 1)) + shift, 0, 1).mean(axis=0)
            option = o.recommend(success, 0.03).option
            gain = float((success[:, option] - success[:, 0]).mean())
            real, less = float(many[option] - many[0]), gain - o.optimism(success, 0.03)
            raw.append(gain - real)
            corrected.append(less - real)
            if len(set(truth)) == 1:
                claimed.append(less)
    assert abs(np.mean(corrected)) <= (0.015 if starts == 20 else 0.007) + 2 * np.std(corrected) / np.sqrt(300)
    assert np.mean(raw) > abs(np.mean(corrected))
    assert np.mean(claimed) <= 0.01 + 2 * np.std(claimed) / np.sqrt(150)


def null_menus(rng: np.random.Generator, runs: int, starts: int, options: int) -> NDArray[np.float64]:
    """Gains (runs, starts, options) of options that gain nothing: choices among three takes by linked blind scores."""
    p = rng.beta(0.4, 0.4, (runs, starts, 1))
    y = (rng.random((runs, starts, 3)) < p).astype(float)
    common = rng.normal(size=(runs, starts, 3, 1))
    scores = np.sqrt(0.6) * common + np.sqrt(0.4) * rng.normal(size=(runs, starts, 3, options))
    kept = np.take_along_axis(y[..., None], scores.argmax(axis=2)[:, :, None, :], axis=2)[:, :, 0, :]
    return kept - y.mean(axis=2, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [6, 10])
@pytest.mark.parametrize("starts", [20, 60])
def test_a_fixed_sample_shows_any_of_many_options_that_gain_nothing_in_at_most_5_percent(
    options: int, starts: int
) -> None:
    menus, scale = null_menus(np.random.default_rng(options + starts), 600, starts, options), gain_scale(3)
    shown = naive = 0
    for i, menu in enumerate(menus):
        p = np.array([p_not_above(menu[:, k], 0.0, scale.lo, rng=i, draws=2000) for k in range(options)])
        enough = menu.mean(axis=0) >= 0.03
        shown += bool(np.any(o.holm(p) & enough))
        naive += bool(np.any((p <= 0.05) & enough))
    assert shown / 600 <= 0.05
    assert naive > shown


@pytest.mark.slow
@pytest.mark.parametrize("options", [6, 10])
def test_a_run_that_is_watched_claims_any_of_many_options_that_gain_nothing_in_at_most_5_percent(options: int) -> None:
    menus, scale = null_menus(np.random.default_rng(options), 2000, 200, options), gain_scale(3)
    e = wealth(menus.swapaxes(0, 1), 0.0, 1, scale.lo, scale.hi, fixed=0.75, alpha=0.05 / options) / 2
    claims = np.mean([o.claimed(e[:, run]).any() for run in range(2000)])
    naive = np.mean((e.max(axis=0) >= 20).any(axis=1))
    assert claims <= 0.05
    assert naive > claims
