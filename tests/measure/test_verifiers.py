"""Scorers side by side: every number against a brute-force twin on small cells."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from besttake.core import reject, select
from besttake.measure.cells import ArmTakes, CellData, merge_cells
from besttake.measure.scores import ScoreName
from besttake.measure.verifiers import calibration, harmful, verified

F64 = NDArray[np.float64]


def cell(outcomes: F64, lengths: F64 | None = None, **scores: F64) -> CellData:
    lengths = np.where(outcomes > 0, 10.0, 20.0) if lengths is None else lengths
    takes = ArmTakes(outcomes, lengths, {ScoreName(name, "full"): values for name, values in scores.items()})
    units = tuple(("env", "task", i) for i in range(len(outcomes)))
    return CellData("p", "env", "task", units, {"base": takes}, ("full",), "a", planned=takes.takes, errors=0)


@pytest.fixture
def world() -> tuple[F64, F64, F64]:
    """Outcomes of 40 starts x 4 takes, a score that knows something, and one that knows nothing."""
    rng = np.random.default_rng(0)
    outcomes = (rng.random((40, 4)) < rng.random((40, 1))).astype(float)
    outcomes[3, 3] = np.nan
    return outcomes, outcomes + rng.normal(size=outcomes.shape), rng.normal(size=outcomes.shape)


def picked(outcomes: F64, scores: F64, n: int) -> tuple[F64, F64]:
    """By hand: success of the choice, and whether a failure was picked though a success was there, over all subsets."""
    success, harm = [], []
    for row, score in zip(outcomes, scores, strict=True):
        there = np.flatnonzero(np.isfinite(row))
        tries = [max(group, key=lambda j: (score[j], -j)) for group in combinations(there, min(n, len(there)))]
        groups = list(combinations(there, min(n, len(there))))
        success.append(np.mean([row[j] for j in tries]))
        harm.append(np.mean([row[j] == 0 and row[list(g)].any() for j, g in zip(tries, groups, strict=True)]))
    return np.array(success), np.array(harm)


@pytest.mark.parametrize("n", [2, 4])
def test_gain_harm_and_differences_are_those_of_choices_made_by_hand(world: tuple[F64, F64, F64], n: int) -> None:
    outcomes, good, useless = world
    result = verified(cell(outcomes, a=good, b=useless), n, bar="b")
    ones = np.nanmean(outcomes, axis=1)
    by_hand = {"a": picked(outcomes, good, n), "b": picked(outcomes, useless, n)}
    for name, (success, harm) in by_hand.items():
        own = result.of(name)
        assert own is not None
        assert own.success.value == pytest.approx(success.mean())
        assert own.gain.value == pytest.approx((success - ones).mean())
        assert own.harm.value == pytest.approx(harm.mean())
    lengths = np.where(outcomes > 0, 10.0, 20.0)
    short = picked(outcomes, -lengths, n)[0]
    first, second = result.of("a"), result.of("b")
    assert first is not None
    assert second is not None
    assert first.over_shortest.value == pytest.approx((by_hand["a"][0] - short).mean())
    difference = (by_hand["a"][0] - by_hand["b"][0]).mean()
    assert first.over_bar.value == pytest.approx(difference)
    assert second.over_bar.reason == "this is the bar"
    (pair,) = result.pairs
    assert (pair.first, pair.second) == ("a", "b")
    assert pair.difference.value == pytest.approx(difference)
    assert pair.difference.low is not None
    assert pair.difference.low > 0


def test_controls_frame_every_scorer(world: tuple[F64, F64, F64]) -> None:
    outcomes, good, _ = world
    result = verified(cell(outcomes, a=good), 4)
    controls = {v.scorer: v for v in result.controls}
    assert controls["random"].gain.value == 0.0
    assert controls["random"].harm == result.headroom  # a random pick misses all of it
    assert controls["oracle"].gain == result.headroom
    assert controls["oracle"].harm.value == 0.0
    assert controls["shortest"].capture.value == pytest.approx(1.0)  # here length gives the outcome away
    own = result.of("a")
    assert own is not None
    assert 0 < (own.gain.value or 0) < (result.headroom.value or 0)
    assert own.over_bar.reason == "no scorer was trained on other starts"


def test_a_score_that_reads_length_only_equals_the_shortest_take(world: tuple[F64, F64, F64]) -> None:
    outcomes, _, _ = world
    lengths = np.random.default_rng(1).integers(1, 30, outcomes.shape).astype(float)
    result = verified(cell(outcomes, lengths, a=-lengths), 4)
    own = result.of("a")
    assert own is not None
    assert own.over_shortest.value == 0.0
    assert own.gain == next(v for v in result.controls if v.scorer == "shortest").gain


def test_a_scorer_that_prefers_failures_is_seen_to_harm(world: tuple[F64, F64, F64]) -> None:
    outcomes, _, useless = world
    result = verified(cell(outcomes, bad=-outcomes, noise=useless), 4)
    assert [v.scorer for _, v in harmful([result])] == ["bad"]


def test_takes_without_a_score_are_counted(world: tuple[F64, F64, F64]) -> None:
    outcomes, good, _ = world
    good = good.copy()
    good[0], good[1, 0] = np.nan, np.inf
    own = verified(cell(outcomes, a=good), 4).of("a")
    assert own is not None
    assert (own.invalid, own.blind) == (5, 1)


def test_calibration_by_hand() -> None:
    stated = np.array([[0.05, 0.95, 0.95], [0.95, 0.05, 1.0], [0.55, 0.55, np.nan]])
    outcomes = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, np.nan, 1.0]])
    made = calibration("a", "full", outcomes, stated)
    assert [(b.takes, round(b.stated, 4), round(b.happened.value or 0, 4)) for b in made.bins] == [
        (2, 0.05, 0.0), (1, 0.55, 1.0), (4, 0.9625, 0.75)
    ]  # fmt: skip
    known = [(0.05, 0), (0.95, 1), (0.95, 0), (0.95, 1), (0.05, 0), (1.0, 1), (0.55, 1)]
    assert made.takes == len(known)
    assert made.brier == pytest.approx(np.mean([(p - y) ** 2 for p, y in known]))
    assert made.error == pytest.approx((2 * 0.05 + 0.45 + 4 * 0.2125) / 7)


def test_honest_probabilities_are_calibrated_and_boasts_are_not() -> None:
    rng = np.random.default_rng(2)
    stated = rng.random((2000, 3))
    outcomes = (rng.random(stated.shape) < stated).astype(float)
    assert calibration("a", "full", outcomes, stated).error < 0.02
    assert calibration("a", "full", outcomes, stated**0.2).error > 0.2
    inside = [
        b.happened.low <= (k + 0.5) / 10 <= b.happened.high
        for k, b in enumerate(calibration("a", "full", outcomes, stated).bins)
        if b.happened.low is not None and b.happened.high is not None
    ]
    assert sum(inside) >= 8


def test_within_start_auc_counts_pairs(world: tuple[F64, F64, F64]) -> None:
    outcomes, good, _ = world
    own = verified(cell(outcomes, a=good), 4).of("a")
    assert own is not None
    by_start = []
    for row, score in zip(outcomes, good, strict=True):
        wins, losses = score[row == 1], score[row == 0]
        if len(wins) and len(losses):
            by_start.append(np.mean([w > x for w in wins for x in losses]))
    assert own.auc.value == pytest.approx(np.mean(by_start))
    assert select.capture(own.gain.value or 0.0, 1.0) is not None


def retried_by_hand(outcomes: F64, scores: F64, limit: F64, n: int) -> tuple[F64, F64]:
    """Success and takes of each start, over all orders of its takes."""
    success, takes = [], []
    for row, score, own in zip(outcomes, scores, limit, strict=True):
        ends = []
        for order in permutations(np.flatnonzero(np.isfinite(row)).tolist()):
            tried = list(order[:n])
            stop = next((i for i, j in enumerate(tried) if score[j] >= own), None)
            kept = max(tried, key=lambda j: score[j]) if stop is None else tried[stop]
            ends.append((row[kept], len(tried) if stop is None else stop + 1))
        success.append(np.mean([end[0] for end in ends]))
        takes.append(np.mean([end[1] for end in ends]))
    return np.array(success), np.array(takes)


def test_retrying_is_that_of_all_orders_with_thresholds_of_other_starts(world: tuple[F64, F64, F64]) -> None:
    outcomes, good, _ = world
    data = cell(outcomes, a=good)
    (one,) = verified(data, 3, parts=[data]).retrying
    folds = np.arange(40) % 5
    for rate, point in zip(reject.RATES, one.curve, strict=True):
        known = [good[(folds != fold)[:, None] & np.isfinite(outcomes)] for fold in range(5)]
        limits = np.array([np.sort(own)[math.ceil((1 - rate) * own.size - 1e-9) - 1] for own in known])
        if rate in (0.0, 1.0):
            limits[:] = np.inf if rate == 0 else -np.inf
        success, takes = retried_by_hand(outcomes, good, limits[folds], 3)
        assert (point.success, point.takes) == pytest.approx((success.mean(), takes.mean()))
    assert one.curve[0].success == pytest.approx(one.best_of[-1].success)
    assert one.curve[-1].success == pytest.approx(one.best_of[0].success)
    assert one.curve[-1].takes == 1.0
    assert [point.success for point in one.best_of] == pytest.approx(
        [picked(outcomes, good, k)[0].mean() for k in (1, 2, 3)]
    )
    assert one.takes.value is not None
    assert 1 < one.takes.value < 3


def test_each_cell_has_its_own_thresholds(world: tuple[F64, F64, F64]) -> None:
    outcomes, good, useless = world
    alike, apart = ([cell(outcomes, a=good), cell(1 - outcomes, a=shift + useless)] for shift in (0.0, 1000.0))
    one, two = (verified(merge_cells("*", parts), 3, parts=parts).retrying[0] for parts in (alike, apart))
    assert one == two
    assert verified(alike[0], 3).retrying == ()
