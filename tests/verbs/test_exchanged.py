"""A file that is not of the run it lies in, or not of its takes, is noticed by whoever opens it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from besttake.config import Plan
from besttake.errors import RunError
from besttake.result import Result
from besttake.verbs.compare import compare
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.export import ExportOptions, export
from besttake.verbs.report import report
from besttake.verbs.runs import list_runs, summarise

PLAN = {
    "policy": "testbed:half", "env": "testbed:pick", "starts": 3, "seeds": 2, "arms": ("base",), "check_states": 0,
    "probe_states": 0, "demos_per_task": 3, "workers": 1,
}  # fmt: skip
OTHER = "belongs to another run than the run.json beside it"


@pytest.fixture(scope="module")
def both(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        diagnose(Plan(**PLAN, seed=seed), place / str(seed))
    return place


@pytest.fixture
def runs(both: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(both, tmp_path / "runs"))


def test_the_result_of_another_run_is_refused_and_made_again(runs: Path) -> None:
    own = Result.load(runs / "0")
    shutil.copy(runs / "1" / "result.json", runs / "0" / "result.json")
    for use in (
        lambda: report(runs / "0"),
        lambda: compare([runs / "0", runs / "1"]),
        lambda: export(runs / "0", ExportOptions(csv=True)),
    ):
        with pytest.raises(RunError, match=OTHER):
            use()
    (listed,) = [run for run in list_runs(runs).runs if run.path.endswith("0")]
    assert listed.state == "damaged"
    assert OTHER in listed.problem
    assert diagnose(Plan(**PLAN, seed=0), runs / "0").digest == own.digest


def test_a_run_that_went_on_since_its_result_takes_no_part(runs: Path) -> None:
    own = Result.load(runs / "0")
    (cell,) = own.cells
    own.model_copy(update={"cells": [cell.model_copy(update={"takes": 5})]}).save(runs / "0" / "result.json")
    compared, why = compare([runs / "0", runs / "1"]), "its takes are not those of its result"
    assert any("0: testbed:half, pick takes no part" in note and why in note for note in compared.result.notes)
    assert any(note.startswith("the two runs cannot be compared") for note in compared.result.notes)
    assert compared.changes == ()
    assert compared.result.relation.cells == 1
    with pytest.raises(RunError, match=why):
        export(runs / "0", ExportOptions(csv=True))


def test_scores_of_another_run_are_refused_and_made_again(runs: Path) -> None:
    own = Result.load(runs / "0")
    shutil.copy(runs / "1" / "scores.safetensors", runs / "0" / "scores.safetensors")
    with pytest.raises(RunError, match=OTHER):
        export(runs / "0", ExportOptions(csv=True))
    assert summarise(runs / "0").damaged_scores
    assert diagnose(Plan(**PLAN, seed=0), runs / "0").digest == own.digest


def test_takes_of_another_run_are_refused(runs: Path) -> None:
    shutil.rmtree(runs / "0" / "takes")
    shutil.copytree(runs / "1" / "takes", runs / "0" / "takes")
    shutil.copy(runs / "1" / "takes.sqlite", runs / "0" / "takes.sqlite")
    for use in (lambda: diagnose(Plan(**PLAN, seed=0), runs / "0"), lambda: summarise(runs / "0")):
        with pytest.raises(RunError, match=OTHER):
            use()
    (runs / "0" / "takes.sqlite").unlink()
    with pytest.raises(RunError, match=f"takes {OTHER}"):  # nor are they taken in where the table is gone
        diagnose(Plan(**PLAN, seed=0), runs / "0")


def test_a_run_that_grows_keeps_its_name_and_two_of_one_plan_have_the_same(runs: Path, tmp_path: Path) -> None:
    name = Result.load(runs / "0").run
    assert diagnose(Plan(**{**PLAN, "starts": 4}, seed=0), runs / "0").run == name
    assert diagnose(Plan(**PLAN, seed=0), tmp_path / "again").run == name != Result.load(runs / "1").run
