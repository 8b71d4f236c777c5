"""Actions for takes that wait for them: the same in the engine and in a worker, since what a take gets is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from besttake.takes.draws import Draw
from besttake.takes.orders import Job, Need
from besttake.types import F32, EnvSpec, Observation


@dataclass
class Request:
    """A take that needs actions.

    ``states`` and ``actions`` hold what has happened so far, step by step; ``memory`` is the sampler's own.
    """

    job: Job
    draw: Draw
    observation: Observation = field(default_factory=lambda: Observation({}, np.zeros(0, np.float32)))
    step: int = 0
    states: list[F32] = field(default_factory=list)
    actions: list[F32] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)

    def update(self, need: Need) -> None:
        """Take note of where the take has come to."""
        self.observation, self.step = need.observation, need.step
        self.states.extend(need.states)


class Sampler(Protocol):
    """What gives actions to takes: a policy with its arms (`besttake.arms.sampler`)."""

    def sample(self, requests: Sequence[Request]) -> Sequence[F32]:
        """One block of actions to execute, (R, action_dim), per request."""
        ...


class Actor(Protocol):
    """A sampler that can be made anew in every worker: small, hashable, picklable."""

    def sampler(self, env: EnvSpec) -> Sampler:
        """The sampler, for takes in ``env``."""
        ...


def next_blocks(sampler: Sampler, requests: Sequence[Request], batch: int) -> list[F32 | Exception]:
    """The next actions of each request, which moves on to its next chunk; ``batch`` takes a call.

    Where a call raises, each of its takes is tried alone, so that one cannot spoil the others.
    """
    blocks: list[F32 | Exception] = []
    for first in range(0, len(requests), batch):
        blocks += _sample(sampler, requests[first : first + batch])
    for request, block in zip(requests, blocks, strict=True):
        if not isinstance(block, Exception):
            request.actions.extend(block)
            request.draw = request.draw.at(request.draw.chunk + 1)
    return blocks


def reason_of(error: Exception) -> str:
    """Why a take failed, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _sample(sampler: Sampler, requests: Sequence[Request]) -> list[F32 | Exception]:
    try:
        blocks = sampler.sample(requests)
    except Exception as error:
        if len(requests) == 1:
            return [error]
        return [block for request in requests for block in _sample(sampler, [request])]
    return [_finite(block, request) for block, request in zip(blocks, requests, strict=True)]


def _finite(block: F32, request: Request) -> F32 | Exception:
    if np.isfinite(block).all():
        return block
    return ValueError(f"{request.job.key.policy} gave actions that are not finite at step {request.step}")
