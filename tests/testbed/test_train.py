import gc
import inspect
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from besttake.testbed import demonstrations, scene, seeds, train
from besttake.testbed.fingerprints import without_words
from besttake.testbed.network import Weights
from besttake.testbed.policy import WEIGHTS
from besttake.testbed.train import RECIPES, fingerprint


@pytest.mark.parametrize("name", RECIPES)
def test_shipped_weights_are_those_of_the_script(name):
    weights = Weights.read(WEIGHTS / f"{name}.safetensors")
    assert weights.metadata["fingerprint"] == fingerprint(RECIPES[name])
    assert json.loads(weights.metadata["recipe"]) == asdict(RECIPES[name])


@pytest.mark.parametrize("name", RECIPES)
def test_shipped_weights_are_small_and_half_precision(name):
    path = WEIGHTS / f"{name}.safetensors"
    assert path.stat().st_size < 1_000_000
    arrays = Weights.read(path).arrays
    assert {str(a.dtype) for n, a in arrays.items() if n[0] in "wb"} == {"float16"}


def test_the_fingerprint_follows_the_recipe_and_the_code_but_not_the_words(monkeypatch):
    recipe = RECIPES["mid"]
    before = fingerprint(recipe)
    assert fingerprint(replace(recipe, seed=1)) != before
    assert fingerprint(replace(recipe, steps=recipe.steps + 1)) != before
    assert without_words('"""Words."""\n# more\n\nx = 1\n') == without_words("x = 1\n") == "x = 1"
    assert without_words("x = 2") != without_words("x = 1")
    monkeypatch.setattr(scene, "xml", lambda task: f"<mujoco model='{task}'/>")
    assert fingerprint(recipe) != before


def test_threads_that_read_source_at_the_same_time_do_not_disturb_each_other():
    """Envs may be made in threads; a collection that runs a finaliser lets another thread into Python's parser."""
    source, threshold = inspect.getsource(scene), gc.get_threshold()

    def let_others_in(phase, info):
        time.sleep(0)

    gc.callbacks.append(let_others_in)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(3) as pool:
            read = set(pool.map(without_words, [source] * 30))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_others_in)
    assert read == {without_words(source)}


def test_training_draws_only_on_training_starts(monkeypatch):
    seen = []

    def watch(task, seeds_given, style="std", stride=None):
        seen.append(seeds_given)
        return iter(())

    monkeypatch.setattr(demonstrations, "demonstrations", watch)
    train._windows(RECIPES["few"])
    assert seen == [seeds.TRAINING] * 4
