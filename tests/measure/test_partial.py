"""What an unfinished run says so far."""

from __future__ import annotations

import numpy as np
import pytest

from besttake.core.sequential import bounds
from besttake.measure.partial import ROUNDS, fixed_cells, partial_cell, read_round, settings_of
from besttake.measure.verdict import questions_of
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Extent, Manifest

STARTS, SEEDS, ARMS = 60, 3, ("base", "cooled")
MANIFEST = Manifest(
    plan={"worth": 3.0},
    extent=Extent(
        policies=["p"], tasks=["e one", "e two"], starts=list(range(STARTS)), seeds=list(range(SEEDS)), arms=[*ARMS]
    ),
)


def row(key: TakeKey, success: bool | None) -> Row:
    status = "error" if success is None else "done"
    return Row(key, status, success, 5 if success else None, 9, 1, None, 0, None, None, 0.0)


def takes(task: str, chance: float = 0.5, seed: int = 0) -> dict[TakeKey, Row]:
    """All takes of a task; a start is easy or hard, so that there is headroom."""
    rng, rows = np.random.default_rng(seed), {}
    for start in range(STARTS):
        for arm in ARMS:
            for number in range(SEEDS):
                key = TakeKey("p", "e", task, start, arm, number)
                rows[key] = row(key, bool(rng.random() < chance))
    return rows


def test_starts_count_up_to_the_first_that_is_still_being_played() -> None:
    rows = takes("one")
    del rows[TakeKey("p", "e", "one", 7, "cooled", 2)]
    one, two = fixed_cells(MANIFEST, rows)
    assert [start for _, _, start in one.units] == list(range(7))
    assert two.units == ()


def test_takes_that_end_sooner_do_not_move_the_estimate() -> None:
    """Failures last longest: of those that are there while a run goes on, too many are successes."""
    rows = takes("one", 0.5)
    late = [key for key, one in rows.items() if not one.success and key.start >= 30]
    seen = {key: one for key, one in rows.items() if key not in late}
    naive = np.mean([one.success for key, one in seen.items() if key.arm == "base"])
    (data, _), settings = fixed_cells(MANIFEST, seen), settings_of(MANIFEST)
    truth = np.mean([rows[k].success for k in rows if k.arm == "base" and k.start < len(data.units)])
    assert 30 <= len(data.units) < 40
    assert partial_cell(data, settings, STARTS).pass_1 == pytest.approx(truth)
    assert naive > truth + 0.1


def test_bounds_are_the_anytime_valid_ones_and_answers_follow_from_them() -> None:
    (data, _), settings = fixed_cells(MANIFEST, takes("one")), settings_of(MANIFEST)
    seen = partial_cell(data, settings, STARTS)
    last = seen.findings["headroom"].estimate
    asked = {q.name: q for q in questions_of({n: a.scored_by(data.score_name) for n, a in data.arms.items()}, SEEDS)}
    low, high = bounds(asked["headroom"].values, asked["headroom"].widest, asked["headroom"].stake)
    assert last.value == pytest.approx(asked["headroom"].values.mean())
    assert (last.low, last.high) == pytest.approx((low, high))
    assert seen.findings["headroom"].answer == "yes"
    assert low > 0
    assert seen.findings["cooled"].answer == "open"
    assert "gain" not in seen.findings, "nothing is scored before the last take of a fixed sample"


@pytest.mark.parametrize("text", ['{"seeds": 1e999}', '[{"cell": {}}]', "[", "nothing"])
def test_a_round_that_no_run_wrote_is_none(tmp_path, text):
    assert read_round(tmp_path) == []
    (tmp_path / ROUNDS).write_text(text)
    assert read_round(tmp_path) == []
