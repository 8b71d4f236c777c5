"""What can be said of `openvla:` without its model; tests/integration/openvla has the rest."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from besttake.conventions import CLOSES_UP, OPENNESS, Gripper
from besttake.errors import ComponentError, MissingExtra
from openvla_policy import convention_of, make, refuse_oft

without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rest": ""}, "names no checkpoint"),
        ({}, "runs code from its checkpoint: read it, then allow `trust_remote_code`"),
        ({"trust_remote_code": "false"}, "runs code from its checkpoint"),
        ({"gripper": "soft"}, "gripper=soft is not one of raw, libero, simpler"),
        ({"dtype": "int8"}, "dtype=int8 is not one of float32, bfloat16, float16"),
        ({"temperature": "-1"}, "temperature=-1 is not a number of at least 0"),
    ],
)
def test_code_is_not_trusted_by_default_and_wrong_options_are_said(options, words):
    with pytest.raises(ComponentError, match=words):
        make(**{"rest": "org/name", **options})


def test_the_statistics_of_a_checkpoint_tell_what_its_gripper_means():
    def stats(low, high):
        return {"action": {"min": [-0.5] * 6 + [low], "max": [0.5] * 6 + [high], "q01": [0.0] * 7, "q99": [0.0] * 7}}

    assert convention_of(stats(0.0, 1.0), "raw").gripper == OPENNESS
    assert convention_of(stats(-1.0, 1.0), "raw").gripper == Gripper(-1, 1)
    assert convention_of(stats(0.0, 1.0), "libero").gripper == CLOSES_UP
    assert convention_of({"action": {"q01": [0.0] * 7, "q99": [1.0] * 7}}, "raw").gripper == OPENNESS
    assert convention_of({}, "raw").gripper is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("action_head--150000_checkpoint.pt", ""),
        ("modeling_prismatic.py", "def predict_action(self, action_head=None)"),
    ],
)
def test_an_oft_is_refused_with_the_way_that_it_can_be_run(tmp_path, file, text):
    refuse_oft("openvla:x", tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ComponentError, match=r"openvla:x: an OpenVLA-OFT; serve it .* vla-eval:ws://host:port"):
        refuse_oft("openvla:x", tmp_path)


@without_torch
def test_a_missing_library_names_the_extra():
    with pytest.raises(MissingExtra, match=r"pip install 'besttake\[vision\]'"):
        make("org/name", trust_remote_code="true")


def test_the_versions_it_asks_for_are_those_that_the_encoders_take():
    root = Path(__file__).parents[3]
    own = tomllib.loads((root / "contrib/openvla/pyproject.toml").read_text())["project"]["dependencies"]
    theirs = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]["vision"]
    pinned, least = (
        [int(n) for n in re.findall(r"\d+", next(name for name in names if name.startswith("transformers")))]
        for names in (own, theirs)
    )
    assert pinned >= least
