"""Until decided: the answer along the starts is that of the scalar test, and bounds are those of a plain search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from besttake.core.sequential import Accounts, Looks, SequentialTest, wealth
from besttake.core.stats import difference_scale, gain_scale, headroom_scale
from besttake.core.until import FIRST, bounds, bounds_along, tracks
from besttake.core.verdict import ask_again

SCALES = {"gain": gain_scale(3), "headroom": headroom_scale(3), "content": difference_scale(3)}
values = st.lists(st.sampled_from([-2 / 3, -1 / 3, 0.0, 0.0, 0.0, 1 / 3, 2 / 3]), min_size=1, max_size=120)


@given(values, st.sampled_from([(0.0, 1), (0.03, -1), (0.2, 1)]), st.sampled_from([0.05, 0.005]))
@settings(max_examples=40, deadline=None)
def test_the_accounts_of_many_sequences_are_those_of_one(x: list[float], null: tuple[float, int], alpha: float) -> None:
    scale, one = gain_scale(3), []
    accounts = Accounts(*null, scale.lo, scale.hi, 500, 0.75, alpha)
    for value in x:
        accounts.update(value)
        one.append(accounts.steady + accounts.adaptive)
    gaps = np.full((len(x), 2), np.nan)
    gaps[:, 0] = x
    sums = wealth(gaps, *null, scale.lo, scale.hi, fixed=0.75, alpha=alpha)
    assert sums[:, 0] == pytest.approx(one, rel=1e-9)
    assert (sums[:, 1] == 2).all()


@given(values, st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_an_answer_stands_from_the_start_that_gave_it_and_what_follows_does_not_change_it(
    x: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sequence = np.array([*x, *rng.choice([0.0, 1 / 3], 60)])
    (track,) = tracks(sequence[:, None], [gain_scale(3)], [0.75], 0.03)
    test = SequentialTest(gain_scale(3), first=FIRST, batch=1)
    for count, value in enumerate(sequence, start=1):
        answer = test.update(float(value))
        assert track.answer(count) == answer
    (short,) = tracks(sequence[:-30, None], [gain_scale(3)], [0.75], 0.03)
    assert short.answer(len(x)) == track.answer(len(x))
    assert short.p_values(len(x)) == track.p_values(len(x))


def test_starts_without_a_value_neither_count_nor_bet() -> None:
    rng = np.random.default_rng(0)
    x = rng.choice([0.0, 2 / 3], 80)
    holes = np.full(160, np.nan)
    holes[::2] = x
    (whole,), (spread,) = (tracks(v[:, None], [gain_scale(3)], [0.75], 0.03) for v in (x, holes))
    assert spread.yes == 2 * whole.yes - 1
    assert spread.p_values(160) == pytest.approx(whole.p_values(80))


def test_a_question_that_cannot_reach_worth_is_answered_before_the_first_start() -> None:
    (track,) = tracks(np.zeros((0, 1)), [headroom_scale(1)], [0.75], 0.03)
    assert track.answer(0) == "no"


@pytest.mark.parametrize("name", SCALES)
def test_bounds_hold_what_a_search_by_halves_holds(name: str) -> None:
    scale, rng = SCALES[name], np.random.default_rng(4)
    x = np.clip(rng.choice([-1 / 3, 0.0, 0.0, 1 / 3, 2 / 3], 90), scale.lo, scale.hi)
    test = SequentialTest(scale, fixed=0.75)
    test.values = x.tolist()
    low, high = bounds(x, scale, 0.75)
    assert (low, high) == pytest.approx(test.bounds(), abs=2e-3)
    along = bounds_along(x, scale, 0.75, [0, 10, 45, 90])
    step = (scale.hi - scale.lo) / 120
    assert along[-1] == pytest.approx((low, high), abs=2 * step)
    assert (np.diff(along[:, 1]) <= 1e-9).all()
    assert tuple(along[0]) == (min(scale.lo, 0.0), scale.hi)


def test_an_answer_stays_when_later_starts_move_the_mean_and_keeps_the_estimate_that_it_was_given_at() -> None:
    x = np.r_[np.full(60, 1 / 3), np.full(100, 0.0), np.full(600, -0.02)]
    finding = ask_again(x, gain_scale(3), 0.03, Looks(np.arange(x.size), (), until=True), 0.75)
    (track,) = tracks(x[:, None], [gain_scale(3)], [0.75], 0.03)
    assert finding.answer == "yes"
    assert finding.estimate.value == pytest.approx(x.mean())
    assert x.mean() < 0.03
    assert finding.when_answered is not None
    assert finding.when_answered.value == pytest.approx(x[: track.yes].mean())
    assert finding.when_answered.n == track.yes
    early = ask_again(x[:70], gain_scale(3), 0.03, Looks(np.arange(70), (), until=True), 0.75)
    assert early.when_answered is None
