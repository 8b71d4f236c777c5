"""Takes as jobs, their randomness, and the messages between the engine and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from besttake import registry
from besttake.arms.base import TakeState
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
        """The keys of the takes, in the order in which they are played."""
        return [
            TakeKey(self.policy, self.env, task.name, start, arm, seed)
            for task in self.tasks for start in self.starts for arm in self.arms for seed in range(self.seeds)
        ]  # fmt: skip

    def jobs(
        self, policy: PolicySpec, env: EnvSpec, *, stride: int | None, goes_on: bool,
        factory: SamplerFactory | None = None,
    ) -> list[Job]:  # fmt: skip
        """The takes as jobs. Every ``stride``-th frame is stored; None stores only that of the start."""
        horizons = {task.name: task.horizon for task in self.tasks}
        cameras = {
            arm: tuple(dict.fromkeys((*policy.cameras, *([env.score_camera] if sees else []))))
            for arm in self.arms for sees in [registry.arm(arm).spec.score_camera]
        }  # fmt: skip
        return [
            Job(key, most, cameras[key.arm], env.score_camera, stride or most, goes_on, factory)
            for key in self.take_keys() for most in [horizons[key.task]]
        ]  # fmt: skip


def take_draw(run_seed: int, key: TakeKey) -> Draw:
    """The randomness of a take. It does not depend on the arm, the policy or the options of the env."""
    return Draw(run_seed, f"{Uri.parse(key.env).scheme}/{key.task}", key.start, key.seed)


def probe_draw(run_seed: int, task: str, state: int, sample: int) -> Draw:
    """The randomness of one policy sample at one demonstrated state."""
    return Draw(run_seed, f"probe/{task}", start=state, seed=sample)


class Sampler(Protocol):
    """Gives actions to takes: a policy with its arms (`besttake.arms.sampler`)."""

    def sample(self, takes: Sequence[TakeState]) -> Sequence[F32 | Exception]:
        """For each take the actions to execute next, (R, action_dim), or the error that prevented them."""
        ...


class SamplerFactory(Protocol):
    """Makes a sampler in any process: small, hashable and picklable."""

    def sampler(self, env: EnvSpec) -> Sampler:
        """Load the policy and its arms in this process, ready to act in ``env``."""
        ...


@dataclass(frozen=True)
class Job:
    """One take to play: which, for how long, and with which cameras.

    With a ``factory`` the worker samples actions itself; without one it asks the engine for them.
    """

    key: TakeKey
    horizon: int
    cameras: tuple[str, ...]
    score_camera: str
    stride: int
    goes_on: bool
    factory: SamplerFactory | None = None


@dataclass(frozen=True)
class Begin:
    """Order: start ``job`` in ``slot``. ``state`` is kept up to date by the side that samples the actions."""

    slot: int
    job: Job
    state: TakeState


@dataclass(frozen=True)
class Act:
    """Order: execute ``actions`` (R, action_dim) in ``slot``."""

    slot: int
    actions: F32


@dataclass(frozen=True)
class NeedsActions:
    """Reply: the take needs actions for this observation, after ``step`` actions.

    ``states`` (R, state_dim) are those seen since the last reply.
    """

    slot: int
    observation: Observation
    step: int
    states: F32

    def update(self, state: TakeState) -> None:
        """Bring ``state`` up to date."""
        state.observation, state.step = self.observation, self.step
        state.states.extend(self.states)


@dataclass(frozen=True)
class End:
    """Reply: the take is over."""

    slot: int
    take: Take
    seconds: float


@dataclass(frozen=True)
class Failed:
    """Reply: the take raised; ``reason`` is one line."""

    slot: int
    key: TakeKey
    reason: str
    seconds: float


Order = Begin | Act
Reply = NeedsActions | End | Failed


def next_actions(sampler: Sampler, takes: Sequence[TakeState]) -> list[F32 | Exception]:
    """Sample the next actions of each take, and move it on to its next chunk."""
    try:
        sampled = list(sampler.sample(takes))
    except BaseException as error:
        return [failure(error)] * len(takes)
    for row, (take, actions) in enumerate(zip(takes, sampled, strict=True)):
        if not isinstance(actions, Exception):
            actions = sampled[row] = checked_actions(actions, None, f"at step {take.step} the policy")
        if not isinstance(actions, Exception):
            take.actions.extend(actions)
            take.draw = take.draw.at(take.draw.chunk + 1)
    return sampled
