"""Actions for takes that wait for them: the same in the engine and in a worker, since what a take gets is its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from besttake.arms.base import Request
from besttake.types import F32, EnvSpec


class Sampler(Protocol):
    """What gives actions to takes: a policy with its arms (`besttake.arms.sampler`)."""

    def sample(self, requests: Sequence[Request]) -> Sequence[F32 | Exception]:
        """One block of actions to execute, (R, action_dim), per request, or why this one has none."""
        ...


class Actor(Protocol):
    """A sampler that can be made anew in every worker: small, hashable, picklable."""

    def sampler(self, env: EnvSpec) -> Sampler:
        """The sampler, for takes in ``env``."""
        ...


def next_blocks(sampler: Sampler, requests: Sequence[Request], batch: int) -> list[F32 | Exception]:
    """The next actions of each request, which moves on to its next chunk; ``batch`` takes a call."""
    blocks: list[F32 | Exception] = []
    for first in range(0, len(requests), batch):
        some = requests[first : first + batch]
        try:
            blocks += sampler.sample(some)
        except Exception as error:
            blocks += [error] * len(some)
    return [_advance(request, block) for request, block in zip(requests, blocks, strict=True)]


def _advance(request: Request, block: F32 | Exception) -> F32 | Exception:
    if isinstance(block, Exception):
        return block
    if not np.isfinite(block).all():
        return ValueError(f"the policy gave actions that are not finite at step {request.step}")
    request.actions.extend(block)
    request.draw = request.draw.at(request.draw.chunk + 1)
    return block
