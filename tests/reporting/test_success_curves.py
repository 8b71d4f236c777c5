from pathlib import Path

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
    return Candidate(cell=None, place=0, arms=arms, picked=None, kind="failed")  # type: ignore[arg-type]


def test_a_curve_ends_at_pass_at_1_with_its_interval(run: Path) -> None:
    result = Result.load(run / "result.json")
    with Store.open(run) as store:
        every = candidates(result.cells, store.rows(), Scores.open(run))
    for cell in result.policies:
        own = [one for starts in every.values() for one in starts if one.cell.policy == cell.policy]
        for curve in success_curves(own):
            assert cell.arms is not None
            expected = cell.arms.arms[curve.arm].pass_1
            last = curve.at[max(curve.at)]
            assert (last.value, last.low, last.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_a_take_that_fails_early_stays_among_those_that_are_counted_and_every_start_counts_once() -> None:
    """Kaplan-Meier would take it for one that might have gone on: (1 - 1/2) * (1 - 1/1) leaves no failure at all."""
    [curve] = success_curves([start(0, [(True, 10), (False, 5)]), start(1, [(False, 5), (True, 20)])])
    assert [curve.at[step].value for step in (8, 10, 19, 20)] == [0.0, 0.25, 0.25, 0.5]
    [curve] = success_curves([start(0, [(True, 4)] * 9), start(1, [(False, 8)])])
    assert curve.at[8].value == 0.5
