from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest

from besttake import result as r
from besttake.measure import cell as measure
from besttake.measure.arrays import ArmTakes, CellData, Settings
from besttake.measure.looks import CellHistory, cell_name, load_history
from besttake.reporting.words import price
from besttake.takes.scores import SCORERS, ScoreName

WINDOWS = ("full", "common", "episode")


def arm(rng: np.random.Generator, chance: np.ndarray, seeds: int, ranking: float) -> ArmTakes:
    y = (rng.random((len(chance), seeds)) < chance[:, None]).astype(float)
    score = ranking * y + rng.normal(size=y.shape)
    return ArmTakes(y, np.where(y == 1, 40.0, 60.0), {ScoreName(s, w): score for s in SCORERS for w in WINDOWS})


def cell_data(
    starts: int = 40, seeds: int = 3, *, seed: int = 0, ranking: float = 2.0, policy: str = "p", group: str = "pick"
) -> CellData:
    """Takes of all arms whose chance differs from start to start, and a score that sees some of it."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(1.0, 1.0, starts)
    arms = {
        name: arm(rng, np.clip(chance + lift, 0, 1), seeds, ranking)
        for name, lift in (("base", 0.0), ("cooled", 0.05), ("shuffled", 0.05), ("retrieve", 0.15))
    }
    units = tuple(("env", group, s) for s in range(starts))
    return CellData(policy, "env", group, units, arms, WINDOWS, "manifold", 4 * starts * seeds, 0)


def plan(seeds: int = 3, best_of: int | None = None) -> Settings:
    return Settings(seeds, best_of or seeds)


def test_an_arm_has_the_mean_and_sd_over_seeds_of_its_success_and_of_its_gain() -> None:
    data = cell_data()
    found = measure.measure_cell(data, plan()).arms
    assert found is not None
    base = data.arms["base"].outcomes
    for name, own in found.arms.items():
        rates = [column.mean() for column in data.arms[name].outcomes.T]
        assert (own.seed_mean, own.seed_sd) == pytest.approx((np.mean(rates), np.std(rates, ddof=1)))
        if name != "base":
            gains = [rate - column.mean() for rate, column in zip(rates, base.T, strict=True)]
            assert (own.gain_seed_mean, own.gain_seed_sd) == pytest.approx((np.mean(gains), np.std(gains, ddof=1)))
            assert own.gain_seed_mean == pytest.approx(own.gain.value)
    assert found.arms["base"].gain_seed_sd is None


def test_a_control_is_no_option_and_an_arm_of_ones_own_costs_no_library() -> None:
    data = cell_data()
    arms = {
        "base": data.arms["base"],
        "shuffled?alpha=0.3": data.arms["shuffled"],
        "python:m:mean": data.arms["cooled"],
    }
    arms["retrieve"] = data.arms["retrieve"]
    verdict = measure.measure_cell(dataclasses.replace(data, arms=arms), plan()).verdict
    assert verdict is not None
    assert [option.arm for option in verdict.options if option.takes == 1] == ["base", "python:m:mean", "retrieve"]
    assert [price(option) for option in verdict.options][:3] == ["1 take", "1 take", "1 take, a library to search"]


def kept_of(outcomes: np.ndarray, scores: np.ndarray, n: int) -> np.ndarray:
    """Success (S,) of the best-scored of n takes by going through all subsets."""
    subsets = list(combinations(range(outcomes.shape[1]), n))
    return np.array(
        [np.mean([y[max(c, key=lambda j: (s[j], -j))] for c in subsets]) for y, s in zip(outcomes, scores, strict=True)]
    )


def test_best_of_three_out_of_five_goes_through_all_subsets_everywhere() -> None:
    data = cell_data(seeds=5)
    found = measure.measure_cell(data, plan(seeds=5, best_of=3))
    base, retrieve = data.arms["base"], data.arms["retrieve"]
    ones, kind = base.outcomes.mean(axis=1), data.score_name
    best = kept_of(base.outcomes, base.scores[kind], 3)
    oracle = kept_of(base.outcomes, base.outcomes, 3)
    short = kept_of(base.outcomes, -base.lengths, 3)
    room, ways, arms, verdict = found.headroom, found.selectors, found.arms, found.verdict
    assert room is not None
    assert ways is not None
    assert arms is not None
    assert verdict is not None
    assert (room.n, len(room.curve)) == (3, 5)
    assert room.pass_n.value == pytest.approx(oracle.mean())
    assert room.headroom.value == pytest.approx((oracle - ones).mean())
    assert ways.scored["manifold"]["full"].gain.value == pytest.approx((best - ones).mean())
    assert ways.scored["manifold"]["full"].capture.value == pytest.approx((best - ones).sum() / (oracle - ones).sum())
    assert ways.shortest.success.value == pytest.approx(short.mean())
    assert ways.oracle.success.value == pytest.approx(oracle.mean())
    both = kept_of(retrieve.outcomes, retrieve.scores[kind], 3)
    assert arms.combine.value == pytest.approx((both - best).mean())
    assert arms.arms["retrieve"].selected_gain.value == pytest.approx((both - ones).mean())
    assert found.tasks[0].gain.value == pytest.approx((best - ones).mean())
    assert found.tasks[0].pass_n.value == pytest.approx(oracle.mean())
    assert verdict.takes.gain.value == pytest.approx((best - ones).mean())
    success = {option.name: option.success.value for option in verdict.options}
    assert success == pytest.approx(
        {
            "base": ones.mean(), "cooled": data.arms["cooled"].outcomes.mean(), "retrieve": retrieve.outcomes.mean(),
            "base, best of 3": best.mean(), "retrieve, best of 3": both.mean(),
            "cooled, best of 3": kept_of(data.arms["cooled"].outcomes, data.arms["cooled"].scores[kind], 3).mean(),
        }
    )  # fmt: skip
    for k, told in enumerate(ways.by_n, start=1):
        assert told is not None
        assert told.value == pytest.approx(kept_of(base.outcomes, base.scores[kind], k).mean())
        assert told.low < told.value < told.high  # type: ignore[operator]


def test_more_takes_of_the_same_starts_are_another_look_with_less_left_to_spend() -> None:
    data = cell_data(starts=60, ranking=1.0)
    key = cell_name(data.policy, data.env, data.group)
    first, grown, twice = (
        measure.measure_cell(data, plan(), {key: CellHistory(looks)}).verdict
        for looks in (((60, 3),), ((60, 2),), ((60, 1), (60, 2)))
    )
    assert first is not None
    assert grown is not None
    assert twice is not None
    assert (first.looked, grown.looked, twice.looked) == (1, 2, 3)
    assert (grown.looks, grown.look_seeds) == ([60, 60], [2, 3])
    found = [v.questions["headroom"].p_not_above_zero for v in (first, grown, twice)]
    assert found[0] < found[1] < found[2]


def _result(cells: list[r.Cell], worth: float = 0.03) -> r.Result:
    cost = r.Cost(takes=0, errors=0, steps=0, policy_calls=0, frames_scored=0, frames_encoded=0, seconds={})
    return r.Result(
        besttake="", created="", command="", digest="", plan={}, versions={}, library=None, worth=worth, cells=cells,
        policies=[], relation=measure.relate([], 3), cost=cost,
    )  # fmt: skip


def test_what_was_shown_stays_shown_when_one_start_is_added() -> None:
    """Forty starts show it; with forty-one, the test for later looks alone would not."""
    whole, settings = cell_data(starts=41, seed=1, ranking=1.0), dataclasses.replace(plan(), scorer="manifold")

    def head(count: int) -> CellData:
        arms = {
            name: ArmTakes(
                own.outcomes[:count], own.lengths[:count], {key: scores[:count] for key, scores in own.scores.items()}
            )
            for name, own in whole.arms.items()
        }
        return dataclasses.replace(whole, units=whole.units[:count], arms=arms)

    first = measure.measure_cell(head(40), settings)
    assert first.verdict is not None
    assert (first.verdict.takes.answer, first.verdict.answer) == ("yes", "act")
    past = load_history(_result([first]), settings)
    second = measure.measure_cell(whole, settings, past).verdict
    forgetful = measure.measure_cell(whole, settings, {"p env pick": CellHistory(((40, 3),))}).verdict
    assert second is not None
    assert forgetful is not None
    assert second.takes.answer == "yes"
    assert second.questions["gain"].when_answered == first.verdict.questions["gain"].estimate
    assert {o.name for o in first.verdict.options if o.shown} <= {o.name for o in second.options if o.shown}
    assert second.answer == "act"
    assert forgetful.takes.answer == "open"
    assert load_history(_result([first], worth=0.05), settings)["p env pick"] == CellHistory(((40, 3),))


def test_a_recommendation_that_was_shown_stands_with_the_gain_that_it_was_given_at() -> None:
    data, settings = cell_data(starts=300, ranking=3.0), dataclasses.replace(plan(), scorer="manifold")
    first = measure.measure_cell(data, settings)
    assert first.verdict is not None
    assert first.verdict.within
    given = r.Given(starts=first.starts, gain=first.verdict.gain)
    more = measure.measure_cell(
        cell_data(starts=310, ranking=3.0, seed=5), settings, load_history(_result([first]), settings)
    )
    assert more.verdict is not None
    assert (more.verdict.option, more.verdict.within, more.verdict.given) == (first.verdict.option, True, given)
    again = measure.measure_cell(
        cell_data(starts=320, ranking=3.0, seed=6), settings, load_history(_result([more]), settings)
    ).verdict
    assert again is not None
    assert again.given == given


def test_the_gain_of_the_recommended_option_is_that_of_its_row_less_what_the_choice_adds() -> None:
    found = measure.measure_cell(cell_data(starts=40, ranking=0.5), plan()).verdict
    assert found is not None
    row = found.recommended
    assert row.gain.value is not None
    assert row.success.value is not None
    assert found.optimism != 0
    assert found.gain.value == pytest.approx(row.gain.value - found.optimism)
    assert found.success.value == pytest.approx(row.success.value - found.optimism)
    assert found.gain.low <= row.gain.low  # type: ignore[operator]
    assert found.gain.high >= row.gain.high  # type: ignore[operator]
    best = max(found.options, key=lambda option: option.success.value or 0)
    assert [option.name for option in found.options if option.behind is None] == [best.name]
