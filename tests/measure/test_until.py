"""Until decided on takes that are there: what is dropped when, and how often an exact null is called a gain."""

from __future__ import annotations

import numpy as np
import pytest
from bench.zoo.until import fixed_sample, run_until_decided

from besttake.core.estimate import Forecast
from besttake.core.forecast import forecast
from besttake.core.sequential import Looks
from besttake.core.verdict import Decided
from besttake.measure.forecast import MOST, ahead
from besttake.measure.questions import ScoredTakes, questions_of
from besttake.measure.until import Watch, beyond_takes, chance_within, needs_of


def forecast_of(arms: dict[str, ScoredTakes], n: int, part: str, most: int = MOST) -> Forecast | None:
    """How many further starts are likely to settle a part of the verdict, from all takes so far."""
    starts = np.arange(len(np.asarray(arms["base"].outcomes)))
    drawn = ahead(questions_of(arms, n), Looks(starts, (), until=True), 0.03, most, [part])
    settled = drawn.settled(part) if drawn is not None else None
    return None if settled is None else forecast(settled, most)


def cell(
    seed: int, starts: int = 400, cooled: float = 0.0, content: float = 0.0, skill: float = 0.0
) -> dict[str, ScoredTakes]:
    """Takes of a cell: cooling and content move some starts from failure to success, a score of some ``skill``."""
    rng = np.random.default_rng(seed)
    p, luck = rng.beta(0.5, 0.5, (starts, 1)), rng.random((starts, 3))

    def arm(gain: float) -> ScoredTakes:
        # Common random numbers: most takes of two arms end alike.
        mixed = np.where(rng.random((starts, 3)) < 0.7, luck, rng.random((starts, 3)))
        y = ((mixed < p) | (rng.random((starts, 3)) < gain)).astype(float)
        return ScoredTakes(y, skill * y + rng.normal(size=y.shape), None)

    return {"base": arm(0.0), "cooled": arm(cooled), "retrieve": arm(cooled + content)}


def test_an_arm_is_played_only_while_an_open_part_needs_it() -> None:
    run = run_until_decided(cell(1, cooled=0.25, content=0.0, skill=3.0), 3)
    assert run.stopped == "decided"
    assert (run.decided.reuse.answer, run.decided.retrieve.answer) == ("select", "cool")
    # Cooling and selection are soon shown; what is left is content, which needs no take of base.
    assert run.takes_by_arm["base"] < run.takes_by_arm["cooled"] == run.takes_by_arm["retrieve"]
    assert run.takes == sum(run.takes_by_arm.values())
    assert run.unsettled == ()


def test_cooling_is_not_final_while_content_is_open() -> None:
    arms = cell(2, starts=400, cooled=0.15, content=0.25)
    watch = Watch.of(arms, np.random.default_rng(0).permutation(400), 3, 0.03)
    answers = [watch.verdict(dict.fromkeys(arms, seen)) for seen in range(10, 400, 10)]
    codes = [decided.retrieve.answer for decided in answers]
    assert "cool" not in codes
    assert codes[-1] == "retrieve"
    for decided in answers:
        if decided.retrieve.answer == "cool-or-retrieve":
            assert {"retrieve", "cooled"} <= needs_of(decided, arms)["retrieve"]


def test_a_budget_is_never_passed_and_says_so() -> None:
    for budget in (1, 90, 455):
        run = run_until_decided(cell(3, cooled=0.01), 3, budget=budget)
        assert run.takes <= budget
        assert run.stopped == "budget"
        assert "retrieve" in run.unsettled
    assert run_until_decided(cell(3, starts=30), 3).stopped == "starts"


def test_the_order_decides_which_starts_are_seen_and_nothing_else() -> None:
    arms, order = cell(4, cooled=0.2, skill=2.0), np.random.default_rng(9).permutation(400)
    run = run_until_decided(arms, 3, order=order)
    again = run_until_decided(arms, 3, order=order)
    assert run == again
    kept = order[: run.starts]
    fewer = {name: ScoredTakes(np.asarray(a.outcomes)[kept], np.asarray(a.scores)[kept]) for name, a in arms.items()}
    assert run_until_decided(fewer, 3, order=np.arange(len(kept))).decided.retrieve == run.decided.retrieve


def test_it_agrees_with_a_large_fixed_sample_where_the_truth_is_clear() -> None:
    arms = cell(5, starts=600, cooled=0.2, content=0.1, skill=3.0)
    run, fixed = run_until_decided(arms, 3), fixed_sample(arms, 3)
    for part in ("reuse", "retrieve"):
        assert getattr(run.decided, part).answer == getattr(fixed, part).answer
    assert run.takes < 600 * 9 / 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "truth", "false"),
    [
        ("a blind score", {"skill": 0.0}, {"reuse": "select"}),
        ("neither cooling nor content", {}, {"retrieve": "retrieve cool cool-or-retrieve"}),
        ("cooling without content", {"cooled": 0.15}, {"retrieve": "retrieve"}),
    ],
)
def test_an_exact_null_is_called_a_gain_in_at_most_5_percent(
    name: str, truth: dict[str, float], false: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    runs, wrong, takes = 2000, 0, []
    for seed in range(runs):
        (part, codes), arms = next(iter(false.items())), cell(seed, starts=200, **truth)
        run = run_until_decided(arms if part == "retrieve" else {"base": arms["base"]}, 3, seed=seed, parts=(part,))
        wrong += getattr(run.decided, part).answer in codes.split()
        takes.append(run.takes)
    with capsys.disabled():
        print(f"\n{name}: {100 * wrong / runs:.1f} % of {runs} runs wrong, median {np.median(takes):.0f} takes")
    assert wrong / runs <= 0.05


def test_a_forecast_of_a_part_comes_from_the_same_arrays_and_a_hopeless_one_has_no_chance() -> None:
    clear, flat = cell(1, starts=30, cooled=0.3, skill=3.0), cell(6, starts=60, skill=0.2)
    ahead = forecast_of(clear, 3, "reuse")
    assert ahead
    assert ahead.low is not None
    assert ahead.low < 100
    alone = {"base": ScoredTakes(clear["base"].outcomes)}
    assert forecast_of(alone, 3, "reuse") is None
    order = np.arange(60)
    assert chance_within(questions_of(flat, 3), order, 0.03, "retrieve", 5) <= 0.1
    assert chance_within(questions_of(flat, 3), order, 0.03, "retrieve", 400) > 0.2


def test_what_no_take_can_settle_is_told_from_what_more_takes_would() -> None:
    def verdict_of(arms: dict[str, ScoredTakes], starts: int = 300) -> Decided:
        return Watch.of(arms, np.arange(starts), 3, 0.03).verdict(dict.fromkeys(arms, starts))

    whole = cell(1, starts=300, cooled=0.25, skill=3.0)
    one = Watch.of({"base": ScoredTakes(np.ones((30, 1)))}, np.arange(30), 1, 0.03).verdict({"base": 30})
    assert (beyond_takes(one), needs_of(one, ["base"])) == (("reuse",), {})
    few, unscored = verdict_of(whole, 5), verdict_of({"base": ScoredTakes(whole["base"].outcomes)})
    assert not beyond_takes(few)
    assert needs_of(few, whole)["reuse"] == {"base"}
    assert (beyond_takes(unscored), needs_of(unscored, ["base"])) == (("reuse",), {})
    # Without a score headroom may still be ruled out.
    early = verdict_of({"base": ScoredTakes(whole["base"].outcomes)}, 5)
    assert needs_of(early, ["base"]) == {"reuse": {"base"}}
    uncontrolled = verdict_of({name: whole[name] for name in ("base", "retrieve")})
    assert beyond_takes(uncontrolled) == ("retrieve",)
