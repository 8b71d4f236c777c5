from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.stats import binomtest

from besttake.config import load_plan
from besttake.measure.arrays import ScoredTakes
from besttake.measure.looks import CellHistory, looks_at, with_outgrown
from besttake.measure.verdict import questions_of
from besttake.takes.manifest import Extent
from besttake.types import TaskSpec
from besttake.verbs.diagnose.diagnosis import diagnose


def test_more_takes_of_the_same_starts_count_as_looks() -> None:
    units = [("env", "pick", start) for start in range(60)]
    same, more, both = (looks_at(units, now, CellHistory(((60, 3),))) for now in ((60, 3), (60, 5), (80, 5)))
    assert (same.count, same.grown) == (1, 0)
    assert (more.count, more.grown) == (2, 1)
    assert (both.count, both.grown) == (2, 1)
    again = looks_at(units, (80, 7), CellHistory(((60, 3), (80, 3), (80, 5))))
    assert (again.count, again.grown, again.earlier) == (4, 2, (60, 80, 80))
    assert looks_at(units, (80, 3), CellHistory(((60, 3),))).left() == 0.025
    fewer, thinner = (
        looks_at(units[:40], (40, 3), CellHistory(((60, 3),))),
        looks_at(units, (60, 3), CellHistory(((60, 5),))),
    )
    assert (fewer.count, fewer.grown) == (2, 0)
    assert (thinner.count, thinner.grown) == (2, 1)
    assert again.left() == 0.05 / 8


def test_a_sample_that_was_given_more_before_its_result_counts_as_a_look() -> None:
    tasks = [TaskSpec(name, "suite", "do it", 80) for name in ("pick", "push")]
    envs: dict[str, Any] = {"e": SimpleNamespace(tasks=tasks)}
    small, large = (
        Extent(policies=["p"], tasks=["e pick", "e push"], starts=list(range(n)), seeds=[0, 1, 2]) for n in (20, 30)
    )
    assert with_outgrown({}, [], envs) == {}
    counted = dict.fromkeys(("p e suite", "p *"), CellHistory(((40, 3), (60, 3))))
    assert with_outgrown({}, [small, large], envs) == counted
    judged = dict.fromkeys(("p e suite", "p *"), CellHistory(((39, 3),), shown=frozenset({"cooled"})))
    assert with_outgrown(judged, [small], envs) == judged, "one start without takes: the result counted this look"
    assert with_outgrown(judged, [small, large], envs) == {
        name: CellHistory(((39, 3), (60, 3)), shown=frozenset({"cooled"})) for name in judged
    }


@pytest.mark.slow
def test_a_blind_score_is_chosen_in_at_most_5_percent_of_runs_that_add_takes_again_and_again() -> None:
    runs, seeds, starts = 1000, (3, 5, 7, 9), 60
    units, wrong, naive = [("env", "pick", start) for start in range(starts)], 0, 0
    for run in range(runs):
        rng = np.random.default_rng([run, 12])
        y = (rng.random((starts, max(seeds))) < rng.beta(0.5, 0.5, (starts, 1))).astype(float)
        scores, counted, plain = rng.normal(size=y.shape), [], []
        for k, count in enumerate(seeds):
            takes = ScoredTakes(y[:, :count], scores[:, :count])
            gain = next(q for q in questions_of({"base": takes}, 3) if q.name == "gain")
            looks = looks_at(units, (starts, count), CellHistory(tuple((starts, earlier) for earlier in seeds[:k])))
            counted.append(gain.ask(0.03, looks, draws=1000).answer == "yes")
            plain.append(gain.ask(0.03, draws=1000).answer == "yes")
        wrong, naive = wrong + any(counted), naive + any(plain)
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.01
    assert naive > wrong


FLAGS = {
    "policy": ["testbed:half"],
    "env": ["testbed"],
    "task": ["pick", "drawer"],
    "seeds": 3,
    "best_of": 2,
    "arms": "base",
    "demos_per_task": 6,
    "probe_states": 0,
    "workers": 1,
}


def test_a_run_that_is_watched_stopped_and_given_more_starts_was_looked_at(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("besttake.verbs.diagnose.diagnosis.measure", Mock(side_effect=KeyboardInterrupt))
        diagnose(load_plan(None, {**FLAGS, "starts": "2"}), tmp_path / "run")
    for _ in range(2):  # the second result remembers the same two looks
        result = diagnose(load_plan(None, {**FLAGS, "starts": "4"}), tmp_path / "run")
        assert [c.verdict.looks for c in result.policies if c.verdict is not None] == [[4, 8]]
        assert result.policies[0].verdict is not None
        assert result.policies[0].verdict.looked == 2


@pytest.mark.slow
def test_a_policy_keeps_its_looks_when_an_env_is_added(cache: Path, tmp_path: Path) -> None:
    flags = {**FLAGS, "task": None}
    diagnose(load_plan(None, {**flags, "env": ["testbed:pick"], "starts": "2"}), tmp_path / "run")
    wider = diagnose(
        load_plan(None, {**flags, "env": ["testbed:pick", "testbed:drawer"], "starts": "3"}), tmp_path / "run"
    )
    assert wider.policies[0].verdict is not None
    assert wider.policies[0].verdict.looks == [2, 6]
