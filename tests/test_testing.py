"""The contract checks must fail for adapters that break their contract, each for its own reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.core.retrieve import warm_start
from besttake.demos.base import UnreadableDemo
from besttake.errors import ContractError
from besttake.takes.draws import Draw
from besttake.testing import check_demos, check_encoder, check_env, check_policy
from besttake.types import F32, U8, Demo, EncoderSpec, EnvSpec, Observation, PolicySpec, Start, Step, TaskSpec, Warm


class GoodPolicy:
    spec = PolicySpec("good", "flow", 4, 2, 2, (), 3, warm_start=True, cools=True)

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        rows = []
        for o, d, w in zip(observations, draws, warm or [None] * len(draws), strict=True):
            eps = d.normal((4, 2))
            if w is not None:
                eps = warm_start(eps, w.noise, w.prior, w.chunk)
            rows.append(eps + o.state[:2])
        return np.stack(rows).astype(np.float32)


class Forgetful(GoodPolicy):
    def sample(self, observations, draws, warm=None):  # type: ignore[no-untyped-def]
        return super().sample(observations, draws, warm) + np.random.default_rng().normal(0, 1e-3, 1).astype(np.float32)


class Sociable(GoodPolicy):
    def sample(self, observations, draws, warm=None):  # type: ignore[no-untyped-def]
        return super().sample(observations, draws, warm) + np.float32(len(draws))


class Deaf(GoodPolicy):
    def sample(self, observations, draws, warm=None):  # type: ignore[no-untyped-def]
        return super().sample(observations, [Draw(0, "x", 0, 0)] * len(draws), warm)


class Stubborn(GoodPolicy):
    def sample(self, observations, draws, warm=None):  # type: ignore[no-untyped-def]
        return super().sample(observations, draws)


class Long(GoodPolicy):
    spec = replace(GoodPolicy.spec, horizon=5)


def test_a_good_policy_passes() -> None:
    assert check_policy(GoodPolicy()) == ("shape", "repeat", "batch", "draw", "warm")


class GoodEnv:
    def __init__(self) -> None:
        self.spec = EnvSpec("good", (TaskSpec("t", "t", "go", 9),), range(3), 2, 2, ("eye",), "eye", tuning=range(5, 7))
        self.x: Any = np.zeros(2)

    def reset(self, start: Start) -> None:
        self.x = np.full(2, float(start.index))

    def step(self, action: F32) -> Step:
        self.x = self.x * 0.9 + action
        return Step(bool(self.x[0] > 1), False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        return Observation({c: np.full((4, 4, 3), 7, np.uint8) for c in cameras}, self.x.astype(np.float32))

    def save(self) -> F32:
        return self.x.copy()

    def restore(self, snapshot: F32) -> None:
        self.x = snapshot.copy()

    def close(self) -> None:
        pass


class Nervous(GoodEnv):
    def observe(self, cameras: Sequence[str]) -> Observation:
        if cameras:
            self.x = self.x + 1e-9
        return super().observe(cameras)


class Restless(GoodEnv):
    def reset(self, start: Start) -> None:
        self.x = self.x * 0.01 + start.index


class Leaky(GoodEnv):
    def restore(self, snapshot: F32) -> None:
        self.x = snapshot + 1e-6


class Eager(GoodEnv):
    def observe(self, cameras: Sequence[str]) -> Observation:
        return super().observe(("eye",))


class Same(GoodEnv):
    def reset(self, start: Start) -> None:
        self.x: Any = np.zeros(2)


def test_a_good_env_passes() -> None:
    assert check_env(GoodEnv()) == ("spec", "observe", "reset", "lazy", "starts", "restore")


class GoodEncoder:
    spec = EncoderSpec("good", 3, "f")

    def encode(self, images: U8) -> F32:
        means = images.reshape(len(images), -1, 3).mean(axis=1) + 1
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)


class Unnormalised(GoodEncoder):
    def encode(self, images: U8) -> F32:
        return super().encode(images) * np.float32(2)


class Anonymous(GoodEncoder):
    spec = EncoderSpec("anonymous", 3, "")


def test_a_good_encoder_passes() -> None:
    assert "unit" in check_encoder(GoodEncoder())


def test_the_embedded_encoders_keep_their_contract() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3), np.uint8)
    check_encoder(registry.encoder("hog"), images=pictures)
    fitted = registry.encoder("pixels").fit(pictures)  # type: ignore[attr-defined]
    check_encoder(fitted, images=pictures)


class GoodDemos:
    name, fingerprint, camera, fps = "good", "1", "eye", 10.0
    gripper_dim, gripper_open, eef_dims = 1, -1, (0, 1)
    ids: tuple[str, ...] = ("a", "b")

    def __iter__(self) -> Iterator[Demo | UnreadableDemo]:
        for name in self.ids:
            zeros = np.zeros((4, 2), np.float32)
            yield Demo(name, "t", np.zeros((4, 8, 8, 3), np.uint8), np.arange(4), zeros, zeros)
        yield UnreadableDemo("c", "has a damaged video")


class Unnamed(GoodDemos):
    fingerprint = ""


class Twins(GoodDemos):
    ids = ("a", "a")


class Handless(GoodDemos):
    gripper_dim = 2


class Fickle(GoodDemos):
    count = 0

    def __iter__(self) -> Iterator[Demo | UnreadableDemo]:
        self.count += 1
        for demo in super().__iter__():
            yield replace(demo, states=demo.states + self.count) if isinstance(demo, Demo) else demo


class Broken(GoodDemos):
    def __iter__(self) -> Iterator[Demo | UnreadableDemo]:
        for demo in super().__iter__():
            yield replace(demo, actions=demo.actions[:3]) if isinstance(demo, Demo) else demo


class Unreadable(GoodDemos):
    ids = ()


def test_good_demonstrations_pass_with_one_that_cannot_be_read() -> None:
    assert check_demos(GoodDemos()) == ("fingerprint", "ids", "demonstrations", "dimensions", "repeat")


@pytest.mark.parametrize(
    ("check", "broken", "reason"),
    [
        (check_policy, Forgetful(), "same draws, another result"),
        (check_policy, Sociable(), "a row alone differs"),
        (check_policy, Deaf(), "ignores the draw"),
        (check_policy, Stubborn(), "a warm start changes nothing"),
        (check_policy, Long(), "its spec says"),
        (check_env, Nervous(), "observing changes the physics"),
        (check_env, Restless(), "twice, same actions"),
        (check_env, Leaky(), "restore differs from reset"),
        (check_env, Eager(), "renders a camera even if none"),
        (check_env, Same(), "are identical"),
        (check_encoder, Unnormalised(), "not unit vectors"),
        (check_encoder, Anonymous(), "no fingerprint"),
        (check_demos, Unnamed(), "no fingerprint"),
        (check_demos, Twins(), "the same id 'a'"),
        (check_demos, Handless(), "gripper_dim 2 is outside the 2 actions"),
        (check_demos, Fickle(), "demonstration a differs when it is read again"),
        (check_demos, Broken(), "demonstration a has frames|for 3 steps|do not belong|has 4"),
        (check_demos, Unreadable(), "none of its first 1 demonstrations can be read"),
    ],
)
def test_what_breaks_a_promise_is_refused_with_the_reason(check: Any, broken: Any, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        check(broken)


def test_the_testbeds_demonstrations_keep_their_contract() -> None:
    check_demos(registry.demos("testbed:push"), most=3)
