"""A policy with its intervention built in, for whoever runs it: `besttake serve`, or your own loop.

Each sample stands alone (a server sees one observation at a time), so the variants of retrieval that need the course of
the take, onset alignment and gripper gating, are not in effect here; the arm `retrieve` of a diagnosis has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from besttake.core.retrieve import RetrievalConfig, Retriever
from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.errors import ComponentError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Warm


class Cooled:
    """The policy with calmer sampling: ``a_init = (1 - alpha) * eps``, or a lower temperature."""

    def __init__(self, policy: Policy, alpha: float) -> None:
        if not policy.spec.cools:
            raise ComponentError(f"{policy.spec.name} cannot be cooled: its sampling noise is out of reach")
        self._policy, self._alpha = policy, alpha
        self._spec = _augmented(policy.spec, f"cooled by {alpha}", ())

    @property
    def spec(self) -> PolicySpec:
        """The policy's own, without further warm starts."""
        return self._spec

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """As the policy, cooled."""
        _no_warm(self._spec, warm)
        return self._policy.sample(observations, draws, [Warm(self._alpha)] * len(draws))


class Retrieving:
    """The policy warm-started from demonstrations (Eq. 6). Reads the library's camera besides its own.

    ``camera`` is what the env calls the library's camera. Demonstrations are found by the observation's instruction.
    """

    def __init__(self, policy: Policy, library: Library, config: RetrievalConfig, camera: str | None = None) -> None:
        if not policy.spec.warm_start:
            raise ComponentError(f"{policy.spec.name} cannot be warm-started, so nothing can be retrieved for it")
        if library.action_dim != policy.spec.action_dim:
            raise ComponentError(
                f"{library.path} has actions of {library.action_dim} numbers, {policy.spec.name} gives"
                f" {policy.spec.action_dim}; use demonstrations of the same robot"
            )
        self._policy, self._library, self._config = policy, library, config
        self._camera = camera or library.camera
        self._encoder: Encoder = library.encoder()
        self._retrievers: dict[str, Retriever] = {}
        self._spec = _augmented(policy.spec, f"retrieving ({config.rule}, alpha {config.alpha})", (self._camera,))

    @property
    def spec(self) -> PolicySpec:
        """The policy's own, with the library's camera, without further warm starts."""
        return self._spec

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """As the policy, each row started from its best match."""
        _no_warm(self._spec, warm)
        predicted = self._policy.sample(observations, draws)
        embedded = self._encoder.encode(np.stack([o.images[self._camera] for o in observations]))
        starts = []
        for seen, chunk, embedding in zip(observations, predicted, embedded, strict=True):
            state = seen.state[None] if self._library.state_dim == len(seen.state) else None
            match = self._retriever(seen.instruction).query(embedding[None], chunk[None], state)[0]
            starts.append(Warm(self._config.alpha, match.chunk))
        return self._policy.sample(observations, draws, starts)

    def _retriever(self, instruction: str) -> Retriever:
        if instruction not in self._retrievers:
            view = self._library.view("", instruction)
            self._retrievers[instruction] = view.retriever(self._config, self._policy.spec.horizon)
        return self._retrievers[instruction]


def _augmented(spec: PolicySpec, how: str, cameras: tuple[str, ...]) -> PolicySpec:
    return replace(
        spec, name=f"{spec.name}, {how}", cameras=tuple(dict.fromkeys((*spec.cameras, *cameras))), warm_start=False,
        cools=False, fingerprint=f"{spec.fingerprint} {how}", notes=(*spec.notes, how),
    )  # fmt: skip


def _no_warm(spec: PolicySpec, warm: Sequence[Warm | None] | None) -> None:
    if warm is not None and any(one is not None for one in warm):
        raise ComponentError(f"{spec.name} is augmented already and takes no further warm start")
