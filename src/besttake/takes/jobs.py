"""What is played: takes as jobs, their randomness, and the messages between the engine and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from besttake import registry
from besttake.arms.base import Request
from besttake.errors import failure
from besttake.policies.base import checked_actions
from besttake.registry import Uri
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.take import Take
from besttake.types import F32, EnvSpec, Observation, PolicySpec, TaskSpec


@dataclass(frozen=True)
class TakeGrid:
    """Takes of one policy in one env: every seed of every arm, from every start of every task."""

    policy: str
    env: str
    tasks: tuple[TaskSpec, ...]
    starts: tuple[int, ...]
    arms: tuple[str, ...]
    seeds: int

    def take_keys(self) -> list[TakeKey]:
        """The names of the takes, in the order in which they are played."""
        return [
            TakeKey(self.policy, self.env, task.name, start, arm, seed)
            for task in self.tasks for start in self.starts for arm in self.arms for seed in range(self.seeds)
        ]  # fmt: skip

    def jobs(
        self, policy: PolicySpec, env: EnvSpec, *, stride: int | None, goes_on: bool, actor: Actor | None = None
    ) -> list[Job]:
        """The takes as jobs. ``stride`` is between frames that are kept; None keeps those of the start only."""
        horizons = {task.name: task.horizon for task in self.tasks}
        cameras = {
            arm: tuple(dict.fromkeys((*policy.cameras, *([env.score_camera] if sees else []))))
            for arm in self.arms for sees in [registry.arm(arm).spec.score_camera]
        }  # fmt: skip
        return [
            Job(
                key, horizons[key.task], cameras[key.arm], env.score_camera, stride or horizons[key.task], goes_on,
                actor=actor,
            )
            for key in self.take_keys()
        ]  # fmt: skip


def take_draw(run_seed: int, key: TakeKey) -> Draw:
    """The randomness of a take: that of its start and seed, whatever the arm, the policy or the env's options."""
    return Draw(run_seed, f"{Uri.parse(key.env).scheme}/{key.task}", key.start, key.seed)


def probe_draw(run_seed: int, task: str, state: int, sample: int) -> Draw:
    """The randomness of one sample at one demonstrated state."""
    return Draw(run_seed, f"probe/{task}", start=state, seed=sample)


class Sampler(Protocol):
    """What gives actions to takes: a policy with its arms (`besttake.arms.sampler`)."""

    def sample(self, requests: Sequence[Request]) -> Sequence[F32 | Exception]:
        """One block of actions to execute, (R, action_dim), per request, or why this one has none."""
        ...


class Actor(Protocol):
    """A sampler that can be made anew in every worker: small, hashable, picklable."""

    def sampler(self, env: EnvSpec) -> Sampler:
        """Load the policy and its arms in this process, ready to act in ``env``."""
        ...


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
    """Order: start ``job`` in ``slot``. ``request`` follows the take from here, on the side that gives it actions."""

    slot: int
    job: Job
    request: Request


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


def next_blocks(sampler: Sampler, requests: Sequence[Request]) -> list[F32 | Exception]:
    """The next actions of each request, which moves on to its next chunk."""
    try:
        blocks = list(sampler.sample(requests))
    except BaseException as error:
        blocks = [failure(error)] * len(requests)
    for row, (request, block) in enumerate(zip(requests, blocks, strict=True)):
        if not isinstance(block, Exception):
            block = blocks[row] = checked_actions(block, None, f"at step {request.step} the policy")
        if not isinstance(block, Exception):
            request.actions.extend(block)
            request.draw = request.draw.at(request.draw.chunk + 1)
    return blocks
