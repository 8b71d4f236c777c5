from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from bench.zoo.recipes import FlowRecipe, read_recipe, train_recipe, view_of, windows

from besttake import registry
from besttake.errors import PlanError
from besttake.takes.draws import Draw
from besttake.testbed import demonstrations, network, seeds
from besttake.testbed.network import Weights
from besttake.testbed.policy import WEIGHTS
from besttake.testbed.tasks import TASKS, World
from besttake.testing import check_policy
from besttake.types import Observation
from small_policies import fitting
from small_policies import testbed as train

ROOT = Path(__file__).parent.parent.parent
ZOO = sorted((ROOT / "recipes" / "zoo").glob("*.yaml"))


def small(**changes):
    return FlowRecipe(**{"name": "trial", "demos_per_task": {"std": 1}, "tasks": ("pick",), **changes})


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_every_recipe_of_the_zoo_reads_and_says_what_is_wrong_with_its_policy(path):
    recipe = read_recipe(path)
    assert recipe.name == path.stem
    assert recipe.deficit


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: a\nwidht: 3\n", "`widht`"),
        ("name: a\nkeep: {during: 2}\n", "`keep` holds shares"),
        ("name: a\ndemos_per_task: {std: 0}\n", "`demos_per_task` needs"),
        ("name: a\nhide: [nose]\n", "`hide.0`"),
        ("[1, 2\n", "neither YAML nor JSON"),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line_that_names_the_file(tmp_path, text, complaint):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_recipe(path)
    assert complaint in str(caught.value)
    assert "bad.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_recipes_draw_only_on_training_starts(monkeypatch):
    seen = []

    def watch(task, seeds_given, style="std", stride=None):
        seen.append((task, seeds_given, style))
        return iter(())

    monkeypatch.setattr(demonstrations, "demonstrations", watch)
    with pytest.raises(PlanError, match="no demonstration is left"):
        windows(small(demos_per_task={"std": 1, "alt": 2}, tasks=("push", "stack")))
    assert seen == [(task, seeds.TRAINING, style) for task in ("push", "stack") for style in ("std", "alt")]


def test_a_phase_that_is_not_kept_is_not_learned_from():
    whole, _ = windows(small())
    lacking, _ = windows(small(keep={"during": 0.0}))
    assert 0 < len(lacking) < len(whole)
    in_the_air = whole[:, 6] > 0.06
    assert in_the_air.any()
    assert not (lacking[:, 6] > 0.06).any()


def test_hidden_parts_do_not_reach_the_network_even_through_differences():
    world = World("pick")
    world.reset(0)
    state = world.state()
    moved = network.perceive(state[None], np.array([[0.1, 0.05, 0, 0, 0, 0]], np.float32))[0]
    seen = view_of(small(hide=("object",)))["state_map"]
    assert np.array_equal(state @ seen, moved @ seen)
    assert not np.array_equal(state @ view_of(small())["state_map"], moved @ view_of(small())["state_map"])


def test_a_recipe_policy_with_the_weights_of_a_shipped_one_acts_alike(tmp_path):
    """The file format, the view and the blur say together what `testbed:mid` does."""
    shipped = Weights.read(WEIGHTS / "mid.safetensors")
    metadata = {"horizon": "10", "replan": "8", "instructions": "[]"}
    path = train.write_weights(tmp_path / "mid.safetensors", {**shipped.arrays, **view_of(small())}, metadata)
    world = World("pick")
    world.reset(5)
    given = [Observation({}, world.state(), "")], [Draw(0, "pick", 5, 0)]
    assert np.allclose(
        registry.policy(f"flow:{path}").sample(*given), registry.policy("testbed:mid").sample(*given), atol=1e-5
    )


def test_the_command_writes_a_policy_that_keeps_the_contract(tmp_path, monkeypatch):
    """Without torch: the fit is replaced by layers of the right shape."""

    def unfitted(inputs, chunks, *, width, **_):
        rng = np.random.default_rng(0)
        sizes = [chunks.shape[1] + inputs.shape[1] + 16, *[width] * 3, chunks.shape[1]]
        layers: dict[str, np.ndarray] = {}
        for i, (a, b) in enumerate(pairwise(sizes)):
            layers |= {f"w{i}": rng.normal(0, a**-0.5, (a, b)).astype(np.float16), f"b{i}": np.zeros(b, np.float16)}
        return layers, 1.0

    monkeypatch.setattr(fitting, "fit", unfitted)
    path = train_recipe(small(width=32, replan=4), tmp_path / "trial.safetensors")
    policy = registry.policy(f"flow:{path}")
    assert policy.spec.replan == 4
    check_policy(policy)


def test_a_recipe_trains_with_torch_and_twice_to_the_same_policy(tmp_path):
    pytest.importorskip("torch")
    recipe = small(width=32, steps=20)
    first, second = (train_recipe(recipe, tmp_path / f"{i}.safetensors") for i in range(2))
    policies = [registry.policy(f"flow:{path}") for path in (first, second)]
    assert policies[0].spec.fingerprint == policies[1].spec.fingerprint
    assert policies[0].spec.horizon == 10


def test_a_plain_recipe_learns_from_the_same_windows_as_a_shipped_policy():
    recipe = small(tasks=TASKS)
    states, chunks = windows(recipe)
    expected = train._windows(train.Recipe("x", "std", 1, 1, 1))
    assert np.array_equal(states, expected[0])
    assert np.array_equal(chunks, expected[1])
