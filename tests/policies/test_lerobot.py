"""What can be said of `lerobot:` where LeRobot is not installed; tests/integration/lerobot has the rest."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

from besttake import registry
from besttake.errors import ComponentError, MissingExtra
from besttake.policies.lerobot_checkpoint import settle_dtype
from besttake.policies.lerobot_families import Diffusion

without_lerobot = pytest.mark.skipif(importlib.util.find_spec("lerobot") is not None, reason="lerobot is installed")


@without_lerobot
def test_a_missing_library_names_the_extra():
    with pytest.raises(MissingExtra, match=r"lerobot:org/name needs lerobot.*pip install 'besttake\[lerobot\]'"):
        registry.policy("lerobot:org/name")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("lerobot:", "names no checkpoint"),
        ("lerobot:org/name?map=image", "map=image is not a list of pairs"),
        ("lerobot:org/name?state=a:b", "state=a:b is not a list of indexes such as 0:3,7"),
        ("lerobot:org/name?width=wide", "width=wide is not a whole number of at least 1"),
        ("lerobot:org/name?colour=red", "no option colour"),
        ("lerobot:org/name?dtype=int8", "dtype=int8 is not one of float32, bfloat16, float16"),
    ],
)
def test_wrong_options_are_said_before_anything_is_loaded(uri, words):
    with pytest.raises(ComponentError, match=words):
        registry.policy(uri)


def test_a_class_that_does_not_know_a_precision_is_one_line() -> None:
    with pytest.raises(ComponentError, match="dtype=float16: a pi0 policy computes in float32 or bfloat16"):
        settle_dtype(SimpleNamespace(type="pi0", dtype="float32", device="cpu"), "float16", "x")
    with pytest.raises(ComponentError, match="dtype=float32: a wall_x policy computes in bfloat16 alone"):
        settle_dtype(SimpleNamespace(type="wall_x", device="cpu"), "float32", "x")


def test_a_diffusion_latent_repeats_the_ends_of_the_chunk_where_it_has_none():
    family = Diffusion(latent=(8, 1), horizon=4, replan=4, past=1)
    chunk = np.array([[[1.0], [2.0], [3.0], [4.0]]])
    np.testing.assert_array_equal(family.place(chunk)[0, :, 0], [1, 1, 2, 3, 4, 4, 4, 4])
