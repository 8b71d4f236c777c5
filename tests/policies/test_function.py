"""A policy made of one function: what its parameters say, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import besttake
from besttake import FunctionPolicy, registry, testing
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.types import Observation, Warm


def steady(observation: Observation) -> Any:
    return [observation.state[:2]] * 4


def sampling(observation: Observation, draw: Draw) -> Any:
    return [observation.state[:2] + draw.normal((2,))] * 4


def cooled(observation: Observation, draw: Draw, noise: float) -> Any:
    return [observation.state[:2] + noise * draw.normal((2,))] * 4


@pytest.mark.parametrize(
    ("act", "kind", "cools"), [(steady, "deterministic", False), (sampling, "flow", False), (cooled, "flow", True)]
)
def test_the_parameters_say_what_the_policy_can_do(act: Any, kind: str, cools: bool) -> None:
    policy = FunctionPolicy(act, horizon=4, action_dim=2)
    assert (policy.spec.name, policy.spec.kind, policy.spec.cools) == (act.__name__, kind, cools)
    assert policy.spec.replan == 4
    held = testing.check_policy(policy)
    assert ("warm" in held) == cools


def test_cooling_multiplies_the_noise() -> None:
    policy = FunctionPolicy(cooled, horizon=4, action_dim=2)
    seen, draw = Observation({}, np.ones(2, np.float32), ""), Draw(0, "pick", 0, 0)
    base = policy.sample([seen], [draw])
    calmer = policy.sample([seen], [draw], [Warm(0.25)])
    np.testing.assert_allclose(calmer - 1, (base - 1) / 4, rtol=1e-5)


def test_a_chunk_of_another_shape_and_a_function_of_other_arguments_are_refused() -> None:
    policy = FunctionPolicy(steady, horizon=8, action_dim=2)
    with pytest.raises(ComponentError, match=r"steady gave a chunk of shape \(4, 2\), not \(8, 2\)"):
        policy.sample([Observation({}, np.zeros(2, np.float32), "")], [Draw(0, "pick", 0, 0)])
    with pytest.raises(ComponentError, match=r"takes 0 arguments; a policy is act\(observation\)"):
        FunctionPolicy(lambda: None, horizon=1, action_dim=1)


def test_another_version_of_its_file_is_another_policy(module) -> None:
    lines = "import besttake\ndef act(observation): return [[{}]]\n"
    lines += "def make(): return besttake.FunctionPolicy(act, horizon=1, action_dim=1)\n"
    for version in (1, 2):
        module(f"version_{version}", lines.format(version))
    first, second = (registry.policy(f"python:version_{version}:make") for version in (1, 2))
    assert first.spec.fingerprint != second.spec.fingerprint
    assert besttake.FunctionPolicy is FunctionPolicy
