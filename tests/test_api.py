"""The API: every verb is a function that means the same whatever was imported before; results show themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import besttake
from besttake.errors import RunError
from besttake.takes.key import TakeKey

VERBS = ("compare", "diagnose", "doctor", "ingest", "plan", "probe", "rank", "report", "reproduce", "score")


@pytest.fixture(scope="module")
def run(diagnosed) -> Path:
    return diagnosed(starts=3, seeds=2, probe_states=4)


def test_a_result_prints_as_the_diagnosis_does(run: Path) -> None:
    plan = besttake.Run.open(run).result.plan
    result = besttake.diagnose(**plan, out=run)
    assert result.digest == besttake.Run.open(run).result.digest
    first, *rest = str(result).splitlines()
    assert first.startswith("testbed:half  ")
    assert "%" in first
    assert len(rest) < 5
    assert repr(result) == str(result)
    assert besttake.diagnose(besttake.Plan(**plan), run, seed=0).digest == result.digest


def test_every_public_name_is_listed_and_exists() -> None:
    assert set(VERBS) < set(besttake.__all__)
    assert set(besttake.__all__) <= set(dir(besttake))
    for name in besttake.__all__:
        assert getattr(besttake, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'diagnoze'"):
        _ = besttake.diagnoze  # type: ignore[attr-defined]


def test_no_name_changes_its_meaning_when_submodules_are_imported() -> None:
    code = """
import importlib, pkgutil, types, besttake
before = {name: getattr(besttake, name) for name in besttake.__all__}
for module in pkgutil.walk_packages(besttake.__path__, "besttake."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for name, value in before.items():
    assert getattr(besttake, name) is value or name == "__version__", name
    assert not isinstance(value, types.ModuleType), name
    assert name == "__version__" or callable(value), name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_is_read_when_it_is_asked_for(run: Path) -> None:
    with besttake.Run.open(run) as opened:
        assert opened.result.cells[0].group == "pick"
        assert len(opened.takes) == 6
        key = TakeKey("testbed:half", "testbed:pick", "pick", opened.takes.rows[0].key.start, "base", 0)
        assert opened.takes[key].success == opened.takes.rows[0].success
        assert opened.scores is not None
        assert list(opened.scores) == list(opened.takes)
        assert 0 < opened.scores[key].scores["manifold", "full"] <= 1  # type: ignore[index]
        assert "6 takes by manifold" in repr(opened.scores)
        assert "<th>manifold/full</th>" in opened.scores._repr_html_()
        assert repr(opened.takes).startswith(f"<6 takes in {run}")
        assert opened.takes[0].key == next(iter(opened.takes)) == opened.takes[:2][0].key
        assert opened.takes[-1].key == [*opened.takes][-1]
        with pytest.raises(IndexError):
            _ = opened.takes[6]
        films = dict(opened.films())
        assert set(films) == set(opened.takes)
        assert films[key].dtype == np.uint8
        assert "6 takes" in opened.takes._repr_html_()
    with pytest.raises(RunError, match="is not a run"):
        besttake.Run.open(run.parent)


def test_results_show_themselves_in_a_notebook(run: Path, tmp_path: Path) -> None:
    plan = besttake.Plan(policy="testbed:half", env="testbed:pick", demos_per_task=4, probe_states=4)
    table = tmp_path / "outcomes.csv"
    table.write_text(
        "task,start,seed,success\n" + "".join(f"pick,{s},{k},{(s + k) % 2}\n" for s in range(4) for k in range(2))
    )
    results: list[Any] = [
        besttake.Run.open(run).result, besttake.score(run, "manifold"), besttake.probe(plan),
        besttake.plan(pass1=0.6), besttake.compare([run]), besttake.ingest([table]), besttake.doctor(),
    ]  # fmt: skip
    for result in results:
        text = result._repr_html_()
        assert "<table" in text
        assert len(text) < 10_000
        assert callable(result.to_dataframe)
        assert json.loads(result.to_json())
    assert besttake.report(run, tmp_path / "report.md", format="md").read_text().startswith("#")
