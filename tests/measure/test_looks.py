from __future__ import annotations

from pathlib import Path

from besttake.config import load_plan
from besttake.verbs.diagnose import diagnose

FLAGS = {
    "policy": ["testbed:half"],
    "env": ["testbed"],
    "task": ["pick", "drawer"],
    "seeds": 3,
    "best_of": 2,
    "arms": "base",
    "demos_per_task": 6,
    "probe_states": 0,
}


def test_a_run_remembers_its_looks_and_says_so_once_it_was_extended(cache: Path, tmp_path: Path) -> None:
    results = [diagnose(load_plan(None, {**FLAGS, "starts": starts}), tmp_path / "run") for starts in ("2", "2", "4")]
    looks = [[c.verdict.looks for c in (*r.cells, *r.policies) if c.verdict is not None] for r in results]
    assert looks == [[[2], [2], [4]], [[2], [2], [4]], [[2, 4], [2, 4], [4, 8]]]
    said = ["Looked at 2 times" in r.policies[0].verdict.reuse.because for r in results if r.policies[0].verdict]
    assert said == [False, False, True]
    assert {c.verdict.reuse.cost for c in results[-1].cells if c.verdict is not None} == {2}


def test_a_run_of_one_seed_can_be_extended(cache: Path, tmp_path: Path) -> None:
    flags = {**FLAGS, "seeds": 1, "best_of": None, "arms": "base,cooled"}
    results = [diagnose(load_plan(None, {**flags, "starts": starts}), tmp_path / "run") for starts in ("2", "3")]
    verdict = results[-1].policies[0].verdict
    assert verdict is not None
    assert verdict.looks == [4, 6]
    assert verdict.reuse.answer == "undecided"
    assert "at least two seeds" in verdict.reuse.because


def test_a_policy_keeps_its_looks_when_an_env_is_added(cache: Path, tmp_path: Path) -> None:
    flags = {**FLAGS, "task": None}
    diagnose(load_plan(None, {**flags, "env": ["testbed:pick"], "starts": "2"}), tmp_path / "run")
    wider = diagnose(
        load_plan(None, {**flags, "env": ["testbed:pick", "testbed:drawer"], "starts": "3"}), tmp_path / "run"
    )
    assert wider.policies[0].verdict is not None
    assert wider.policies[0].verdict.looks == [2, 6]
