"""A whole diagnosis of LeRobot checkpoints: tiny ones, trained on nothing, of the testbed's robot."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from besttake import registry
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options, build
from besttake.policies.augmented import EpisodeHistory, retrieving
from besttake.takes.draws import Draw
from besttake.types import Start
from besttake.verbs.diagnose.diagnosis import diagnose

TESTBED = tiny.Robot(state_dim=20, action_dim=4, cameras=("wrist",))
ARMS = ["base", "cooled", "shuffled", "retrieve", "rerank"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    out = tmp_path_factory.mktemp("library") / "library"
    return build(registry.demos("testbed:push"), registry.encoder("pixels"), out, Options(max_demos=2))


def saved(directory, name):
    tiny.MAKERS[name](directory, robot=TESTBED)
    return f"lerobot:{directory}?width=2"


def plan(uri, library, **changes):
    settings = {"starts": "1", "seeds": 2, "arms": ARMS, "probe_states": 4, "workers": 1, "candidates": 2}
    return Plan(policy=[uri], env=["testbed:push"], demos=str(library.path), **{**settings, **changes})


@pytest.mark.parametrize("name", ["pi05", "smolvla", "diffusion"])
def test_a_policy_that_samples_plays_every_arm_and_is_probed(tmp_path, library, name):
    (tmp_path / "policy").mkdir()
    result = diagnose(plan(saved(tmp_path / "policy", name), library), tmp_path / "run")
    (cell,) = result.cells
    assert (cell.takes, cell.errors) == (2 * len(ARMS), 0)
    assert cell.dfe is not None
    assert not any("no " in note and " arm, " in note for note in result.notes)


def test_act_is_said_to_have_nothing_to_reuse_and_plays_base_alone(tmp_path, library):
    (tmp_path / "policy").mkdir()
    result = diagnose(plan(saved(tmp_path / "policy", "act"), library), tmp_path / "run")
    (cell,) = result.cells
    assert (cell.takes, cell.errors) == (2, 0)
    assert "deterministic: sampling has nothing to reuse" in result.notes
    for arm in ARMS[1:]:
        assert any(f"no {arm} arm" in note for note in result.notes)


def test_a_real_class_can_be_served_with_retrieval(tmp_path, library):
    """As `besttake serve --retrieve` runs it: another start than the base chunk's, from the same noise."""
    policy = registry.policy(saved(tmp_path, "smolvla"))
    augmented = retrieving(policy, library, RetrievalConfig(rule="current"))
    env = registry.env("testbed:push")
    env.reset(Start("push", 0))
    seen, draw = env.observe(("wrist",)), Draw(0, "push", 0, 0)
    chunk = augmented.follow(seen, draw, EpisodeHistory("push", [seen.state]))
    assert chunk.shape == (policy.spec.horizon, 4)
    assert not np.array_equal(chunk, policy.sample([seen], [draw])[0])
