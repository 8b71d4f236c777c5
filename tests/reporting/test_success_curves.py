from pathlib import Path

import numpy as np
import pytest

from besttake.reporting.candidates import Candidate, candidates, success_curves
from besttake.result import Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import Scores
from besttake.takes.store import Store


def start(number: int, ends: list[tuple[bool | None, int]], arm: str = "base") -> Candidate:
    """A start whose takes succeeded, failed or could not be made (None), each after so many steps."""
    rows = tuple(
        Row(TakeKey("p", "e", "t", number, arm, i), "error" if won is None else "done", won, step if won else None,
            step, 1, None, 0, None, None, 0.0)
        for i, (won, step) in enumerate(ends)
    )  # fmt: skip
    return _candidate({arm: rows})


def _candidate(arms: dict[str, tuple[Row, ...]]) -> Candidate:
    return Candidate(cell=None, place=0, arms=arms, picked=None, kind="failed", disputed=False)  # type: ignore[arg-type]


def test_a_curve_ends_at_pass_at_1_with_its_interval(run: Path) -> None:
    result = Result.load(run / "result.json")
    with Store.open(run) as store:
        every = candidates(result.cells, store.rows(), Scores.open(run))
    for cell in result.policies:
        own = [one for starts in every.values() for one in starts if one.cell.policy == cell.policy]
        for curve in success_curves(own):
            assert cell.arms is not None
            expected = cell.arms.arms[curve.arm].pass_1
            assert curve.by[-1] == pytest.approx(expected.value)
            last = curve.at[max(curve.at)]
            assert (last.value, last.low, last.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_a_take_that_fails_early_stays_among_those_that_are_counted() -> None:
    """Kaplan-Meier would take it for one that might have gone on: (1 - 1/2) * (1 - 1/1) leaves no failure at all."""
    [curve] = success_curves([start(0, [(True, 10), (False, 5)]), start(1, [(False, 5), (True, 20)])])
    assert curve.steps == [10, 20]
    assert curve.by == [0.25, 0.5]
    assert curve.half == 20


def test_every_start_counts_once_however_many_takes_it_has() -> None:
    one = [start(0, [(True, 4)] * 9), start(1, [(False, 8)])]
    [curve] = success_curves(one)
    assert curve.by == [0.5]


def test_the_curve_is_the_part_that_brute_force_counts() -> None:
    rng = np.random.default_rng(3)
    ends = [[(bool(rng.random() < 0.6), int(rng.integers(1, 40))) for _ in range(4)] for _ in range(25)]
    [curve] = success_curves([start(i, own) for i, own in enumerate(ends)])
    for step, part in zip(curve.steps, curve.by, strict=True):
        counted = sum(sum(won and at <= step for won, at in own) / 4 for own in ends) / 25
        assert part == pytest.approx(counted)
