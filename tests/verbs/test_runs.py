"""`runs list` finds runs and says what each concluded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from besttake.errors import RunError
from besttake.reporting import words
from besttake.result import Result
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store
from besttake.verbs.runs import list_runs


@pytest.fixture
def place(tmp_path: Path, finished: Path) -> Path:
    """A finished, an unfinished and a damaged run, at different depths, and a directory that is none."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "done").symlink_to(finished)  # links are not followed
    (tmp_path / "a" / "done").mkdir()
    (tmp_path / "a" / "done" / "result.json").write_bytes((finished / "result.json").read_bytes())
    Store.write(tmp_path / "begun", Manifest(command="besttake diagnose plan.yaml")).close()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "result.json").write_text("{")
    (tmp_path / "other").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def finished(diagnosed) -> Path:
    return diagnosed(env="testbed:drawer", starts=1, seeds=2)


def test_every_run_is_listed_with_its_state_and_verdict(place: Path, finished: Path) -> None:
    runs = {Path(run.path).name: run for run in list_runs(place).runs}
    assert {name: run.state for name, run in runs.items()} == {
        "done": "finished", "begun": "unfinished", "torn": "damaged"
    }  # fmt: skip
    result = Result.load(finished / "result.json")
    (line,) = runs["done"].policies
    assert line.needs == words.needs_text(result.policies[0])
    assert line.headline == words.headline(result.policies[0])
    assert runs["done"].digest == result.digest
    assert runs["begun"].command == "besttake diagnose plan.yaml"
    assert "damaged" in runs["torn"].problem
    assert {entry["state"] for entry in json.loads(list_runs(place).to_json())} == {"finished", "unfinished", "damaged"}


def test_a_place_that_is_no_directory_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a directory"):
        list_runs(tmp_path / "nowhere")
    assert list_runs(tmp_path).runs == ()
