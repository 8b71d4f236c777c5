"""The check at held-out demonstration states, on arrays whose errors are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from besttake.core.estimate import Estimate
from besttake.core.offline import MARGIN, REACH, Checked, Comparison, States, calmest_of, choose, judge
from besttake.core.retrieve import RetrievalConfig

M, K, STEPS, DIMS = 120, 8, 4, 3
SPREAD = np.array([2.0, 0.5, 0.0])
RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=(M, STEPS, DIMS)) * SPREAD
STATES = States(TRUTH, np.repeat(np.arange(30), 4), np.zeros((M, DIMS)), np.tile(SPREAD, (M, 1)))


def samples(bias: Any, noise: float, seed: int = 1) -> Any:
    """Samples that are off by ``bias`` (of each dimension, in standard deviations) and noisy by ``noise``."""
    drawn = np.random.default_rng(seed).normal(size=(M, K, STEPS, DIMS))
    return TRUTH[:, None] + SPREAD * (np.asarray(bias) + noise * drawn)


def test_error_has_both_parts_and_the_lasting_error_only_what_does_not_average_out() -> None:
    compare = Comparison(STATES)
    off = samples((0.3, 0.4, 9.0), 0.5)
    bias = np.sqrt((0.3**2 + 0.4**2) / 2)
    error, lasting = compare.error(off), compare.lasting(off)
    assert error.value == pytest.approx(np.sqrt(bias**2 + 0.5**2), abs=0.01)
    assert lasting.value == pytest.approx(bias, abs=0.01)
    assert lasting.low is not None and lasting.high is not None  # noqa: PT018
    assert lasting.low < bias < lasting.high
    assert compare.mean_action().value == pytest.approx(1.0, abs=0.05)


def test_a_dimension_that_is_constant_in_a_task_counts_for_nothing() -> None:
    wild = samples((0, 0, 0), 0.1)
    wild[..., 2] += 100
    assert Comparison(STATES).error(wild).value == pytest.approx(0.1, abs=0.01)


def test_lasting_error_is_the_same_with_few_draws() -> None:
    off = samples((0.4, 0.4, 0), 0.4)
    few, many = Comparison(STATES).lasting(off[:, :2]).value, Comparison(STATES).lasting(off).value
    assert few == pytest.approx(many, abs=0.03)


def test_change_and_cosine_by_brute_force() -> None:
    own, control = samples((0.1, 0.1, 0), 0.3), samples((0.4, 0.1, 0), 0.3)
    compare = Comparison(STATES)
    moved, needed = (
        ((own - control) / [2, 0.5, np.inf]).ravel(),
        ((TRUTH[:, None] - control) / [2, 0.5, np.inf]).ravel(),
    )
    expected = moved @ needed / np.sqrt((moved @ moved) * (needed @ needed))
    assert compare.cosine(own, control).value == pytest.approx(expected)
    change = compare.lasting(own).value - compare.lasting(control).value  # type: ignore[operator]
    assert compare.change(own, control).value == pytest.approx(change)
    error = compare.error(own).value - compare.error(control).value  # type: ignore[operator]
    assert compare.difference(own, control).value == pytest.approx(error)
    assert compare.worst(own, control).value == pytest.approx(0.0, abs=0.02)


def checked(bias: Any, control: Any, **settings: Any) -> Checked:
    config = RetrievalConfig(**{"rule": "frame", **settings})
    own, other = samples(bias, 0.3), samples(control, 0.3)
    return judge(Comparison(STATES), config, own, own, other, other, samples((0, 0, 0), 0.6))


def test_what_helps_in_one_dimension_and_harms_in_another_does_not_pass() -> None:
    """As LIBERO-Object: the gripper comes out better and the position worse, and rollouts lose."""
    assert checked((0.3, 0.3, 0), (0.5, 0.5, 0)).passes
    mixed = checked((0.55, 0.2, 0), (0.5, 0.5, 0))
    assert mixed.change.value is not None
    assert mixed.change.value < 0
    assert mixed.worst.value == pytest.approx(0.05, abs=0.02)
    assert not mixed.passes
    assert not checked((0.5, 0.5, 0), (0.5, 0.5, 0)).passes


def stated(change: float, *, passes: bool = True, beyond: float = 0.1, **settings: Any) -> Checked:
    def about(value: float) -> Estimate:
        return Estimate(value, value - 0.01, value + 0.01)

    one = checked((0.3, 0.3, 0), (0.5, 0.5, 0), **settings)
    return replace(one, change=about(change), beyond=about(beyond), passes=passes)


def test_reach_is_the_shift_of_the_mean_over_the_spread_of_base_samples() -> None:
    own, control, base = samples((0.1, 0.4, 0), 0.3), samples((0.4, 0.4, 0), 0.3, 2), samples((0, 0, 0), 0.6, 3)
    assert Comparison(STATES).reach(own, control, base) == pytest.approx(np.sqrt(0.3**2 / 2) / 0.6, abs=0.02)
    assert Comparison(STATES).reach(own, own, base) == 0
    assert Comparison(STATES).reach(own, control, control * 0) is None


def test_less_lasting_error_at_the_price_of_more_error_in_a_sample_is_not_sound() -> None:
    """As a policy that was trained to doubt what it sees: the search takes what it sees for granted."""
    compare, control = Comparison(STATES), samples((0.5, 0.5, 0), 0.3)
    config = RetrievalConfig(rule="frame")
    wild, calm = samples((0.4, 0.4, 0), 0.6, 2), samples((0.4, 0.4, 0), 0.3, 2)
    assert judge(compare, config, calm, calm, control, control, control).sound
    one = judge(compare, config, wild, wild, control, control, control)
    assert one.passes
    assert not one.sound
    assert choose([one]) is None
    lucky = replace(one, config=replace(config, whitening=True), added=Estimate())
    assert lucky.sound
    assert choose([one, lucky]) is None, "a variant is not sound by luck"


def test_the_paper_s_way_in_comes_first_as_strongly_as_it_stays_within_the_policy_s_own_spread() -> None:
    stronger, weaker = stated(-0.2, alpha=0.5), stated(-0.05, alpha=0.3)
    blend = stated(-0.4, way="blend", beyond=-0.2)
    assert weaker.reach is not None
    assert weaker.reach < REACH
    assert choose([stronger, weaker, blend]) == stronger.config
    assert choose([replace(stronger, reach=1.01 * REACH), weaker, blend]) == weaker.config
    assert choose([replace(stronger, passes=False), weaker, blend]) == weaker.config
    assert choose([stronger, replace(weaker, passes=False), blend]) == stronger.config
    grown = replace(stronger, added=Estimate(0.02, 0.01, 0.03))
    assert choose([grown, weaker]) == grown.config, "whether to retrieve is up to the weakest strength"
    assert choose([grown]) is None


def test_another_way_in_is_taken_only_where_it_beats_the_best_cooling() -> None:
    failed = stated(-0.05, passes=False)
    assert choose([failed, stated(-0.4, way="blend", beyond=-0.005)]) is None
    better = stated(-0.1, way="blend", beyond=-0.05)
    assert choose([failed, better, stated(-0.1, way="path", beyond=0.2)]) == better.config
    assert choose([failed]) is None
    assert choose([]) is None


def test_of_two_that_do_about_as_well_the_simpler_one_wins() -> None:
    plain, variant = stated(-0.050), stated(-0.055, whitening=True)
    assert choose([plain, variant]) == plain.config
    much = stated(-0.050 - MARGIN, whitening=True)
    assert choose([plain, much]) == much.config
    assert choose([replace(plain, passes=False), variant]) is None, "a variant does not pass by luck"
    assert choose([replace(plain, passes=False), much]) == much.config


def test_cooling_has_the_strength_with_the_lowest_error() -> None:
    errors = {0.3: 0.6, 0.5: 0.52, 0.7: 0.51, 0.9: 0.515}
    assert calmest_of({alpha: Estimate(value) for alpha, value in errors.items()}) == 0.7
    assert calmest_of({0.3: Estimate(0.5), 0.5: Estimate(0.5)}) == 0.3
    assert calmest_of({}) is None
