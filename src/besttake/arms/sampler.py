"""Run the arms of many takes side by side: the requests of one round become one call of the policy and the encoder."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from besttake import registry
from besttake.arms.base import Acting, Arm, Embed, Perceive, Recall, Request, Sample, TakeState, Tools
from besttake.core.retrieve import Match, RetrievalConfig
from besttake.demos.library import Library
from besttake.encoders.base import Encoder, embeddings_of
from besttake.encoders.cache import cached
from besttake.errors import ComponentError, RolloutError, failure
from besttake.policies.base import Perception, Policy, checked_actions
from besttake.policies.look_cache import LookCache, sampled_chunks
from besttake.types import F32, Array, EnvSpec, WorldSpec


@dataclass(frozen=True)
class PolicyFactory:
    """Loads a policy with its arms where takes are played: a small one in every worker, a large one in every replica.

    ``fingerprint`` is that of the policy that the run was started with.
    """

    policy: str
    config: RetrievalConfig
    library: str | None = None
    candidates: int = 4
    trust_remote_code: bool = False
    fingerprint: str = ""
    trusted: frozenset[str | Path] = field(default_factory=registry.trusted, compare=False)

    def sampler(self, env: EnvSpec) -> ArmSampler:
        """Load the policy and create its sampler for takes in ``env``."""
        return self.sampler_of(self.load(), env)

    def load(self) -> Policy:
        """Load the policy; ComponentError if it is not the run's, as on a machine with other files."""
        registry.trust(*self.trusted)
        policy = registry.policy(self.policy, trust_remote_code=self.trust_remote_code)
        if self.fingerprint and policy.spec.fingerprint != self.fingerprint:
            raise ComponentError(
                f"{self.policy} on {platform.node()} is not the policy that the run was started with; give every"
                " machine the same files and versions"
            )
        return policy

    def sampler_of(self, policy: Policy, env: EnvSpec) -> ArmSampler:
        """Create the sampler of a loaded policy for takes in ``env``."""
        library = None if self.library is None else Library.open(self.library)
        encoder = None if library is None else cached(library.encoder())
        return arm_sampler(policy, env.world, self.config, library, encoder, self.candidates)


def arm_sampler(
    policy: Policy, world: WorldSpec, config: RetrievalConfig, library: Library | None = None,
    encoder: Encoder | None = None, candidates: int = 4,
) -> ArmSampler:  # fmt: skip
    """Create a sampler of ``policy`` for any arm that policy, library and settings allow."""
    return ArmSampler(policy, Tools(policy.spec, world, config, library, candidates), encoder)


@dataclass
class ArmSampler:
    """Samples a policy for takes in any arm; takes do not affect each other, even if one of them fails.

    Two threads may call it. Policy and encoder serve one thread at a time, and so do the arms.
    """

    policy: Policy
    tools: Tools
    encoder: Encoder | None = None
    arms: dict[str, Arm] = field(default_factory=dict)
    _acting: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _models: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self._looks = LookCache(self.policy)

    @property
    def width(self) -> int:
        """How many takes to sample at once; 0 means any number."""
        return self.policy.spec.width

    def sample(self, takes: Sequence[TakeState]) -> list[F32 | Exception]:
        """For each take the actions to execute next, (replan, action_dim), or the error that prevented them."""
        replan = self.policy.spec.replan
        return [chunk if isinstance(chunk, Exception) else chunk[:replan] for chunk in self.chunks(takes)]

    def chunks(self, takes: Sequence[TakeState]) -> list[F32 | Exception]:
        """For each take the next chunk (horizon, action_dim), or the error that prevented it."""
        shape = (self.tools.policy.horizon, self.tools.policy.action_dim)
        chunks: dict[int, F32 | Exception] = {}
        acting: dict[int, Acting] = {}
        for row, take in enumerate(takes):
            try:
                acting[row] = self._arm(take.arm).act(take, self.tools)
            except BaseException as error:
                chunks[row] = failure(error)
        answers: dict[int, Any] = dict.fromkeys(acting)
        requests: dict[int, Request | list[Request]] = {}
        while answers:
            with self._acting:
                for row, answer in answers.items():
                    try:
                        arm, failed = acting[row], isinstance(answer, Exception)
                        requests[row] = _checked_request(arm.throw(answer) if failed else arm.send(answer))
                    except StopIteration as end:
                        chunks[row] = checked_actions(end.value, shape, f"the arm {takes[row].arm}")
                    except BaseException as error:
                        chunks[row] = failure(error)
            # Searches first, so that what follows them joins the other takes' next call of the policy.
            now = {row: request for row, request in requests.items() if isinstance(request, Recall)} or requests
            answers = self._answer(now)
            requests = {row: request for row, request in requests.items() if row not in now}
        with self._models:  # only the first observation of a start is seen by several takes
            self._looks.forget(take.observation for take in takes if take.step)
        return [chunks[row] for row in range(len(takes))]

    def _arm(self, uri: str) -> Arm:
        if uri not in self.arms:
            self.arms[uri] = registry.arm(uri)
        return self.arms[uri]

    def _answer(self, requests: Mapping[int, Request | list[Request]]) -> dict[int, Any]:
        """Answer the request, or list of requests, of each take; an error stands for all answers of its take."""
        lists = {row: request if isinstance(request, list) else [request] for row, request in requests.items()}
        places = [(row, index) for row, parts in lists.items() for index in range(len(parts))]
        answers: dict[tuple[int, int], Any] = {}
        calls: dict[type, Callable[[Any], Any]] = {
            Sample: self._sample, Perceive: self._perceive, Embed: self._embed, Recall: self._recall
        }  # fmt: skip
        for kind, call in calls.items():
            if same := [place for place in places if isinstance(lists[place[0]][place[1]], kind)]:
                answers.update(zip(same, _call(call, [lists[row][index] for row, index in same]), strict=True))
        by_take: dict[int, Any] = {}
        for row, request in requests.items():
            parts = [answers[row, index] for index in range(len(lists[row]))]
            errors = [part for part in parts if isinstance(part, Exception)]
            by_take[row] = errors[0] if errors else parts if isinstance(request, list) else parts[0]
        return by_take

    def _sample(self, requests: Sequence[Sample]) -> list[F32 | Exception]:
        rows = [r.observation for r in requests], [r.draw for r in requests], [r.warm for r in requests]
        with self._models:
            return sampled_chunks(self.policy.spec, self._looks.sample, *rows)

    def _perceive(self, requests: Sequence[Perceive]) -> Array:
        observations = [request.observation for request in requests]
        if isinstance(self.policy, Perception):
            with self._models:
                return self.policy.perceive(observations, [request.draw for request in requests])
        return np.stack([seen.state for seen in observations])

    def _embed(self, requests: Sequence[Embed]) -> Array:
        assert self.encoder is not None, "arms that embed are only run with an encoder"
        with self._models:
            embeddings = embeddings_of(self.encoder, np.stack([request.image for request in requests]))
        if not np.isfinite(embeddings).all():
            raise ValueError(f"{self.encoder.spec.name} gave an embedding that is not finite: nothing can be matched")
        return embeddings

    def _recall(self, requests: Sequence[Recall]) -> list[Match]:
        """Search once for all takes of a task that have the same retrieval settings."""
        matches: dict[int, Match] = {}
        with self._acting:
            retrievers = [self.tools.retriever(request.take, request.config) for request in requests]
            for retriever in {id(each): each for each in retrievers}.values():
                rows = [row for row, each in enumerate(retrievers) if each is retriever]
                embeddings, chunks, states = (
                    np.stack([getattr(requests[row], name) for row in rows]) for name in ("embedding", "chunk", "state")
                )
                answers = retriever.query(embeddings, chunks, states, phases=[requests[row].phase for row in rows])
                matches.update(zip(rows, answers, strict=True))
        return [matches[row] for row in range(len(requests))]


def _checked_request(yielded: Any) -> Request | list[Request]:
    """Check that an arm yielded a request or a list of requests; TypeError otherwise."""
    several = isinstance(yielded, list | tuple)
    for request in yielded if several else [yielded]:
        if not isinstance(request, Request):
            raise TypeError(
                f"an arm yields a Sample, an Embed, a Perceive, a Recall or a list of these, not {request!r:.60}"
            )
    return list(yielded) if several else yielded


def _call(call: Callable[[Any], Any], requests: Sequence[Any]) -> list[Any]:
    """Answer all requests in one call; if it raises, try each alone, so that one bad request cannot fail others."""
    try:
        answers = list(call(requests))
        if len(answers) != len(requests):
            raise ValueError(f"{len(answers)} rows came back for {len(requests)}")
        return answers
    except RolloutError:  # whoever does not answer will not answer single requests either
        raise
    except BaseException as error:
        if len(requests) == 1:
            return [failure(error)]
        return [answer for request in requests for answer in _call(call, [request])]
