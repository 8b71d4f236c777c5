"""A cache of what a policy computes from an observation alone, so that sampling it again is cheap.

The arm `retrieve` samples twice at an observation, all takes of a start begin with the same one, and the check of
retrieval samples each demonstrated state dozens of times. If a policy has the methods `look` and `sample_from`,
pictures, instruction and state go through its expensive part once. The samples are the same to the bit.
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
"""The most memory of a cache; what was used least recently is dropped first."""


@dataclass(frozen=True)
class Precomputed:
    """What a policy has computed from an observation: ``kept``, of ``nbytes``, which only the policy understands."""

    observation: Observation
    kept: Any = None
    nbytes: int = 0


@runtime_checkable
class TwoStepPolicy(Protocol):
    """A policy whose ``sample`` is ``sample_from(look(observations), draws, warm)``, to the bit."""

    def look(self, observations: Sequence[Observation]) -> list[Precomputed]:
        """Compute what depends on each observation alone."""
        ...

    def sample_from(self, looks: Sequence[Precomputed], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """One chunk per row, float32 (B, horizon, action_dim), as ``sample`` gives it."""
        ...


class LookCache:
    """Samples a policy that looks only once at each observation, as long as the cache holds it."""

    def __init__(self, policy: Policy, most: int = MOST_BYTES) -> None:
        self._policy, self._most = policy, most
        self._kept: OrderedDict[bytes, Precomputed] = OrderedDict()

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """Sample as the policy's own ``sample`` does, to the bit."""
        if not isinstance(self._policy, TwoStepPolicy):
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
        """Drop observations that will not be sampled again."""
        if self._kept:
            for seen in observations:
                self._kept.pop(_content(seen), None)


def sampled_chunks(
    spec: PolicySpec, sample: Callable[..., Any], observations: Sequence[Observation], draws: Sequence[Draw],
    warm: Sequence[Warm | None],
) -> list[F32 | Exception]:  # fmt: skip
    """Sample a policy: for each row a chunk (horizon, action_dim), copied, or the error if it is not valid."""
    rows = list(sample(observations, draws, warm))
    if len(rows) != len(observations):
        raise ValueError(f"{len(rows)} rows came back for {len(observations)}")
    shape = (spec.horizon, spec.action_dim)
    return [checked_actions(row, shape, f"the policy {spec.name}") for row in rows]


def _content(seen: Observation) -> bytes:
    """A hash of the content of an observation."""
    digest = hashlib.blake2b(seen.instruction.encode(), digest_size=16)
    parts: list[tuple[str, Array]] = [("", seen.state), *sorted(seen.images.items())]
    for name, part in parts:
        digest.update(f"{name} {part.dtype} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.digest()
