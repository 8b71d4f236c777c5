"""What is no boolean never becomes a success."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from besttake.recordings.episodes import IngestError, outcome
from besttake.recordings.read import read


@pytest.mark.parametrize(
    ("value", "means"),
    [
        (True, True), (False, False), (1, True), (0, False), (1.0, True), (0.0, False), ("false", False), ("0", False),
        ("no", False), ("No ", False), ("TRUE", True), ("1", True), (np.True_, True), (np.float32(0), False),
        (Decimal(1), True), (None, None), (float("nan"), None), ("", None), ("NaN", None),
    ],
)  # fmt: skip
def test_an_outcome_is_read_as_it_is_meant(value: Any, means: bool | None) -> None:
    assert outcome(value) is means


NO_OUTCOMES = [0.5, -1, 2, "maybe", "-1", "0.5", [True], {"a": 1}, float("inf"), 10**30]


@pytest.mark.parametrize("value", NO_OUTCOMES)
def test_what_is_neither_yes_nor_no_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="neither yes nor no"):
        outcome(value)


def exported(value: Any) -> dict[str, Any]:
    episodes = [{"episode_id": i, "metrics": {"success": value}} for i in range(2)]
    return {"benchmark": "b", "tasks": [{"task": "t", "episodes": episodes}]}


def information(value: Any) -> dict[str, Any]:
    return {"per_task": [{"task_group": "g", "task_id": 0, "metrics": {"successes": [value, value]}}]}


def old_information(value: Any) -> dict[str, Any]:
    return {"per_episode": [{"episode_ix": i, "success": value} for i in range(2)]}


def trajectories(value: Any) -> dict[str, Any]:
    return {"env_info": {"env_id": "E-v1"}, "episodes": [{"episode_seed": i, "success": value} for i in range(2)]}


WRITERS = [exported, information, old_information, trajectories]


@pytest.mark.parametrize("written", WRITERS)
@pytest.mark.parametrize("value", ["false", "0", "no", 0, False, float("nan")])
def test_no_reader_makes_a_success_of_a_failure(tmp_path: Path, written: Any, value: Any) -> None:
    (tmp_path / "o.json").write_text(json.dumps(written(value)))
    (recording,), _ = read([tmp_path / "o.json"])
    assert [episode.success for episode in recording.episodes] == [None if value != value else False] * 2


@pytest.mark.parametrize("written", WRITERS)
@pytest.mark.parametrize("value", [0.5, -1, "maybe", {"deep": 1}])
def test_every_reader_refuses_what_is_no_outcome_and_names_the_place(tmp_path: Path, written: Any, value: Any) -> None:
    (tmp_path / "o.json").write_text(json.dumps(written(value)))
    with pytest.raises(
        IngestError, match=r"o\.json: .*(episode 0|row 1).* has success = .* is neither yes nor no|no column"
    ):
        read([tmp_path / "o.json"])
