"""The hub and the trackers: EnvHub's envs, results for a model's page, takes and verdicts in real trackers, offline."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml

if find_spec("lerobot") is None:
    pytest.skip("runs in the environment of tests/integration/lerobot", allow_module_level=True)
# Before anything imports the hub's client: a cache of our own, and no network.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": tempfile.mkdtemp(prefix="besttake-hf-"), "OMP_NUM_THREADS": "1"}

from besttake import registry, testing
from besttake.cli import main as cli
from besttake.config import Plan
from besttake.errors import ComponentError, PlanError
from besttake.result import Result
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.export import ExportOptions, export

REACH = '''
import gymnasium, numpy as np
class Reach(gymnasium.Env):
    metadata, task_description, _max_episode_steps = {"render_fps": 5}, "move to the middle", 12
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    observation_space = gymnasium.spaces.Dict(
        agent_pos=gymnasium.spaces.Box(-9, 9, (2,)), pixels=gymnasium.spaces.Box(0, 255, (32, 32, 3), np.uint8))
    def reset(self, seed=None, options=None):
        self.place = np.random.default_rng(seed).uniform(-1, 1, 2)
        return self.seen(), {}
    def step(self, action):
        self.place = np.clip(self.place + 0.2 * action, -1, 1)
        return self.seen(), 0.0, False, False, {"is_success": bool(np.abs(self.place).max() < 0.15)}
    def seen(self):
        picture = np.zeros((32, 32, 3), np.uint8)
        x, y = (15 * (self.place + 1)).astype(int)
        picture[y, x] = 255
        return {"agent_pos": self.place.copy(), "pixels": picture}
def make_env(n_envs=1, use_async_envs=False):
    return gymnasium.vector.SyncVectorEnv([Reach] * n_envs)
'''  # fmt: skip
POLICY = """
import numpy as np
from besttake import FunctionPolicy
def act(observation, draw, noise):
    return [np.clip(-2 * observation.state + 2 * noise * draw.normal((2,)), -1, 1)] * 3
def make():
    return FunctionPolicy(act, horizon=3, action_dim=2)
"""


@pytest.fixture(scope="module")
def hub():
    """An env in the hub's cache, as if it had been downloaded."""
    root, commit = Path(os.environ["HF_HOME"]) / "hub" / "models--besttake--reach", "0" * 40
    files = {root / "refs" / "main": commit, root / "snapshots" / commit / "env.py": REACH}
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return "hub:besttake/reach"


@pytest.fixture
def run(tmp_path):
    plan = Plan(policy="testbed:half", env="testbed:drawer", starts=3, seeds=2, arms=("base", "cooled"),
                check_states=0, probe_states=0, demos_per_task=2, workers=1)  # fmt: skip
    return plan, diagnose(plan, tmp_path / "run")


def test_an_env_of_the_hub_keeps_the_contract_once_its_code_is_trusted(hub, monkeypatch):
    monkeypatch.setattr(registry, "_TRUSTED", set())
    with pytest.raises(ComponentError, match="runs code from its repository: read it, then allow `trust_remote_code`"):
        registry.env(hub)
    with pytest.raises(ComponentError, match="trust_remote_code"):
        registry.env(f"{hub}?trust_remote_code=true")
    env = registry.env(hub, trust_remote_code=True)
    assert "starts" in testing.check_env(env, steps=3)
    assert (env.spec.name, env.spec.tasks[0].horizon, env.spec.fps) == (hub, 12, 5)
    assert env.spec.tasks[0].instruction == "move to the middle"
    env.close()


def test_a_file_may_not_name_an_env_of_the_hub_until_it_is_trusted(hub, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_TRUSTED", set())
    named = registry.FromFile(hub, tmp_path / "result.json")
    with pytest.raises(ComponentError, match="names code to run"):
        registry.env(named)
    registry.trust(tmp_path)
    registry.env(named).close()


def test_a_diagnosis_plays_it_in_its_workers(hub, monkeypatch, tmp_path):
    (tmp_path / "hub_policy.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = {"policy": "python:hub_policy:make", "env": hub, "starts": 6, "seeds": 2, "workers": 1}
    monkeypatch.setattr(registry, "_TRUSTED", set())
    with pytest.raises(ComponentError, match="trust_remote_code"):
        diagnose(Plan(**plan), tmp_path / "run")
    result = diagnose(Plan(**plan, trust_remote_code=True), tmp_path / "run")
    (cell,) = result.cells
    assert (cell.errors, cell.takes) == (0, 24)
    assert cell.headroom.pass_1.value > 0


def test_results_are_written_as_the_hub_reads_them(run, tmp_path):
    from huggingface_hub import parse_eval_result_entries

    _, result = run
    with pytest.raises(PlanError, match="`benchmark` is missing"):
        export(tmp_path / "run", ExportOptions(hub=tmp_path / "page"))
    export(tmp_path / "run", ExportOptions(hub=tmp_path / "page", benchmark="org/bench"))
    data = yaml.safe_load((tmp_path / "page" / ".eval_results" / "besttake.yaml").read_text())
    (entry,) = parse_eval_result_entries(data)
    single = result.cells[0].headroom.pass_1
    assert (entry.dataset_id, entry.task_id, entry.date) == ("org/bench", "drawer", result.created)
    assert entry.value == pytest.approx(100 * single.value, abs=0.01)
    assert f"[{100 * single.low:.1f}, {100 * single.high:.1f}]; 3 starts x 2 seeds in testbed:drawer" in entry.notes
    assert result.policies[0].verdict.headline[:12] in (tmp_path / "page" / "besttake.md").read_text()


def logged(tracker, place):
    """What the tracker kept, in order."""
    if tracker == "trackio":
        from trackio.sqlite_storage import SQLiteStorage

        return SQLiteStorage.get_logs("besttake", "tracked")
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store, kept = DataStore(), []
    (file,) = place.glob("wandb/offline-run-*/*.wandb")
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        items = record.history.item
        kept += [{each.key or each.nested_key[0]: json.loads(each.value_json) for each in items}] if items else []
    return kept


@pytest.mark.parametrize("tracker", ["trackio", "wandb"])
def test_takes_and_verdicts_are_tracked_offline(tracker, tmp_path, monkeypatch, capsys):
    out = tmp_path / "tracked"
    words = "diagnose --policy testbed:half --env testbed:drawer --starts 3 --seeds 2 --arms base,cooled --json"
    words += f" --probe-states 0 --check-states 0 --demos-per-task 2 --workers 1 --track {tracker} -o {out}"
    monkeypatch.setattr(sys, "argv", ["besttake", *words.split()])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    json.loads(capsys.readouterr().out)  # trackers talk, but not into the answer
    *takes, verdict = logged(tracker, out)
    assert [one["takes"] for one in takes] == list(range(1, 13))
    base = [one["testbed:half/base/take"] for one in takes if "testbed:half/base/take" in one]
    cell = Result.load(out).policies[0]
    assert np.mean(base) == pytest.approx(cell.headroom.pass_1.value) == takes_mean(takes)
    assert verdict["verdict/testbed:half/pass@1"] == pytest.approx(cell.headroom.pass_1.value)
    assert verdict["verdict/testbed:half/recommended gain low"] == pytest.approx(cell.verdict.gain.low)


def takes_mean(takes):
    return [one["testbed:half/base/success"] for one in takes if "testbed:half/base/success" in one][-1]
