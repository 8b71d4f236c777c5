"""Runs the arms of many takes side by side: what they want in one round is one call of the policy and the encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from besttake import registry
from besttake.arms.base import Acting, Arm, Embed, Foresee, Perceive, Request, Sample, Tools, Want
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.policies.base import Foresight, Perception, Policy
from besttake.types import F32, Array, EnvSpec, World

Answer = Any  # an array, or the exception that came instead of it


@dataclass(frozen=True)
class SmallActor:
    """A small policy with its arms, to be made in the worker that plays the take."""

    policy: str
    config: RetrievalConfig
    library: str | None = None
    candidates: int = 4
    trusted: frozenset[str | Path] = field(default_factory=registry.trusted, compare=False)

    def sampler(self, env: EnvSpec) -> ArmSampler:
        """The sampler, for takes in ``env``."""
        registry.trust(*self.trusted)
        library = None if self.library is None else Library.open(self.library)
        encoder = None if library is None else library.encoder()
        return arm_sampler(registry.policy(self.policy), env.world, self.config, library, encoder, self.candidates)


def arm_sampler(
    policy: Policy,
    world: World,
    config: RetrievalConfig,
    library: Library | None = None,
    encoder: Encoder | None = None,
    candidates: int = 4,
) -> ArmSampler:
    """A sampler of ``policy`` in any arm that this policy, this library and these settings allow."""
    tools = Tools(policy.spec, world, config, library, candidates, isinstance(policy, Foresight))
    return ArmSampler(policy, tools, encoder)


@dataclass
class ArmSampler:
    """Samples a policy in whichever arm each take is; one take never depends on another, nor fails with it."""

    policy: Policy
    tools: Tools
    encoder: Encoder | None = None
    arms: dict[str, Arm] = field(default_factory=dict)

    def sample(self, requests: Sequence[Request]) -> list[F32 | Exception]:
        """The actions to execute next, (replan, action_dim), of each take, or why there are none."""
        replan = self.policy.spec.replan
        return [chunk if isinstance(chunk, Exception) else chunk[:replan] for chunk in self.chunks(requests)]

    def chunks(self, requests: Sequence[Request]) -> list[F32 | Exception]:
        """The next chunk (horizon, action_dim) of each take, or why there is none."""
        chunks: dict[int, F32 | Exception] = {}
        acting: dict[int, Acting] = {}
        for row, request in enumerate(requests):
            try:
                acting[row] = self._arm(request.arm).act(request, self.tools)
            except Exception as error:
                chunks[row] = error
        answers: dict[int, Answer] = dict.fromkeys(acting)
        while answers:
            wants: dict[int, Want | list[Want]] = {}
            for row, answer in answers.items():
                try:
                    wants[row] = _checked_want(_resume(acting[row], answer))
                except StopIteration as end:
                    chunks[row] = self._checked(requests[row], end.value)
                except Exception as error:
                    chunks[row] = error
            answers = self._answer(wants)
        return [chunks[row] for row in range(len(requests))]

    def _checked(self, request: Request, chunk: Any) -> F32 | Exception:
        shape = (self.tools.policy.horizon, self.tools.policy.action_dim)
        if np.shape(chunk) != shape:
            return ValueError(f"the arm {request.arm} gave a chunk of shape {np.shape(chunk)} where {shape} is needed")
        return np.asarray(chunk, np.float32)

    def _arm(self, uri: str) -> Arm:
        if uri not in self.arms:
            self.arms[uri] = registry.arm(uri)
        return self.arms[uri]

    def _answer(self, wants: Mapping[int, Want | list[Want]]) -> dict[int, Answer]:
        """The answer to each take's want, or wants."""
        lists = {row: [want] if isinstance(want, Want) else want for row, want in wants.items()}
        places = [(row, index) for row, own in lists.items() for index in range(len(own))]
        answers: dict[tuple[int, int], Answer] = {}
        calls = (Sample, self._sample), (Perceive, self._perceive), (Foresee, self._foresee), (Embed, self._embed)
        for kind, call in calls:
            own = [place for place in places if isinstance(lists[place[0]][place[1]], kind)]
            if own:
                answers.update(zip(own, _called(call, [lists[row][index] for row, index in own]), strict=True))
        return {
            row: answers[row, 0] if isinstance(want, Want) else _all([answers[row, i] for i in range(len(lists[row]))])
            for row, want in wants.items()
        }

    def _sample(self, wants: Sequence[Sample]) -> Array:
        return self.policy.sample([w.observation for w in wants], [w.draw for w in wants], [w.warm for w in wants])

    def _perceive(self, wants: Sequence[Perceive]) -> Array:
        observations = [w.observation for w in wants]
        if isinstance(self.policy, Perception):
            return self.policy.perceive(observations, [w.draw for w in wants])
        return np.stack([seen.state for seen in observations])

    def _foresee(self, wants: Sequence[Foresee]) -> Array:
        chunks = np.stack([w.chunk for w in wants])
        return cast(Foresight, self.policy).foresee([w.observation for w in wants], chunks)

    def _embed(self, wants: Sequence[Embed]) -> Array:
        assert self.encoder is not None, "arms that embed are only run with an encoder"
        embeddings = self.encoder.encode(np.stack([w.image for w in wants]))
        if not np.isfinite(embeddings).all():
            raise ValueError(f"{self.encoder.spec.name} gave an embedding that is not finite: nothing can be matched")
        return embeddings


def _resume(acting: Acting, answer: Answer) -> Any:
    """Send the answer (None begins) and return what is wanted next; an answer that failed is raised in the arm."""
    return acting.throw(answer) if isinstance(answer, Exception) else acting.send(answer)


def _checked_want(wanted: Any) -> Want | list[Want]:
    """A want or a list of them; TypeError where an arm yields anything else."""
    if isinstance(wanted, Want):
        return wanted
    wants = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    for want in wants:
        if not isinstance(want, Want):
            raise TypeError(
                f"an arm yields a Sample, an Embed, a Perceive, a Foresee or a list of these, not {want!r:.60}"
            )
    return wants


def _called(call: Callable[[Any], Array], wants: Sequence[Any]) -> list[Answer]:
    """The answers of one call; where it raises, each want is tried alone, so that one cannot spoil the others."""
    try:
        answers = list(call(wants))
        if len(answers) != len(wants):
            raise ValueError(f"{len(answers)} rows came back for {len(wants)}")
        return answers
    except Exception as error:
        return [error] if len(wants) == 1 else [answer for want in wants for answer in _called(call, [want])]


def _all(answers: list[Answer]) -> list[Answer] | Exception:
    """A list of answers, or the first error among them."""
    return next((answer for answer in answers if isinstance(answer, Exception)), answers)
