"""A scorer judged on takes that are there: the numbers of a diagnosis with it, and nothing is played again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from besttake.config import Plan
from besttake.errors import BestTakeError, ComponentError
from besttake.result import Result
from besttake.takes.scores import Scores
from besttake.takes.store import Store
from besttake.verbs.compare import compare
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.score import score

CALM = """
import numpy as np
from besttake.scorers.base import Score, ScorerSpec

class Calm:
    spec = ScorerSpec("my-calm", reads=("actions",), fingerprint="1", notes=("calm takes first",), length=True)

    def score(self, takes, demos):
        return [Score([-np.square(np.diff(take.actions[:end], axis=0)).mean() for end in take.ends]) for take in takes]

make = Calm
"""


@pytest.fixture(scope="module")
def run(diagnosed) -> Path:
    return diagnosed(env="testbed", task="pick,drawer", starts=6, seeds=3, best_of=2, demos_per_task=6)


def test_two_scorers_of_one_name_are_refused_in_one_line(run: Path, module) -> None:
    module("twins", CALM)
    before = (run / "scores.safetensors").read_bytes()
    with pytest.raises(
        ComponentError, match=r"^the scorers python:\S+ and python:\S+ are both named 'my-calm', [^\n]*$"
    ):
        score(run, ["python:twins:make", "python:twins:Calm"])
    assert (run / "scores.safetensors").read_bytes() == before


def test_the_comparison_has_the_numbers_of_the_diagnosis(run: Path) -> None:
    result, before = Result.load(run / "result.json"), (run / "scores.safetensors").read_bytes()
    judged = score(run)
    assert (run / "scores.safetensors").read_bytes() == before
    for compared, cells in ((judged.cells, result.cells), (judged.policies, result.policies)):
        assert [one.group for one in compared] == [cell.group for cell in cells]
        for one, cell in zip(compared, cells, strict=True):
            assert cell.selectors is not None
            assert cell.ranking is not None
            assert cell.headroom is not None
            assert (one.n, one.window, one.headroom) == (2, cell.window, cell.headroom.headroom)
            assert one.shortest == cell.selectors.shortest.gain
            assert {row.scorer for row in one.rows} == {"manifold", "coverage"}
            for row in one.rows:
                selector = cell.selectors.scored[row.scorer][cell.window]
                assert (row.success, row.gain, row.capture) == (selector.success, selector.gain, selector.capture)
                assert row.auc == cell.ranking.within[row.scorer][cell.window]
                assert row.own == (row.scorer == cell.scorer)
                assert row.harm.value == pytest.approx(cell.headroom.headroom.value - (row.gain.value or 0.0))
    own, other = sorted(judged.policies[0].rows, key=lambda row: not row.own)
    assert own.over_own.value is None
    assert other.over_own.value == pytest.approx((other.gain.value or 0.0) - (own.gain.value or 0.0))


def test_a_new_scorer_is_kept_beside_the_others_and_no_take_is_made(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_calm.py").write_text(CALM)
    monkeypatch.chdir(tmp_path)
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    with Store.open(copy) as store:
        digest = store.digest()
    judged = score(copy, "python:my_calm:make")
    assert judged.notes[0] == "calm takes first"
    assert "length" in judged.notes[1]
    assert {row.scorer: row.leak for row in judged.policies[0].rows}["my-calm"]
    scores = Scores.open(copy)
    assert scores is not None
    assert set(scores.scorers) == {"manifold", "coverage", "my-calm"}
    with Store.open(copy) as store:
        assert store.digest() == digest
    assert len(json.loads(judged.to_json())["cells"]) == 2
    assert "my-calm" in judged._repr_html_()


@pytest.mark.parametrize("how", [{"until": "decided", "budget": 200}, {"starts": 8}], ids=["until decided", "extended"])
def test_intervals_hold_however_the_run_was_looked_at(
    run: Path, cache: Path, tmp_path: Path, how: dict[str, object]
) -> None:
    plan = {**Result.load(run / "result.json").plan, **how}
    out = tmp_path / "run"
    if "until" not in how:
        shutil.copytree(run, out)
    result = diagnose(Plan.model_validate(plan), out)
    judged = score(out)
    for one, cell in zip((*judged.policies, *judged.cells), (*result.policies, *result.cells), strict=True):
        assert cell.selectors is not None
        assert cell.headroom is not None
        assert one.headroom == cell.headroom.headroom
        for row in one.rows:
            selector = cell.selectors.scored[row.scorer][cell.window]
            assert row.gain == selector.gain
            assert row.capture.value == selector.capture.value
            assert (row.capture.low is None) == ("until" in how)


def test_scores_that_were_added_are_those_of_a_diagnosis_with_the_scorer(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    judged = score(copy, ["smoothness"])
    before = (copy / "scores.safetensors").read_bytes()
    assert score(copy, ["smoothness"]).cells == judged.cells
    assert (copy / "scores.safetensors").read_bytes() == before
    again = Result.load(copy / "result.json")
    result = diagnose(Plan.model_validate({**again.plan, "scorer": ["smoothness"]}), copy)
    for cell, one in zip(result.cells, judged.cells, strict=True):
        assert cell.scorer == "smoothness"
        assert cell.chosen is not None
        assert cell.chosen.gain == next(row.gain for row in one.rows if row.scorer == "smoothness")
        assert cell.verdict is not None
        assert {option.scorer for option in cell.verdict.options} == {None, "smoothness"}
    captures = [cell.chosen.capture.value for cell in result.cells if cell.chosen is not None]
    together = compare(copy)
    assert together.across.captures.mean == pytest.approx(np.mean([one for one in captures if one is not None]))


def test_what_cannot_be_scored_is_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BestTakeError, match="no scorer of kind 'luck'"):
        score(run, "luck")
    with pytest.raises(BestTakeError, match="result.json"):
        score(tmp_path, "manifold")
