"""The contract of a policy. Prove that yours keeps it with ``besttake.testing.check_policy``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from besttake.takes.draws import Draw
from besttake.types import F32, U8, Observation, PolicySpec, Warm


class Policy(Protocol):
    """A frozen policy, which turns observations into chunks of actions.

    `besttake.testing.check_policy` checks an implementation. To wrap a function, use `besttake.FunctionPolicy`.
    """

    @property
    def spec(self) -> PolicySpec:
        """The name of the policy, the sizes of its chunks, and what it supports."""
        ...

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """Sample one chunk of actions for each row of a batch.

        Row b may depend only on ``observations[b]``, ``draws[b]`` and ``warm[b]``: not on other rows and not on earlier
        calls. All randomness must come from ``draws[b]``, for example ``draws[b].normal((horizon, action_dim))``.

        Args:
            observations: What the policy sees, one per row (B rows).
            draws: The random generator of each row.
            warm: How each row starts sampling; None means from noise, for one row or for all.

        Returns:
            Actions, float32 (B, horizon, action_dim), in the action space of the environment.
        """
        ...


@runtime_checkable
class Prepares(Protocol):
    """A policy whose work on the host (hashing, stacking, scaling pictures) can be done while it samples others.

    ``sample(…)`` is ``sample_prepared(prepare(…))``. `prepare` may be called from several threads at once, while
    another is in `sample_prepared`; of the latter only one runs at a time.
    """

    def prepare(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> Any:
        """What `sample_prepared` needs."""
        ...

    def sample_prepared(self, prepared: Any) -> F32:
        """One chunk per row, float32 (B, horizon, action_dim)."""
        ...


@runtime_checkable
class Perception(Protocol):
    """A policy that sees the state with an error of its own: whatever acts on its behalf sees the same."""

    def perceive(self, observations: Sequence[Observation], draws: Sequence[Draw]) -> F32:
        """The state that it sees when it samples from each draw, float32 (B, state_dim)."""
        ...


@runtime_checkable
class Foresight(Protocol):
    """A policy that also predicts what it would see: per-step re-ranking then ranks predicted observations."""

    def foresee(self, observations: Sequence[Observation], chunks: F32) -> U8:
        """The image expected after each chunk, uint8 (B, H, W, 3), from the score camera."""
        ...
