"""What the simulator adapters say where their library is not installed; the rest is in tests/integration/sims."""

from __future__ import annotations

import importlib.util

import pytest

from besttake import registry
from besttake.envs import vla_eval
from besttake.errors import ComponentError, MissingExtra

NEEDS = [
    ("maniskill:carrot?render=none", "mani_skill", "maniskill"),
    ("vla-eval:libero:LIBEROBenchmark", "vla_eval", "vla-eval"),
    ("vla-eval:coke-can", "vla_eval", "vla-eval"),
    ("gym:MountainCarContinuous-v0", "gymnasium", "gym"),
]


@pytest.mark.parametrize(("uri", "library", "extra"), NEEDS)
def test_a_missing_library_gives_one_line_that_names_the_extra(uri: str, library: str, extra: str) -> None:
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    with pytest.raises(MissingExtra, match=rf"pip install 'besttake\[{extra}\]'") as caught:
        registry.env(uri)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("maniskill:cup", "there are carrot, spoon, stack"),
        ("maniskill:carrot?render=hand", "render=hand is not one of none, cpu, gpu"),
        ("vla-eval:libero", "name a benchmark as MODULE:CLASS"),
        ("vla-eval:coke-can?orientation=odd", "orientation=odd is not one of horizontal, vertical, standing"),
    ],
)
def test_mistakes_are_told_before_anything_is_imported(uri: str, told: str) -> None:
    with pytest.raises(ComponentError, match=told):
        registry.env(uri)


def test_the_coke_can_of_each_orientation_has_the_same_grid() -> None:
    horizontal, standing = vla_eval.coke_can(), vla_eval.coke_can(orientation="standing", overlay="can.png")
    assert horizontal["init_config"] == standing["init_config"]
    assert horizontal["env_build_kwargs"]["lr_switch"]
    assert standing["env_build_kwargs"]["rgb_overlay_path"] == "can.png"
