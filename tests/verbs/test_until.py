"""A run until decided: the order is the seed's, the budget holds, and nothing but the takes decides what comes next."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from besttake.config import load_plan
from besttake.errors import PlanError, RunError
from besttake.measure.looks import random_order
from besttake.measure.partial import read_round
from besttake.result import Result
from besttake.takes.store import Store
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.export import ExportOptions, export
from besttake.verbs.runs import summarise

BUDGET = 240
PLAN: dict[str, Any] = {
    "policy": "testbed:half", "env": "testbed", "task": ["pick", "push"], "until": "decided", "budget": BUDGET,
    "arms": "base,cooled,shuffled,retrieve", "stride": 8, "probe_states": 0, "check_states": 16,
    "demos_per_task": 5, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    out = tmp_path_factory.mktemp("until") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("besttake.verbs.diagnose.diagnosis.clear", lambda _: None)  # what was seen last stays
        diagnose(load_plan(None, PLAN), out)
    return out


def decisions(out: Path) -> tuple[str, list[Any]]:
    result = Result.load(out / "result.json")
    cells = [
        cell.model_dump(include={"policy", "group", "starts", "takes", "verdict", "path"}) for cell in result.cells
    ]
    return result.digest, [*cells, *(cell.model_dump(include={"verdict", "path"}) for cell in result.policies)]


def test_those_who_watch_see_what_the_run_decides_by(run: Path) -> None:
    """The cells of the last round give the path and the answers of the result."""
    cells = read_round(run)
    result = Result.load(run / "result.json")
    assert [one.cell.group for one in cells] == ["*", *(cell.group for cell in result.cells)]
    for seen, final in zip(cells, [*result.policies, *result.cells], strict=True):
        assert seen.cell.path is not None
        assert final.path is not None
        assert seen.cell.path.settled == final.path.settled
        assert "gain" in seen.findings
        for name, finding in seen.findings.items():
            assert finding == final.verdict.questions[name]


def test_the_budget_is_not_passed_and_every_cell_says_why_it_stopped(run: Path) -> None:
    result = Result.load(run / "result.json")
    assert BUDGET - 9 < result.cost.takes <= BUDGET
    for cell in (*result.cells, *result.policies):
        assert cell.path
        assert cell.path.stopped in ("decided", "budget")
        assert bool(cell.path.unsettled) == (cell.path.stopped == "budget")
        assert cell.missing == 0
        assert all(takes <= cell.path.takes for takes in cell.path.settled.values())
    assert sum(cell.takes for cell in result.cells) == result.cost.takes
    summary = summarise(run)
    assert (summary.missing, summary.planned) == (0, summary.done)


def test_starts_come_in_the_order_of_the_seed_across_tasks(run: Path) -> None:
    with Store.open(run) as store:
        seen = {(row.key.env, row.key.task, row.key.start) for row in store.rows() if row.key.arm == "base"}
    offered = [("testbed", task, start) for task in ("pick", "push") for start in range(500)]
    assert seen == set(random_order(offered, 3)[: len(seen)])
    assert {task for _, task, _ in seen} == {"pick", "push"}
    assert seen != set(random_order(offered, 4)[: len(seen)])


@pytest.mark.slow
def test_workers_and_batch_change_neither_takes_nor_decision(run: Path, tmp_path: Path) -> None:
    diagnose(load_plan(None, {**PLAN, "workers": 1, "batch": 5}), tmp_path / "run")
    assert decisions(tmp_path / "run") == decisions(run)


def test_a_run_goes_on_with_a_larger_budget_but_not_in_another_order(run: Path) -> None:
    with pytest.raises(RunError, match="holds another plan: its until"):
        diagnose(load_plan(None, {**PLAN, "starts": 100}), run)


@pytest.mark.parametrize(
    ("name", "value"), [("seeds", 4), ("best_of", 2), ("worth", 5), ("scorer", "manifold"), ("window", "episode")]
)
def test_what_its_answers_rest_on_may_not_change_when_it_goes_on(run: Path, name: str, value: object) -> None:
    with pytest.raises(RunError, match=f"holds another plan: (its {name} is|only one of the two plays on)"):
        diagnose(load_plan(None, {**PLAN, name: value}), run)


def test_a_budget_of_less_than_one_start_is_refused_before_the_first_take(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(PlanError, match=r"`budget`: testbed:half gets 1 takes of it, but one start needs \d+"):
        diagnose(load_plan(None, {**PLAN, "budget": 1}), tmp_path / "run")


def test_a_smaller_budget_drops_no_take_that_is_there(tmp_path: Path, cache: Path) -> None:
    plan = {**PLAN, "task": "pick", "arms": "base", "budget": 60, "workers": 1}
    first = diagnose(load_plan(None, plan), tmp_path / "run")
    second = diagnose(load_plan(None, {**plan, "budget": 20}), tmp_path / "run")
    assert second.policies[0].takes == first.policies[0].takes
    assert export(tmp_path / "run", ExportOptions(csv=True), tmp_path / "tables")


def test_a_run_that_asks_what_no_take_can_settle_ends_and_says_so(tmp_path: Path, cache: Path) -> None:
    plan = {**PLAN, "task": "pick", "arms": "base", "seeds": 1, "budget": 60, "workers": 1}
    result = diagnose(load_plan(None, plan), tmp_path / "run")
    for cell in (*result.cells, *result.policies):
        assert cell.path
        assert (cell.path.stopped, cell.path.unsettled, cell.takes) == ("hopeless", ["takes"], 10)
        assert cell.verdict
        assert cell.verdict.takes.reason == "one-take"


@pytest.mark.slow
def test_a_run_killed_five_times_ends_with_the_same_takes_and_the_same_decision(run: Path, tmp_path: Path) -> None:
    out, rng = tmp_path / "run", random.Random(1)
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(PLAN))
    command = [sys.executable, "-m", "besttake", "diagnose", str(plan), "-o", str(out), "-q"]

    def kept() -> int:
        return len(list((out / "takes").glob("*/*.take"))) if out.exists() else 0

    for moment in sorted(rng.sample(range(20, BUDGET - 40), 5)):
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and kept() < moment:
            time.sleep(0.02)
        assert process.poll() is None, "the run ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True)
    assert decisions(out) == decisions(run)
