from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from besttake.config import Plan, load_plan
from besttake.demos.resolve import open_or_build
from besttake.errors import LibraryError
from besttake.policies.base import Policy
from besttake.types import EnvSpec, TaskSpec
from besttake.verbs.diagnose import diagnosis, policies
from besttake.verbs.diagnose.setup import _retrieval, load_policy

SLIDES = '''
import numpy as np

from besttake.types import Demo


class Slides:
    """Straight motions: no gripper, no turn, so no event but the start."""

    name, fingerprint, camera, fps = "slides", "1", "top", 10.0
    gripper_dim, gripper_open, eef_dims = None, None, (0, 1)

    def __iter__(self):
        for number in range(3):
            rng = np.random.default_rng(number)
            actions = np.tile(rng.uniform(0.5, 1, 2), (12, 1)).astype(np.float32)
            frames = rng.integers(0, 256, (12, 16, 16, 3), np.uint8)
            yield Demo(str(number), "slide", frames, np.arange(12), np.cumsum(actions, axis=0), actions)


make = Slides
'''


def test_demonstrations_without_events_are_matched_by_frame_unless_another_rule_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module
) -> None:
    module("slide_demos", SLIDES)
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path / "cache"))
    library = open_or_build("python:slide_demos:make")
    env = EnvSpec(
        name="slide", tasks=(TaskSpec("slide", "slide", "slide", horizon=12),), starts=range(9), tuning=range(0),
        action_dim=2, state_dim=2, cameras=("top",), score_camera="top", eef_dims=(0, 1),
    )  # fmt: skip
    plan = Plan(policy="p", env="e", starts=4)
    assert _retrieval(plan, {"e": env}, library).rule == "frame"
    with pytest.raises(LibraryError, match="no events beyond episode starts; retrieve by `rule` frame"):
        _retrieval(load_plan(None, {"policy": "p", "env": "e", "rule": "next"}), {"e": env}, library)


def test_demonstrations_that_do_not_exist_are_reported_before_a_policy_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "load_policy", lambda *_: pytest.fail("the policy was loaded"))
    plan = Plan(policy="testbed:half", env="testbed:pick", demos="data/tpyo", starts=2)
    with pytest.raises(LibraryError, match="data/tpyo is neither a library"):
        diagnosis.diagnose(plan, tmp_path / "run")


def test_of_several_policies_only_one_is_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Policy]] = []

    def load(plan: Plan, uri: str) -> Policy:
        gc.collect()
        assert [policy() for policy in held if policy() is not None] == []
        policy = load_policy(plan, uri)
        held.append(weakref.ref(policy))
        return policy

    for module in (diagnosis, policies):
        monkeypatch.setattr(module, "load_policy", load)
    plan = {"policy": ["testbed:half", "testbed:few", "testbed:mid"], "env": "testbed:pick", "starts": 1, "seeds": 1}
    diagnosis.diagnose(load_plan(None, plan | {"arms": "base,cooled", "demos_per_task": 2}), tmp_path / "run")
    assert len(held) == 6, "each is loaded to be checked, and again to be played"
