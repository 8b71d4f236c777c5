"""What the engine and its workers tell each other: orders one way, answers the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from besttake.arms.base import Request
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.take import Take
from besttake.types import F32, Observation

if TYPE_CHECKING:
    from besttake.takes.sampling import Actor


@dataclass(frozen=True)
class Job:
    """One take to play: which, for how long, and what to look at.

    ``actor`` is who acts, in the worker itself; without one the worker asks the engine for actions.
    """

    key: TakeKey
    horizon: int
    cameras: tuple[str, ...]
    score_camera: str
    stride: int
    goes_on: bool
    actor: Actor | None = None


@dataclass(frozen=True)
class Begin:
    """Order: start ``job`` in ``slot``. With an actor, ``draw`` is where its randomness begins."""

    slot: int
    job: Job
    draw: Draw


@dataclass(frozen=True)
class Act:
    """Order: execute ``actions`` (R, action_dim) in ``slot``."""

    slot: int
    actions: F32


@dataclass(frozen=True)
class Need:
    """Answer: the take goes on and needs actions for this observation; ``step`` actions have been executed.

    ``states`` (R, state_dim) are those seen since the last answer.
    """

    slot: int
    observation: Observation
    step: int
    states: F32

    def update(self, request: Request) -> None:
        """Note in ``request`` where its take has come to."""
        request.observation, request.step = self.observation, self.step
        request.states.extend(self.states)


@dataclass(frozen=True)
class End:
    """Answer: the take is over."""

    slot: int
    take: Take
    seconds: float


@dataclass(frozen=True)
class Failed:
    """Answer: the take raised; ``reason`` is one line."""

    slot: int
    key: TakeKey
    reason: str
    seconds: float


Order = Begin | Act
Answer = Need | End | Failed
