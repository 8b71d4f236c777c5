"""What the arms `retrieve` and `cooled` ask of the policy and of the demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.arms.base import TakeState
from besttake.arms.sampler import arm_sampler
from besttake.core.retrieve import Match, RetrievalConfig, Retriever
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import Observation, Warm, WorldSpec

WORLD = WorldSpec("testbed:pick", "wrist", 4, 20, 3, (0, 1, 2))


@pytest.fixture
def library(cache: Path) -> Library:
    return open_or_build("testbed:pick", options=Options(max_demos=3))


def takes(library: Library, arm: str, count: int = 3) -> list[TakeState]:
    steps = range(0, 4 * count, 4)
    seen = [
        Observation({"wrist": np.full((48, 48, 3), 9 * s, np.uint8)}, library.state(0, s), "pick up the cube")
        for s in steps
    ]
    return [
        TakeState("pick", arm, Draw(1, "pick", 0, 0, chunk), one, step, [library.state(0, s) for s in range(step + 1)],
                [library.chunk(0, s, 1)[0] for s in range(step)])
        for chunk, (step, one) in enumerate(zip(steps, seen, strict=True))
    ]  # fmt: skip


def sampled(policy: Policy, requests: Sequence[TakeState], config: RetrievalConfig, library: Library) -> Any:
    chunks = arm_sampler(policy, WORLD, config, library, library.encoder()).chunks(requests)
    assert not [chunk for chunk in chunks if isinstance(chunk, Exception)], chunks
    return np.stack(chunks)


def test_the_queries_of_one_policy_call_are_one_search(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, config, sizes, calls = registry.policy("testbed:half"), RetrievalConfig(rule="frame"), [], []
    query, sample = Retriever.query, type(policy).sample

    def noted(self: Retriever, embeddings: Any, *rest: Any, **more: Any) -> list[Match]:
        sizes.append(len(embeddings))
        return query(self, embeddings, *rest, **more)

    def counted(self: Any, observations: Any, *rest: Any) -> Any:
        calls.append(len(observations))
        return sample(self, observations, *rest)

    alone = [sampled(policy, [one], config, library)[0] for one in takes(library, "retrieve")]
    monkeypatch.setattr(Retriever, "query", noted)
    monkeypatch.setattr(type(policy), "sample", counted)
    together = sampled(policy, takes(library, "retrieve"), config, library)
    assert sizes == [3]
    assert calls == [3, 3]
    np.testing.assert_array_equal(together, alone)


def test_demonstrations_are_searched_by_the_state_that_the_policy_sees(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, requests, searched = registry.policy("testbed:half"), takes(library, "retrieve"), []
    query = Retriever.query

    def noted(self: Retriever, embeddings: Any, chunks: Any, states: Any, **rest: Any) -> list[Match]:
        searched.extend(states)
        return query(self, embeddings, chunks, states, **rest)

    monkeypatch.setattr(Retriever, "query", noted)
    sampled(policy, requests, RetrievalConfig(rule="frame"), library)
    seen = policy.perceive([r.observation for r in requests], [r.draw for r in requests])  # type: ignore[attr-defined]
    assert np.array_equal(searched, seen)
    gap = np.abs(seen - np.stack([r.observation.state for r in requests]))
    assert gap[:, :4].max() == 0
    assert 0.001 < gap[:, 4:].max() < 0.04


def test_an_arm_with_dials_of_its_own_is_the_arm_of_a_plan_with_those_dials(library: Library) -> None:
    policy = registry.policy("testbed:half")
    half, paper = RetrievalConfig(noise=0.5), RetrievalConfig(noise=0.7, prior=0.3)
    cases = (
        ("cooled?noise=0.5", "cooled", half), ("retrieve?noise=0.5", "retrieve", half),
        ("retrieve?alpha=0.3", "retrieve", paper), ("shuffled?alpha=0.3", "shuffled", paper),
        ("retrieve?noise=0.7&prior=0.3", "retrieve", paper),
    )  # fmt: skip
    for own, plain, config in cases:
        changed = sampled(policy, takes(library, own), RetrievalConfig(), library)
        assert np.array_equal(changed, sampled(policy, takes(library, plain), config, library)), own
        assert not np.array_equal(changed, sampled(policy, takes(library, plain), RetrievalConfig(), library)), own


@pytest.mark.parametrize("noise", [0.1, 0.7, 1.0])
def test_retrieve_without_a_prior_is_cooled_to_the_bit(library: Library, noise: float) -> None:
    policy, config = registry.policy("testbed:half"), RetrievalConfig(noise=noise, prior=0.0)
    cooled = sampled(policy, takes(library, "cooled"), config, library)
    for arm in ("retrieve", "shuffled", "retrieve?prior=0&rule=frame"):
        assert np.array_equal(sampled(policy, takes(library, arm), config, library), cooled), arm
    base = sampled(policy, takes(library, "base"), config, library)
    assert np.array_equal(cooled, base) == (noise == 1)


def test_the_control_is_cooling_at_exactly_the_same_noise() -> None:
    for arm in ("retrieve", "shuffled"):
        assert registry.arm(arm).spec.control == "cooled"
        assert registry.arm(f"{arm}?rule=frame&prior=0.5").spec.control == "cooled"
        assert registry.arm(f"{arm}?noise=0.50").spec.control == "cooled?noise=0.5"
        assert registry.arm(f"{arm}?alpha=0.3").spec.control == "cooled?noise=0.7"
        assert registry.arm(f"{arm}?alpha=0.9").spec.control == "cooled?noise=0.1"
        assert registry.arm(f"{arm}?noise=0.1234567").spec.control == "cooled?noise=0.1234567"


def alone(policy: Policy, take: TakeState, warm: Warm | None) -> Any:
    return policy.sample([take.observation], [take.draw], [warm])[0]


def test_the_retrieved_chunk_is_added_to_the_noise_in_the_policy_s_own_space(library: Library) -> None:
    policy, config = registry.policy("testbed:half"), RetrievalConfig(rule="frame", noise=0.3, prior=0.4)
    for take in takes(library, "retrieve"):
        (done,) = sampled(policy, [replace(take, memory=[])], config, library)
        match = library.view("pick").retriever(config, 10).query(
            library.encoder().encode(take.observation.images["wrist"][None]), alone(policy, take, None)[None],
            policy.perceive([take.observation], [take.draw]),  # type: ignore[attr-defined]
        )[0]  # fmt: skip
        assert np.array_equal(done, alone(policy, take, Warm(0.3, 0.4, match.chunk)))


def test_a_task_may_have_a_prior_of_its_own_and_without_one_nothing_is_searched_for(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, config = registry.policy("testbed:half"), RetrievalConfig(rule="frame", prior=0.2)
    stronger = replace(config, by_task=(("pick", 0.5), ("push", 0.0)))
    for arm in ("retrieve", "shuffled"):
        own = sampled(policy, takes(library, arm), stronger, library)
        assert np.array_equal(own, sampled(policy, takes(library, arm), replace(config, prior=0.5), library))
        named = sampled(policy, takes(library, f"{arm}?prior=0.2"), stronger, library)
        assert np.array_equal(named, sampled(policy, takes(library, arm), config, library)), "it holds for every task"
    monkeypatch.setattr(Retriever, "query", lambda *_, **__: pytest.fail("nothing to search for"))
    off = sampled(policy, takes(library, "retrieve"), replace(config, by_task=(("pick", 0.0),)), library)
    assert np.array_equal(off, sampled(policy, takes(library, "cooled"), config, library))
