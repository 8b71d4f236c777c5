"""The contract of an environment. Prove that yours keeps it with ``besttake.testing.check_env``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from besttake.types import F32, EnvSpec, Observation, Start, Step


class Env(Protocol):
    """One simulator or robot.

    `step` never renders; `observe` renders the cameras that it is asked for. `besttake.testing.check_env` checks an
    implementation.
    """

    @property
    def spec(self) -> EnvSpec:
        """The tasks, starts, cameras and sizes of this environment."""
        ...

    def reset(self, start: Start) -> None:
        """Go to ``start``. The same start must give the same state, bit for bit, every time."""
        ...

    def step(self, action: F32) -> Step:
        """Execute one action, float32 (action_dim,), and return the outcome. This must not render."""
        ...

    def observe(self, cameras: Sequence[str]) -> Observation:
        """Return the state, the instruction and the images of ``cameras``, and render no other camera.

        Observing must not change what later steps do.
        """
        ...

    def close(self) -> None:
        """Free the simulator and its graphics context."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """An env whose whole state can be saved and put back exactly: the takes of a start then share one reset."""

    def save(self) -> Any:
        """An opaque snapshot of the state after ``reset``; `restore` on any env of the same URI accepts it."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Put ``snapshot`` back: what follows is bit for bit what would follow the reset it was saved after."""
        ...


@runtime_checkable
class Placeable(Protocol):
    """An env that can be put into a state that its simulator wrote down, so that recorded actions can be replayed."""

    def place(self, task: str, state: NDArray[np.float64]) -> None:
        """Go to the simulator's ``state`` (n,) of ``task``; no step is taken."""
        ...
