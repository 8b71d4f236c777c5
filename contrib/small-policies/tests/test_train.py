import json
from dataclasses import asdict, replace

import pytest

from besttake.testbed import demonstrations, scene, seeds
from besttake.testbed.fingerprints import without_comments
from besttake.testbed.network import Weights
from besttake.testbed.policy import WEIGHTS
from small_policies import testbed as train
from small_policies.testbed import RECIPES, fingerprint


@pytest.mark.parametrize("name", RECIPES)
def test_shipped_weights_are_those_of_the_script(name):
    weights = Weights.read(WEIGHTS / f"{name}.safetensors")
    assert weights.metadata["fingerprint"] == fingerprint(RECIPES[name])
    assert json.loads(weights.metadata["recipe"]) == asdict(RECIPES[name])


def test_the_fingerprint_follows_the_recipe_and_the_code_but_not_the_words(monkeypatch):
    recipe = RECIPES["mid"]
    before = fingerprint(recipe)
    assert fingerprint(replace(recipe, seed=1)) != before
    assert fingerprint(replace(recipe, steps=recipe.steps + 1)) != before
    assert without_comments('"""Words."""\n# more\n\nx = 1\n') == without_comments("x = 1\n") == "x = 1"
    assert without_comments("x = 2") != without_comments("x = 1")
    monkeypatch.setattr(scene, "xml", lambda task: f"<mujoco model='{task}'/>")
    assert fingerprint(recipe) != before


def test_training_draws_only_on_training_starts(monkeypatch):
    seen = []

    def watch(task, seeds_given, style="std", stride=None):
        seen.append(seeds_given)
        return iter(())

    monkeypatch.setattr(demonstrations, "demonstrations", watch)
    train._windows(RECIPES["few"])
    assert seen == [seeds.TRAINING] * 4
