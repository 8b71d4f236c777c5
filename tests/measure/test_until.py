"""Until decided on takes that are there: what is dropped when, and how often an exact null is called a gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from besttake.core.planning import forecast
from besttake.core.sequential import RepeatedLooks
from besttake.core.stats import Forecast
from besttake.measure.arrays import ScoredTakes
from besttake.measure.until import CellTracks
from besttake.measure.verdict import MOST, futures_of, questions_of


def forecast_of(arms: dict[str, ScoredTakes], n: int, part: str, most: int = MOST) -> Forecast | None:
    """How many further starts are likely to settle a part of the verdict, from all takes so far."""
    starts = np.arange(len(np.asarray(arms["base"].outcomes)))
    drawn = futures_of(questions_of(arms, n), RepeatedLooks(starts, until=True), 0.03, most, [part])
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


def open_after(arms: dict[str, ScoredTakes], seen: int, run: Sequence[str] | None = None) -> dict[str, frozenset[str]]:
    order = np.random.default_rng(0).permutation(len(np.asarray(arms["base"].outcomes)))
    return CellTracks.of(arms, order, 3, 0.03).open_parts(dict.fromkeys(arms, seen), run or list(arms))


def test_an_arm_is_played_only_while_an_open_part_needs_it() -> None:
    arms = cell(1, cooled=0.25, content=0.0, skill=3.0)
    assert open_after(arms, 5) == {
        "takes": {"base"}, "cooling": {"base", "cooled"}, "demonstrations": {"cooled", "retrieve"},
    }  # fmt: skip
    # Cooling and selection are soon shown; what is left is content, which needs no take of base.
    assert open_after(arms, 100) == {"demonstrations": {"cooled", "retrieve"}}
    assert open_after(cell(1, starts=900, cooled=0.25, content=0.3, skill=3.0), 900) == {}


def test_whether_any_chunk_would_do_is_asked_once_content_is_shown() -> None:
    arms = cell(2, starts=400, cooled=0.15, content=0.25)
    run = [*arms, "shuffled"]
    assert open_after(arms, 390, run)["demonstrations"] == {"retrieve", "shuffled"}
    assert "shuffled" not in open_after(arms, 10, run)["demonstrations"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "truth", "question"),
    [
        ("a blind score", {"skill": 0.0}, "gain"),
        ("cooling that gains nothing", {}, "cooled"),
        ("cooling without content", {"cooled": 0.15}, "content"),
    ],
)
def test_an_exact_null_is_called_a_gain_in_at_most_5_percent(name: str, truth: dict[str, float], question: str) -> None:
    runs = 600
    wrong = 0
    for seed in range(runs):
        arms = cell(seed, starts=200, **truth)
        watch = CellTracks.of(arms, np.random.default_rng(seed).permutation(200), 3, 0.03)
        wrong += watch.findings(dict.fromkeys(arms, 200))[question].answer == "yes"
    assert wrong / runs <= 0.05


def test_a_forecast_of_a_part_comes_from_the_same_arrays() -> None:
    clear = cell(1, starts=30, cooled=0.3, skill=3.0)
    ahead = forecast_of(clear, 3, "takes")
    assert ahead
    assert ahead.low is not None
    assert ahead.low < 100
    assert forecast_of({"base": ScoredTakes(clear["base"].outcomes)}, 3, "takes") is None


def test_what_no_take_can_settle_is_told_from_what_more_takes_would() -> None:
    whole = cell(1, starts=300, cooled=0.25, skill=3.0)
    one = CellTracks.of({"base": ScoredTakes(np.ones((30, 1)))}, np.arange(30), 1, 0.03)
    assert one.open_parts({"base": 30}, ["base"]) == {"takes": frozenset()}
    unscored = {"base": ScoredTakes(whole["base"].outcomes)}
    assert open_after(unscored, 300) == {"takes": frozenset()}
    # Without a score headroom may still be ruled out.
    assert open_after(unscored, 5) == {"takes": {"base"}}
    uncontrolled = {name: whole[name] for name in ("base", "retrieve")}
    assert open_after(uncontrolled, 300)["demonstrations"] == frozenset()
