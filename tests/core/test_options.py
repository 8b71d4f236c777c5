"""The best option: Holm and closed testing against brute force, and the error of the whole claim on exact nulls."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from besttake.core import options as o
from besttake.core.sequential import wealth
from besttake.core.stats import gain_scale, p_not_above


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


def test_a_claim_holds_from_the_time_it_was_made() -> None:
    assert o.claimed([[25.0, 30.0], [1.0, 90.0]]).tolist() == [True, True]
    assert o.claimed([[15.0, 30.0], [1.0, 90.0]]).tolist() == [False, True]
    assert o.claimed(np.zeros((3, 0))).tolist() == []


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


def offer(name: str, takes: int, value: float, *, shown: bool, cheaper: str = "", answer: str = "yes") -> o.Offer:
    return o.Offer(name, takes, frozenset(cheaper.split()), answer, value, shown)  # type: ignore[arg-type]


def test_the_best_option_is_the_shown_one_with_the_largest_gain_and_of_equal_ones_the_cheapest() -> None:
    cool, pick = offer("cool", 1, 0.1, shown=True), offer("pick", 3, 0.1, shown=True, cheaper="cool")
    lucky = offer("lucky", 1, 0.3, shown=False, answer="undecided")
    assert o.best_of([pick, cool, lucky]) is cool
    assert o.cheapest_of([pick, cool, lucky], pick, ["cool", "lucky"]) is cool
    assert o.cheapest_of([pick, cool, lucky], pick, ["lucky"]) is None
    assert o.best_of([lucky]) is None


def test_a_menu_says_none_only_where_every_option_is_ruled_out() -> None:
    no, open_ = offer("a", 1, 0.0, shown=False, answer="no"), offer("b", 1, 0.02, shown=False, answer="undecided")
    assert o.menu_answer([no]) == "none"
    assert o.menu_answer([no, open_]) == "undecided"
    assert o.menu_answer([no, offer("c", 1, 0.1, shown=True)]) == "act"
    assert o.menu_answer([]) == "undecided"


def test_who_has_to_act_now_takes_the_option_of_the_highest_expected_gain() -> None:
    rng = np.random.default_rng(0)
    values = np.stack([rng.choice([-1, 0, 1], 60, p=[0.3, 0.5, 0.2]), rng.choice([0.0, 1.0], 60, p=[0.8, 0.2])], axis=1)
    bet = o.act_now(values, [(-1, 1), (-1, 1)])
    assert bet.index == 1
    assert bet.expected == pytest.approx(values[:, 1].sum() / 61, abs=0.01)
    assert bet.chance > 0.99
    assert o.act_now(-np.abs(values[:, [1]]), [(-1, 1)]) == o.Bet(None, 0.0, 1.0)


def test_who_has_to_act_now_takes_what_is_free_before_what_is_not_worth_its_cost() -> None:
    values = np.tile([0.022, 0.02], (200, 1))
    assert o.act_now(values, [(0, 0), (0, 0)]).index == 0
    assert o.act_now(values, [(0, 0), (0, 0)], [0.03, 0.0]).index == 1
    assert o.act_now(values, [(0, 0), (0, 0)], [0.03, 0.03]) == o.Bet(None, 0.0, 1.0)


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
    options: int, starts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    menus, scale = null_menus(np.random.default_rng(options + starts), 600, starts, options), gain_scale(3)
    shown = naive = 0
    for i, menu in enumerate(menus):
        p = np.array([p_not_above(menu[:, k], 0.0, scale.lo, rng=i, draws=2000) for k in range(options)])
        enough = menu.mean(axis=0) >= 0.03
        shown += bool(np.any(o.holm(p) & enough))
        naive += bool(np.any((p <= 0.05) & enough))
    with capsys.disabled():
        print(f"\n{options} options, {starts} starts: {shown / 6:.1f} % with Holm, {naive / 6:.1f} % each at 5 %")
    assert shown / 600 <= 0.05
    assert naive > shown


@pytest.mark.slow
@pytest.mark.parametrize("options", [6, 10])
def test_a_run_that_is_watched_claims_any_of_many_options_that_gain_nothing_in_at_most_5_percent(
    options: int, capsys: pytest.CaptureFixture[str]
) -> None:
    menus, scale = null_menus(np.random.default_rng(options), 2000, 200, options), gain_scale(3)
    e = wealth(menus.swapaxes(0, 1), 0.0, 1, scale.lo, scale.hi, fixed=0.75, alpha=0.05 / options) / 2
    claims = np.mean([o.claimed(e[:, run]).any() for run in range(2000)])
    naive = np.mean((e.max(axis=0) >= 20).any(axis=1))
    with capsys.disabled():
        print(f"\n{options} options, watched for 200 starts: {100 * claims:.1f} %, each by itself {100 * naive:.1f} %")
    assert claims <= 0.05
    assert naive > claims


@pytest.mark.slow
def test_one_real_option_among_nine_blind_ones_is_found() -> None:
    rng = np.random.default_rng(3)
    menus, scale = null_menus(rng, 200, 60, 10), gain_scale(3)
    menus[:, :, 0] = rng.choice([0.0, 1 / 3, 2 / 3], (200, 60), p=[0.7, 0.2, 0.1])
    found = 0
    for i, menu in enumerate(menus):
        p = [p_not_above(menu[:, k], 0.0, scale.lo, rng=i, draws=2000) for k in range(10)]
        found += bool(o.holm(p)[0])
    assert found >= 190
