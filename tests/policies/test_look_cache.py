"""A policy that can look once at an observation is asked to look once, and its takes are the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from besttake.arms.base import TakeState, Tools
from besttake.arms.sampler import ArmSampler
from besttake.core.retrieve import RetrievalConfig
from besttake.policies.look_cache import LookCache, Precomputed
from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Warms, WorldSpec


class Watchful:
    """A flow policy over a picture, which notes at what it looks."""

    spec = PolicySpec("watchful", "flow", 4, 2, 2, cameras=("top",), state_dim=3, warm_start=True, cools=True)

    def __init__(self) -> None:
        self.looked: list[int] = []

    def look(self, observations: Sequence[Observation]) -> list[Precomputed]:
        self.looked += [int(seen.images["top"][0, 0, 0]) for seen in observations]
        return [Precomputed(seen, float(seen.images["top"].mean()), nbytes=100) for seen in observations]

    def sample_from(self, looks: Sequence[Precomputed], draws: Sequence[Draw], warm: Warms = None) -> F32:
        return np.stack([look.kept + draw.normal((4, 2)) for look, draw in zip(looks, draws, strict=True)])

    def sample(self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Warms = None) -> F32:
        return self.sample_from(self.look(observations), draws, warm)


def seen(number: int) -> Observation:
    return Observation({"top": np.full((4, 4, 3), number, np.uint8)}, np.zeros(3, np.float32), "go")


def draws(count: int) -> list[Draw]:
    return [Draw(0, "task", start, 0) for start in range(count)]


def test_equal_observations_are_looked_at_once_and_the_samples_are_the_same() -> None:
    policy = Watchful()
    cache, rows = LookCache(policy), [seen(1), seen(2), seen(1)]
    first, again = cache.sample(rows, draws(3)), cache.sample([seen(2)], draws(1))
    assert policy.looked == [1, 2]
    np.testing.assert_array_equal(first, policy.sample(rows, draws(3)))
    np.testing.assert_array_equal(again, policy.sample([seen(2)], draws(1)))


@pytest.mark.parametrize("change", ["state", "instruction", "camera", "shape"])
def test_an_observation_that_differs_in_anything_is_another(change: str) -> None:
    policy = Watchful()
    one = seen(1)
    other = {
        "state": Observation(one.images, np.ones(3, np.float32), "go"),
        "instruction": Observation(one.images, one.state, "stop"),
        "camera": Observation({**one.images, "wrist": one.images["top"]}, one.state, "go"),
        "shape": Observation({"top": one.images["top"].reshape(2, 8, 3)}, one.state, "go"),
    }[change]
    LookCache(policy).sample([one, other], draws(2))
    assert len(policy.looked) == 2


def test_memory_is_bounded_and_the_oldest_look_goes_first() -> None:
    policy = Watchful()
    cache = LookCache(policy, most=250)
    for number in (1, 2, 1, 3, 1, 2):
        cache.sample([seen(number)], draws(1))
    assert policy.looked == [1, 2, 3, 2]


def test_takes_of_a_start_share_their_first_look_and_a_later_one_is_freed() -> None:
    policy = Watchful()
    tools = Tools(policy.spec, WorldSpec("world", "top", 2, 3), RetrievalConfig())
    sampler = ArmSampler(policy, tools)
    for step in (0, 0, 2, 2):
        sampler.sample([TakeState("task", "cooled?noise=0.5", draws(1)[0], seen(step), step)])
    assert policy.looked == [0, 2, 2]
