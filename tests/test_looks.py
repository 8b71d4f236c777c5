from __future__ import annotations

from pathlib import Path

from besttake.config import load_plan
from besttake.diagnosis import diagnose

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
