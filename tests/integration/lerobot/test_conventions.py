"""What a checkpoint was trained on, read off the statistics that LeRobot saves with it."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import tiny
import torch

from besttake import registry
from besttake.conventions import BRIDGE_STATE, CLOSES_UP, MANISKILL_BRIDGE, METRIC, OPENS_UP, Gripper, check_compatible
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.types import EnvSpec, Observation

WHOLE = tiny.statistics


def of_bridge(robot):
    """Statistics with the ranges of Bridge: small steps in metres, a gripper from 0 to 1, a pad in the state."""
    stats = WHOLE(robot)
    ends = {"min": [-0.05] * 6 + [0.0], "max": [0.05] * 6 + [1.0]}
    stats["action"] |= {name: torch.tensor(values) for name, values in ends.items()}
    ends = {"min": [-0.4] * 3 + [-3.0] * 3 + [0.0, 0.05], "max": [0.5] * 3 + [3.0] * 3 + [0.0, 1.05]}
    stats["observation.state"] |= {name: torch.tensor(values) for name, values in ends.items()}
    return stats


@pytest.fixture(scope="module")
def bridge(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bridge")
    with mock.patch.object(tiny, "statistics", of_bridge):
        tiny.make_pi0(directory)
        yield directory


def env(**changes):
    means = replace(MANISKILL_BRIDGE, **changes)
    opens = -1 if means.gripper.open == -1 else 1
    cameras = ("agentview", "wrist")
    return EnvSpec("sim", (), range(1), 7, 8, cameras, "wrist", gripper_dim=6, gripper_open=opens, convention=means)


def test_a_checkpoint_says_what_it_was_trained_on_and_is_refused_where_that_differs(bridge):
    spec = registry.policy(f"lerobot:{bridge}").spec
    assert (spec.convention.gripper, spec.convention.state, spec.convention.action) == (
        Gripper(0, 1), BRIDGE_STATE, METRIC,
    )  # fmt: skip
    with pytest.raises(ComponentError, match=r"commands the gripper by 0 to 1.*add \?gripper=simpler"):
        check_compatible(spec, env(state=BRIDGE_STATE))
    turned = registry.policy(f"lerobot:{bridge}?gripper=simpler").spec
    assert turned.convention.gripper == OPENS_UP
    with pytest.raises(ComponentError, match=r"add \?state=bridge to the env's URI"):
        check_compatible(turned, env())
    check_compatible(turned, env(state=BRIDGE_STATE))
    assert turned.fingerprint != spec.fingerprint


def test_the_gripper_is_thresholded_and_a_warm_start_goes_the_other_way(bridge):
    raw, ours = (registry.policy(f"lerobot:{bridge}?width=2{more}") for more in ("", "&gripper=libero"))
    rng = np.random.default_rng(0)
    pictures = {camera: rng.integers(0, 256, (64, 64, 3), np.uint8) for camera in ("agentview", "wrist")}
    seen = [Observation(pictures, np.zeros(8, np.float32), "push") for _ in range(2)]
    draws = [Draw(0, "task", 0, seed) for seed in range(2)]
    before, after = raw.sample(seen, draws), ours.sample(seen, draws)
    assert np.array_equal(before[..., :6], after[..., :6])
    assert np.array_equal(after[..., 6], CLOSES_UP.command(before[..., 6]))
    chunk = rng.uniform(-0.04, 0.04, (2, *after.shape[1:])).astype(np.float32)
    closed, opened = chunk.copy(), chunk.copy()
    closed[..., 6], opened[..., 6] = 1.0, 0.0  # LIBERO's command that closes, and what the checkpoint means by closed
    assert torch.equal(ours.latent(seen, closed), raw.latent(seen, opened))
