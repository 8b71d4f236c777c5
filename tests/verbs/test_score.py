"""A scorer judged on takes that are there: the numbers of a diagnosis with it, and nothing is played again."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from besttake.config import Plan
from besttake.errors import BestTakeError, ComponentError, RunError
from besttake.measure.scores import Scores
from besttake.reporting import outputs
from besttake.reporting.terminal import layout
from besttake.result import Result
from besttake.takes.store import Store
from besttake.verbs.compare import compare
from besttake.verbs.diagnose import diagnose
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
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("score") / "run"
    plan = Plan(
        policy="testbed:half", env="testbed", task=("pick", "drawer"), starts=6, seeds=3, best_of=2, arms=("base",),
        demos_per_task=6, probe_states=0, workers=1,
    )  # fmt: skip
    diagnose(plan, out)
    return out


def test_two_scorers_of_one_name_are_refused_in_one_line(run: Path) -> None:
    before = (run / "scores.safetensors").read_bytes()
    with pytest.raises(ComponentError, match=r"^the scorers last and last\?frames=5 are both named 'last', [^\n]*$"):
        score(run, ["last", "last?frames=5"])
    assert (run / "scores.safetensors").read_bytes() == before
    plan = Plan.model_validate({**Result.load(run / "result.json").plan, "scorer": ["last", "last?frames=5"]})
    with pytest.raises(ComponentError, match="both named 'last'"):
        diagnose(plan, run.parent / "never")
    assert not (run.parent / "never").exists()


@pytest.mark.parametrize("scorer", ["manifold", "coverage"])
def test_a_scorer_of_the_diagnosis_gets_the_diagnosis_numbers(run: Path, scorer: str) -> None:
    cells = Result.load(run / "result.json").cells
    before = (run / "scores.safetensors").read_bytes()
    judged = score(run, scorer)
    assert [c.group for c in judged.cells] == [c.group for c in cells]
    for own, cell in zip(judged.cells, cells, strict=True):
        assert cell.selectors is not None
        assert cell.ranking is not None
        selector = cell.selectors.scored[scorer][cell.window]
        for name in ("success", "gain", "capture"):
            mine, theirs = getattr(own, name), getattr(selector, name)
            assert (mine.value, mine.low, mine.high) == pytest.approx((theirs.value, theirs.low, theirs.high))
        assert own.auc.value == pytest.approx(cell.ranking.within[scorer][cell.window].value)
        assert own.n == 2
    assert (run / "scores.safetensors").read_bytes() == before


def test_a_new_scorer_is_kept_beside_the_others_and_no_take_is_made(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_calm.py").write_text(CALM)
    monkeypatch.chdir(tmp_path)
    with Store.open(run) as store:
        digest = store.digest()
    judged = score(run, "python:my_calm:make")
    assert judged.scorers == ("my-calm",)
    assert judged.notes[0] == "calm takes first"
    assert "length" in judged.notes[1]
    scores = Scores.open(run)
    assert scores is not None
    assert set(scores.scorers) == {"manifold", "coverage", "my-calm"}
    with Store.open(run) as store:
        assert store.digest() == digest
    assert len(json.loads(judged.to_json())["cells"]) == 2
    assert "my-calm" in judged._repr_html_()
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(layout(outputs.scores(judged), 200))
    assert "my-calm" in console.export_text()


def test_a_run_that_cannot_be_written_is_answered_with_what_score_can_do(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    (copy / ".lock").unlink(missing_ok=True)
    (copy / ".lock").mkdir()  # as root, no mode of a file keeps anyone from writing
    with pytest.raises(RunError, match="cannot write in .*; scores are kept in the run: copy it to a place") as caught:
        score(copy, "coverage")
    assert "`out`" not in str(caught.value)


def test_several_scorers_are_compared_and_none_is_chosen(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    judged = score(copy, ["last", "dtw"])
    assert judged.scorers == ("last", "dtw")
    before = (copy / "scores.safetensors").read_bytes()
    assert score(copy, ["last", "dtw"]).cells == judged.cells
    assert (copy / "scores.safetensors").read_bytes() == before
    again = Result.load(copy / "result.json")
    result = diagnose(Plan.model_validate({**again.plan, "scorer": ["last", "dtw"]}), copy)
    for cell, own in zip(result.cells, judged.cells[: len(result.cells)], strict=True):
        assert cell.scorer == own.scorer == "last"
        assert cell.chosen is not None
        assert cell.chosen.gain == own.gain
        assert cell.verdict is not None
        assert {option.scorer for option in cell.verdict.options} == {None, "last"}
    captures = [cell.chosen.capture.value for cell in result.cells if cell.chosen is not None]
    together = compare(copy)
    assert together.across.captures.mean == pytest.approx(np.mean([one for one in captures if one is not None]))


def test_what_cannot_be_scored_is_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BestTakeError, match="no scorer of kind 'luck'"):
        score(run, "luck")
    with pytest.raises(BestTakeError, match="result.json"):
        score(tmp_path, "manifold")
