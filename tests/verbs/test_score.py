"""A scorer judged on takes that are there: the numbers of a diagnosis with it, and nothing is played again."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from besttake.config import Plan
from besttake.errors import BestTakeError
from besttake.measure.scores import Scores
from besttake.reporting.terminal.score import render
from besttake.result import Result
from besttake.takes.store import Store
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
    assert judged.scorer == "my-calm"
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
    console.print(render(judged))
    assert "picked by my-calm" in console.export_text()


def test_what_cannot_be_scored_is_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BestTakeError, match="no scorer of kind 'luck'"):
        score(run, "luck")
    with pytest.raises(BestTakeError, match="result.json"):
        score(tmp_path, "manifold")
