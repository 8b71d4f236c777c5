"""What the arms `retrieve` and `cooled` ask of the policy and of the demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.arms.base import Perceive, Request, Tools
from besttake.arms.sampler import arm_sampler
from besttake.core.retrieve import Match, RetrievalConfig, Retriever
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.errors import ComponentError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import Observation, World

WORLD = World("testbed:pick", "wrist", 4, 20, 3, (0, 1, 2))


@pytest.fixture
def library(cache: Path) -> Library:
    return open_or_build("testbed:pick", options=Options(max_demos=3))


def takes(library: Library, arm: str, count: int = 3) -> list[Request]:
    steps = range(0, 4 * count, 4)
    seen = [
        Observation({"wrist": np.full((48, 48, 3), 9 * s, np.uint8)}, library.state(0, s), "pick up the cube")
        for s in steps
    ]
    return [
        Request("pick", arm, Draw(1, "pick", 0, 0, chunk), one, step, [library.state(0, s) for s in range(step + 1)],
                [library.chunk(0, s, 1)[0] for s in range(step)])
        for chunk, (step, one) in enumerate(zip(steps, seen, strict=True))
    ]  # fmt: skip


def sampled(policy: Policy, requests: Sequence[Request], config: RetrievalConfig, library: Library) -> Any:
    chunks = arm_sampler(policy, WORLD, config, library, library.encoder()).chunks(requests)
    assert not [chunk for chunk in chunks if isinstance(chunk, Exception)], chunks
    return np.stack(chunks)


def test_demonstrations_are_searched_by_the_state_that_the_policy_sees(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, requests, searched = registry.policy("testbed:half"), takes(library, "retrieve"), []
    query = Retriever.query

    def noted(self: Retriever, embeddings: Any, chunks: Any, states: Any, **rest: Any) -> list[Match]:
        searched.append(states[0])
        return query(self, embeddings, chunks, states, **rest)

    monkeypatch.setattr(Retriever, "query", noted)
    sampled(policy, requests, RetrievalConfig(rule="frame"), library)
    seen = policy.perceive([r.observation for r in requests], [r.draw for r in requests])  # type: ignore[attr-defined]
    assert np.array_equal(searched, seen)
    gap = np.abs(seen - np.stack([r.observation.state for r in requests]))
    assert gap[:, :4].max() == 0
    assert 0.001 < gap[:, 4:].max() < 0.04


def test_a_policy_without_a_view_of_its_own_sees_the_state_itself() -> None:
    class Blind:
        spec = replace(registry.policy("testbed:half").spec, name="blind")

        def sample(self, observations: Any, draws: Any, warm: Any = None) -> Any:
            raise NotImplementedError

    class Looks:
        spec = registry.arm("base").spec

        def act(self, take: Request, tools: Tools) -> Any:
            state = yield Perceive(take.observation, take.draw)
            return np.tile(state[:4], (tools.policy.horizon, 1))

    sampler = arm_sampler(Blind(), WORLD, RetrievalConfig())
    sampler.arms["looks"] = Looks()
    state = np.arange(20, dtype=np.float32)
    (chunk,) = sampler.chunks([Request("pick", "looks", Draw(0, "pick", 0, 0), Observation({}, state))])
    assert np.array_equal(chunk[0], state[:4])


def test_an_arm_with_a_strength_of_its_own_is_the_arm_of_a_plan_with_that_strength(library: Library) -> None:
    policy = registry.policy("testbed:half")
    for own, plain in (("cooled?alpha=0.5", "cooled"), ("retrieve?alpha=0.5", "retrieve")):
        changed = sampled(policy, takes(library, own), RetrievalConfig(), library)
        planned = sampled(policy, takes(library, plain), RetrievalConfig(alpha=0.5), library)
        assert np.array_equal(changed, planned)
        assert not np.array_equal(changed, sampled(policy, takes(library, plain), RetrievalConfig(), library))


def test_retrieve_is_compared_with_cooling_of_its_own_strength() -> None:
    assert registry.arm("retrieve").spec.control == "cooled"
    assert registry.arm("retrieve?rule=frame").spec.control == "cooled"
    assert registry.arm("retrieve?alpha=0.50").spec.control == "cooled?alpha=0.5"


def test_a_strength_outside_its_range_is_refused() -> None:
    for uri in ("cooled?alpha=1.5", "cooled?alpha=-1", "cooled?alpha=nan", "cooled?alpha=much"):
        with pytest.raises(ComponentError, match="cooled: alpha="):
            registry.arm(uri)
