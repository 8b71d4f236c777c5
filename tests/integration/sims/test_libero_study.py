"""The study of docs/libero-object.md at its smallest: real simulator, committed policy, scripted library, diagnosis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from besttake import registry, testing
from besttake.config import load_plan
from besttake.result import Result
from besttake.takes.draws import Draw
from besttake.types import Observation, Start
from scripted_libero.train import RECIPES, TASKS, FlowRecipe, train
from scripted_libero.windows import Episodes

pytestmark = pytest.mark.usefixtures("assets")

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "recipes" / "libero-object.yaml"
WEIGHTS = ROOT / "recipes" / "libero-object"


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_committed_policies_keep_the_contract_on_what_libero_shows(name: str) -> None:
    policy = registry.policy(f"flow:{WEIGHTS / name}.safetensors")
    env = registry.env(f"libero:object?task={TASKS}&state=objects")
    assert policy.spec.state_dim == env.spec.state_dim
    assert policy.spec.action_dim == env.spec.action_dim
    task = env.spec.tasks[0]
    env.reset(Start(task.name, env.spec.tuning[0]))
    seen = env.observe(())
    others = [Observation({}, seen.state + 0.01 * row, each.instruction) for row, each in enumerate(env.spec.tasks)]
    assert "warm" in testing.check_policy(policy, observations=others, atol=0.0)
    assert policy.sample([seen], [Draw(0, "t", 0, 0)]).shape == (1, policy.spec.horizon, 7)
    env.close()


def test_a_tiny_diagnosis_of_a_committed_policy_is_complete(tmp_path: Path) -> None:
    plan = {
        **yaml.safe_load(RECIPE.read_text()), "policy": [f"flow:{WEIGHTS / 'few'}.safetensors"],
        "env": "libero:object?task=2&state=objects&size=48&horizon=170",
        "demos": "libero-scripted:object?task=2&state=objects&size=48&demos_per_task=2&stride=20", "starts": "2",
        "seeds": 2, "arms": ["base", "retrieve"], "stride": 40, "probe_states": 6,
    }  # fmt: skip
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    out = tmp_path / "run"
    command = [sys.executable, "-m", "besttake", "diagnose", str(tmp_path / "plan.yaml"), "-o", str(out)]
    environment = {**os.environ, "BESTTAKE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    result = Result.load(out / "result.json")
    assert result.cost.takes == 2 * 2 * 2
    assert result.cost.errors == 0
    assert result.library is not None
    assert result.library["demos"] == 2
    cell = result.policies[0]
    assert (cell.starts, cell.seeds, cell.missing, cell.window) == (2, 2, 0, "full")
    assert cell.headroom is not None
    assert cell.headroom.pass_n.value
    assert cell.selectors is not None
    assert cell.selectors.scored["manifold"]["full"].gain.value is not None
    assert cell.arms is not None
    assert set(cell.arms.arms) == {"base", "retrieve"}
    assert cell.dfe is not None
    assert cell.dfe.ratio.value is not None
    assert cell.verdict is not None
    assert cell.verdict.headline


def test_training_twice_gives_the_same_policy(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    episodes = Episodes(
        states=rng.normal(size=(60, 18)).astype(np.float32), actions=rng.uniform(-1, 1, (60, 7)).astype(np.float32),
        lengths=np.array([30, 30]), tasks=np.array([0, 1]), starts=np.array([3000, 3000]),
        instructions=("put it here", "put it there"),
    )  # fmt: skip
    recipe = FlowRecipe("tiny", demos_per_task=1, steps=20, width=32)
    made = [registry.policy(f"flow:{train(recipe, episodes, tmp_path / word)}") for word in ("one", "two")]
    assert made[0].spec.fingerprint == made[1].spec.fingerprint
    assert (made[0].spec.horizon, made[0].spec.state_dim, made[0].spec.replan) == (16, 18, 8)


def test_the_recipe_is_a_plan_whose_policies_were_made_by_the_committed_recipes() -> None:
    plan = load_plan(RECIPE, {})
    names = {Path(uri.partition(":")[2]).stem for uri in plan.policy}
    assert names == set(RECIPES)
    from besttake.testbed.network import Weights

    for name, recipe in RECIPES.items():
        kept = json.loads(Weights.read(WEIGHTS / f"{name}.safetensors").metadata["recipe"])
        assert kept == vars(recipe)
    assert all(f"task={TASKS}&" in uri for uri in (*plan.env, plan.demos or ""))
