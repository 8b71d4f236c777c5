"""Two runs side by side: what changed, start by start where both have the start."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from besttake.verbs.compare import _pair_cells, changes_between, compare
from besttake.verbs.runs import Run


@pytest.fixture(scope="module")
def pair(diagnosed) -> tuple[Path, Path]:
    return diagnosed(starts="0:4", seeds=2), diagnosed(policy="testbed:strong", starts="1:6", seeds=2)


def rates(run: Path, starts: set[int]) -> dict[int, float]:
    rows = Run.open(run).takes.rows
    return {s: float(np.mean([row.success for row in rows if row.key.start == s])) for s in starts}


def test_only_starts_that_both_runs_have_count(pair: tuple[Path, Path]) -> None:
    notes: list[str] = []
    listed = changes_between(pair, notes)
    single = next(one for one in listed if one.number == "pass@1")
    shared = {row.key.start for row in Run.open(pair[0]).takes.rows} & {
        row.key.start for row in Run.open(pair[1]).takes.rows
    }
    before, after = (rates(run, shared) for run in pair)
    assert len(shared) == 3
    assert (single.starts, notes) == (3, [])
    assert single.policies == ("testbed:half", "testbed:strong")
    assert single.change.value == pytest.approx(np.mean([after[s] - before[s] for s in shared]))
    assert single.before.value == pytest.approx(np.mean([*before.values()]))
    assert single.change.low <= single.change.value <= single.change.high
    assert {one.number for one in listed} == {"pass@1", "pass@2"}


def test_a_run_has_not_changed_against_itself_and_two_runs_are_in_the_document(pair: tuple[Path, Path]) -> None:
    listed = changes_between([pair[0], pair[0]], [])
    assert all(one.change.value == 0 and one.shown == "same" for one in listed)
    document = json.loads(compare(list(pair)).to_json())
    assert document["changes"][0]["starts"] == 3
    assert compare([pair[0]]).changes == ()


def test_cells_of_one_task_in_two_envs_are_not_mixed_up(pair: tuple[Path, Path]) -> None:
    result = Run.open(pair[0]).result
    (cell,) = result.cells
    small = cell.model_copy(update={"env": "testbed:pick?size=32"})
    old = result.model_copy(update={"cells": [cell, small]})
    pairs, notes = _pair_cells(old, result.model_copy(update={"cells": [small, cell]}))
    assert ([(a.env, b.env) for a, b in pairs], notes) == ([(cell.env, cell.env), (small.env, small.env)], [])
    pairs, notes = _pair_cells(old, result)
    assert [(a.env, b.env) for a, b in pairs] == [(cell.env, cell.env)]
    assert notes == ["only the first run has testbed:half on pick in testbed:pick?size=32"]
