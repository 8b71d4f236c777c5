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
    """A policy with its arms, to be made anew where takes are played: a small one in every worker, a large one in
    every replica. ``fingerprint``: that of the policy that the run is bound to."""

    policy: str
    config: RetrievalConfig
    library: str | None = None
    candidates: int = 4
    trust_remote_code: bool = False
    fingerprint: str = ""
    trusted: frozenset[str | Path] = field(default_factory=registry.trusted, compare=False)

    def sampler(self, env: EnvSpec) -> ArmSampler:
        """The sampler, for takes in ``env``."""
        return self.sampler_of(self.load(), env)

    def load(self) -> Policy:
        """The policy; ComponentError where it is another one than the run's, as on a machine with other files."""
        registry.trust(*self.trusted)
        policy = registry.policy(self.policy, trust_remote_code=self.trust_remote_code)
        if self.fingerprint and policy.spec.fingerprint != self.fingerprint:
            raise ComponentError(
                f"{self.policy} on {platform.node()} is not the policy that the run was started with; give every"
                " machine the same files and versions"
            )
        return policy

    def sampler_of(self, loaded: Policy, env: EnvSpec) -> ArmSampler:
        """The sampler of a policy that is loaded, for takes in ``env``."""
        library = None if self.library is None else Library.open(self.library)
        encoder = None if library is None else cached(library.encoder())
        return arm_sampler(loaded, env.world, self.config, library, encoder, self.candidates)


def arm_sampler(
    policy: Policy,
    world: WorldSpec,
    config: RetrievalConfig,
    library: Library | None = None,
    encoder: Encoder | None = None,
    candidates: int = 4,
) -> ArmSampler:
    """Create a sampler of ``policy`` for any arm that policy, library and settings allow."""
    tools = Tools(policy.spec, world, config, library, candidates)
    return ArmSampler(policy, tools, encoder)


@dataclass
class ArmSampler:
    """Samples a policy for takes of any arm; takes do not affect each other, even if one of them fails.

    Two threads may call it: policy and encoder answer one of them at a time, and so do the arms.
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
        """How many takes to sample at once; 0: any number."""
        return self.policy.spec.width

    def sample(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        """The actions to execute next, (replan, action_dim), of each take, or why there are none."""
        replan = self.policy.spec.replan
        return [chunk if isinstance(chunk, Exception) else chunk[:replan] for chunk in self.chunks(requests)]

    def chunks(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        """The next chunk (horizon, action_dim) of each take, or why there is none."""
        shape = (self.tools.policy.horizon, self.tools.policy.action_dim)
        chunks: dict[int, F32 | Exception] = {}
        acting: dict[int, Acting] = {}
        for row, request in enumerate(requests):
            try:
                acting[row] = self._arm(request.arm).act(request, self.tools)
            except BaseException as error:
                chunks[row] = failure(error)
        answers: dict[int, Any] = dict.fromkeys(acting)
        wants: dict[int, Request | list[Request]] = {}
        while answers:
            with self._acting:
                for row, answer in answers.items():
                    try:
                        arm, failed = acting[row], isinstance(answer, Exception)
                        wants[row] = _checked_want(arm.throw(answer) if failed else arm.send(answer))
                    except StopIteration as end:
                        chunks[row] = checked_actions(end.value, shape, f"the arm {requests[row].arm}")
                    except BaseException as error:
                        chunks[row] = failure(error)
            # Searches first: what follows them joins the others' next call of the policy.
            now = {row: want for row, want in wants.items() if isinstance(want, Recall)} or wants
            answers = self._answer(now)
            wants = {row: want for row, want in wants.items() if row not in now}
        with self._models:  # other takes of a start begin with the same observation, but none comes to a later one
            self._looks.forget(request.observation for request in requests if request.step)
        return [chunks[row] for row in range(len(requests))]

    def _arm(self, uri: str) -> Arm:
        if uri not in self.arms:
            self.arms[uri] = registry.arm(uri)
        return self.arms[uri]

    def _answer(self, wants: Mapping[int, Request | list[Request]]) -> dict[int, Any]:
        """The answer to each take's want, or wants."""
        lists = {row: [want] if isinstance(want, Request) else want for row, want in wants.items()}
        places = [(row, index) for row, own in lists.items() for index in range(len(own))]
        answers: dict[tuple[int, int], Any] = {}
        calls: dict[type, Callable[[Any], Any]] = {
            Sample: self._sample, Perceive: self._perceive, Embed: self._embed, Recall: self._recall
        }  # fmt: skip
        for kind, call in calls.items():
            own = [place for place in places if isinstance(lists[place[0]][place[1]], kind)]
            if own:
                answers.update(zip(own, _called(call, [lists[row][index] for row, index in own]), strict=True))
        given: dict[int, Any] = {}
        for row, want in wants.items():
            own = [answers[row, index] for index in range(len(lists[row]))]
            given[row] = next(
                (one for one in own if isinstance(one, Exception)), own[0] if isinstance(want, Request) else own
            )
        return given

    def _sample(self, wants: Sequence[Sample]) -> list[F32 | Exception]:
        """A chunk for each, or why there is none."""
        rows = [w.observation for w in wants], [w.draw for w in wants], [w.warm for w in wants]
        with self._models:
            return sampled_chunks(self.policy.spec, self._looks.sample, *rows)

    def _perceive(self, wants: Sequence[Perceive]) -> Array:
        observations = [w.observation for w in wants]
        if isinstance(self.policy, Perception):
            with self._models:
                return self.policy.perceive(observations, [w.draw for w in wants])
        return np.stack([seen.state for seen in observations])

    def _embed(self, wants: Sequence[Embed]) -> Array:
        assert self.encoder is not None, "arms that embed are only run with an encoder"
        images = np.stack([w.image for w in wants])
        with self._models:
            embeddings = embeddings_of(self.encoder, images)
        if not np.isfinite(embeddings).all():
            raise ValueError(f"{self.encoder.spec.name} gave an embedding that is not finite: nothing can be matched")
        return embeddings

    def _recall(self, wants: Sequence[Recall]) -> list[Match]:
        """One search for all takes of a task that retrieve alike."""
        matches: dict[int, Match] = {}
        with self._acting:
            retrievers = [self.tools.retriever(want.take, want.config) for want in wants]
            for retriever in {id(one): one for one in retrievers}.values():
                rows = [row for row, own in enumerate(retrievers) if own is retriever]
                own = [wants[row] for row in rows]
                embeddings, chunks, states = (
                    np.stack([getattr(want, name) for want in own]) for name in ("embedding", "chunk", "state")
                )
                answers = retriever.query(embeddings, chunks, states, phases=[want.phase for want in own])
                matches.update(zip(rows, answers, strict=True))
        return [matches[row] for row in range(len(wants))]


def _checked_want(wanted: Any) -> Request | list[Request]:
    """Check that an arm yielded a request or a list of requests; TypeError otherwise."""
    if isinstance(wanted, Request):
        return wanted
    wants = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    for want in wants:
        if not isinstance(want, Request):
            raise TypeError(
                f"an arm yields a Sample, an Embed, a Perceive, a Recall or a list of these, not {want!r:.60}"
            )
    return wants


def _called(call: Callable[[Any], Any], wants: Sequence[Any]) -> list[Any]:
    """Answer all requests in one call; if it raises, try each alone, so that one bad request cannot fail others."""
    try:
        answers = list(call(wants))
        if len(answers) != len(wants):
            raise ValueError(f"{len(answers)} rows came back for {len(wants)}")
        return answers
    except RolloutError:  # it gives no answer, and would give none for each alone
        raise
    except BaseException as error:
        alone = len(wants) == 1
        return [failure(error)] if alone else [answer for want in wants for answer in _called(call, [want])]
