"""What a run recommends is played on new starts, and its promise is compared with what comes of it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import besttake
from besttake.core.stats import Estimate
from besttake.errors import PlanError, RunError
from besttake.measure.promise import Promise, is_broken, promise_of, success_so_far
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.scores import ScoreName
from besttake.verbs.act import write_kept

PICK = {"policy": ["testbed:half"], "env": ["testbed:pick"], "arms": ["base", "cooled"], "seeds": 3, "stride": 2}


@pytest.fixture(scope="module")
def run(diagnosed) -> Path:
    return diagnosed(**PICK, starts=8)


def test_takes_of_new_starts_are_those_that_a_diagnosis_plays_there(run: Path, tmp_path: Path) -> None:
    acted = besttake.act(run, tmp_path / "act", option="cooled, best of 3", starts="8:12")
    result = besttake.Run.open(run).result
    plan = {**result.plan, "starts": "8:12"}
    besttake.diagnose(besttake.Plan(**plan), tmp_path / "again")
    with besttake.Run.open(tmp_path / "again") as again:
        assert again.scores is not None
        for take in acted.kept:
            own = TakeKey("testbed:half", "testbed:pick", "pick", take.start, "cooled", take.seed)
            assert again.scores[own].scores[ScoreName("coverage", "full")] == take.score
            tried = [replace(own, seed=seed) for seed in range(take.takes)]
            scores = [again.scores[key].scores[ScoreName("coverage", "full")] for key in tried]
            assert take.seed == int(np.argmax(scores))
            limit = acted.promise.threshold
            stopped = limit is not None and scores[-1] >= limit
            assert stopped or take.takes == 3
            assert limit is None or not any(score >= limit for score in scores[:-1])
    assert acted.takes == np.mean([take.takes for take in acted.kept])
    assert acted.success.value == np.mean([take.success for take in acted.kept])


def test_acting_goes_on_where_it_was_stopped_and_plays_nothing_twice(run: Path, tmp_path: Path) -> None:
    first = besttake.act(run, tmp_path / "act", starts="8:9")
    more = besttake.act(run, tmp_path / "act", starts="8:10")
    assert more.kept[0] == first.kept[0]
    assert besttake.act(run, tmp_path / "act", starts="8:10") == more
    assert json.loads((tmp_path / "act" / "act.json").read_text())["takes"] == more.takes


def test_takes_that_fail_are_said_and_are_no_success_of_the_command(diagnosed, monkeypatch, call) -> None:
    """Else the promise would be held against the starts that happened to be finished, without a word on the others."""
    run = diagnosed(policy="python:odd_parts:policy?small=false", seeds=2, stride=2, starts=2)
    monkeypatch.setenv("ODD", "large SystemExit")  # from the third call of the policy on
    code, _, said = call("act", run, "--starts", "2:5", "-q")
    assert code == 1
    assert "6 takes failed, most by SystemExit: 3; " in said
    assert "allow" not in said
    assert besttake.act(run, starts="2:5").failed == 6


def test_starts_that_the_run_has_seen_are_refused_unless_allowed(run: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="has seen start 7 of pick"):
        besttake.act(run, tmp_path / "act", starts="7:9")
    assert not (tmp_path / "act").exists()
    acted = besttake.act(run, tmp_path / "act", starts="7:8", seen=True)
    assert [take.start for take in acted.kept] == [7]


@pytest.mark.parametrize(
    ("given", "words"), [({"policy": "other"}, "the run has testbed:half"), ({"option": "x"}, "'cooled, best of 3'")]
)
def test_a_wrong_name_lists_what_there_is(run: Path, tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        besttake.act(run, tmp_path / "act", **given)


def test_kept_takes_go_into_a_table_films_and_a_data_set(run: Path, tmp_path: Path) -> None:
    acted = besttake.act(run, tmp_path / "act", starts="8:10")
    write_kept(acted, lerobot=tmp_path / "set", films=tmp_path / "films", csv=tmp_path / "kept.csv")
    with (tmp_path / "kept.csv").open() as file:
        assert [int(row["start"]) for row in csv.DictReader(file)] == [8, 9]
    assert len(list((tmp_path / "films").glob("**/*.mp4"))) == 2
    assert json.loads((tmp_path / "set" / "meta" / "info.json").read_text())["total_episodes"] == 2


def test_a_run_of_another_policy_is_not_acted_on(run: Path, tmp_path: Path) -> None:
    """As where somebody has trained the policy on since."""
    text = (run / "run.json").read_text()
    manifest = json.loads(text)
    manifest["identity"]["policy testbed:half"] = "another"
    other = Manifest.model_validate({key: value for key, value in manifest.items() if key != "sha256"})
    (run / "run.json").write_bytes(other.to_bytes())
    try:
        with pytest.raises(RunError, match="policy testbed:half has changed since"):
            besttake.act(run, tmp_path / "act", starts="8:9")
    finally:
        (run / "run.json").write_text(text)


def test_a_promise_is_broken_where_the_bounds_lie_below_it() -> None:
    promise = Promise("p", "o", "base", 3, "coverage", "full", 1.0, Estimate(0.8, 0.7, 0.9, 60), 2.0)
    assert is_broken(promise, success_so_far([False] * 40, 3))
    assert not is_broken(promise, success_so_far([True] * 30 + [False] * 10, 3))
    assert not is_broken(promise, success_so_far([False] * 2, 3))
    assert not is_broken(promise, success_so_far([], 3))


def test_an_option_with_one_take_promises_its_own_success(run: Path) -> None:
    cell = besttake.Run.open(run).result.cell_of("half")
    promise = promise_of(cell, "cooled")
    assert cell.verdict is not None
    option = cell.verdict.row("cooled")
    assert option is not None
    assert (promise.n, promise.threshold, promise.takes) == (1, None, 1.0)
    assert promise.success == cell.verdict.shown_as(option)[0]
