"""One look, many samples: what a policy computes of an observation alone is computed once, however often it samples.

The arm `retrieve` samples twice at an observation, the takes of a start begin at the same one in every arm and seed,
and the check of retrieval samples each demonstrated state dozens of times. With a policy that can tell `look` and
`sample_from` apart, pictures, instruction and state go through its expensive part once. The bits are the same as
without.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from besttake.policies.base import Policy, checked_actions
from besttake.takes.draws import Draw
from besttake.types import F32, Array, Observation, PolicySpec, Warm, Warms

MOST_BYTES = 1 << 30
"""The memory of all looks that are kept; the one that was used least recently goes first."""


@dataclass(frozen=True)
class Precomputed:
    """What a policy keeps of an observation. ``kept`` is its own business, and takes ``nbytes`` of memory."""

    observation: Observation
    kept: Any = None
    nbytes: int = 0


@runtime_checkable
class Looking(Protocol):
    """A policy whose ``sample`` is ``sample_from(look(observations), draws, warm)``, to the bit."""

    def look(self, observations: Sequence[Observation]) -> list[Precomputed]:
        """One look at each observation, which depends on nothing else."""
        ...

    def sample_from(self, looks: Sequence[Precomputed], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """One chunk per row, float32 (B, horizon, action_dim), as ``sample`` gives it."""
        ...


class LookCache:
    """Samples a policy, and looks only once at observations of the same content while it remembers them."""

    def __init__(self, policy: Policy, most: int = MOST_BYTES) -> None:
        self._policy, self._most = policy, most
        self._kept: OrderedDict[bytes, Precomputed] = OrderedDict()

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """What the policy's own ``sample`` gives."""
        if not isinstance(self._policy, Looking):
            return self._policy.sample(observations, draws, warm)
        keys = [_content(seen) for seen in observations]
        new = {key: seen for key, seen in zip(keys, observations, strict=True) if key not in self._kept}
        if new:
            self._kept.update(zip(new, self._policy.look(list(new.values())), strict=True))
        for key in keys:
            self._kept.move_to_end(key)
        looks = [self._kept[key] for key in keys]
        while len(self._kept) > 1 and sum(look.nbytes for look in self._kept.values()) > self._most:
            self._kept.popitem(last=False)
        return self._policy.sample_from(looks, draws, warm)

    def forget(self, observations: Iterable[Observation]) -> None:
        """Free what is kept of observations that nobody will ask about again."""
        if self._kept:
            for seen in observations:
                self._kept.pop(_content(seen), None)


def sampled_chunks(
    spec: PolicySpec, sample: Callable[..., Any], observations: Sequence[Observation], draws: Sequence[Draw],
    warm: Sequence[Warm | None],
) -> list[F32 | Exception]:  # fmt: skip
    """Sample a policy: for each row a chunk (horizon, action_dim) in memory of its own, or why there is none."""
    rows = list(sample(observations, draws, warm))
    if len(rows) != len(observations):
        raise ValueError(f"{len(rows)} rows came back for {len(observations)}")
    shape = (spec.horizon, spec.action_dim)
    return [checked_actions(row, shape, f"the policy {spec.name}") for row in rows]


def _content(seen: Observation) -> bytes:
    """What an observation is known by: takes of one start see the very same first pictures."""
    digest = hashlib.blake2b(seen.instruction.encode(), digest_size=16)
    parts: list[tuple[str, Array]] = [("", seen.state), *sorted(seen.images.items())]
    for name, part in parts:
        digest.update(f"{name} {part.dtype} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.digest()
