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
from besttake.core.retrieve import WAYS, Match, RetrievalConfig, Retriever
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.errors import ComponentError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import Observation, Warm, World

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


def alone(policy: Policy, take: Request, warm: Warm | None) -> Any:
    return policy.sample([take.observation], [take.draw], [warm])[0]


def test_each_way_brings_the_chunk_in_as_it_says(library: Library) -> None:
    policy = registry.policy("testbed:half")
    for step, take in enumerate(takes(library, "retrieve")):
        for way in WAYS:
            config = RetrievalConfig(rule="frame", way=way, alpha=0.4)
            (done,) = sampled(policy, [replace(take, memory=[])], config, library)
            match = library.view("pick").retriever(config, 10).query(
                library.encoder().encode(take.observation.images["wrist"][None]), alone(policy, take, None)[None],
                policy.perceive([take.observation], [take.draw]),  # type: ignore[attr-defined]
            )[0]  # fmt: skip
            expected = {
                "start": alone(policy, take, Warm(0.4, match.chunk)),
                "path": alone(policy, take, Warm(0.4, match.chunk, 0.4)),
                "blend": 0.6 * alone(policy, take, Warm(0.4)) + 0.4 * match.chunk,
            }
            np.testing.assert_allclose(done, expected[way], atol=1e-6, err_msg=f"{way} {step}")


def test_renoised_goes_on_from_another_sample_of_the_policy_at_its_flow_time(library: Library) -> None:
    policy = registry.policy("testbed:half")
    take = takes(library, "renoised?alpha=0.42")[1]
    (done,) = sampled(policy, [take], RetrievalConfig(), library)
    other = policy.sample([take.observation], [take.draw.candidate(1)])[0]
    assert np.array_equal(done, alone(policy, take, Warm(0.4, other, 0.4)))
    assert not np.array_equal(done, alone(policy, take, Warm(0.4, other)))


def test_a_random_chunk_comes_in_by_the_same_way_as_the_retrieved_one(library: Library) -> None:
    policy, take = registry.policy("testbed:half"), takes(library, "shuffled")[1]
    config = RetrievalConfig(way="blend", alpha=0.25)
    (done,) = sampled(policy, [take], config, library)
    chunk = library.view("pick").retriever(config, 10).random(take.draw.generator("shuffle")).chunk
    np.testing.assert_allclose(done, 0.75 * alone(policy, take, Warm(0.25)) + 0.25 * chunk, atol=1e-6)


def test_the_control_of_a_path_has_the_noise_of_the_path() -> None:
    assert registry.arm("retrieve?way=path&alpha=0.5").spec.control == "renoised?alpha=0.5"
    assert registry.arm("retrieve?way=blend&alpha=0.5").spec.control == "cooled?alpha=0.5"
