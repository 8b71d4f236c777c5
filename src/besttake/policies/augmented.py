"""A policy with its intervention built in, for whoever runs it: `besttake serve`, or your own loop.

The variants of retrieval that look back, onset alignment and gripper gating, need the course of the episode. `follow`
takes it, and is the arm `retrieve` of a diagnosis, by the same code. `sample`, the contract of every policy, knows one
observation at a time: each of its rows is the first step of an episode, where these variants have nothing to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from besttake.arms.sampler import ArmSampler
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library
from besttake.errors import ComponentError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.takes.orders import Job
from besttake.takes.sampling import Request
from besttake.takes.take import TakeKey
from besttake.types import F32, EnvSpec, Observation, PolicySpec, Warm


@dataclass
class Course:
    """An episode so far: ``states`` of each step up to now, ``actions`` executed (one fewer), and the policy's memory.

    ``task`` names the demonstrations to retrieve from, where the caller knows it; else the instruction does.
    """

    task: str = ""
    states: list[F32] = field(default_factory=list)
    actions: list[F32] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)


@runtime_checkable
class Following(Protocol):
    """A policy that looks back over the episode it is in."""

    def follow(self, observation: Observation, draw: Draw, course: Course) -> F32:
        """One chunk (horizon, action_dim); ``course.states`` ends with the observation's own."""
        ...


class Cooled:
    """The policy with calmer sampling: ``a_init = (1 - alpha) * eps``, or a lower temperature."""

    def __init__(self, policy: Policy, alpha: float) -> None:
        if not policy.spec.cools:
            raise ComponentError(f"{policy.spec.name} cannot be cooled: its sampling noise is out of reach")
        if not 0 <= alpha <= 1:
            raise ComponentError(f"alpha must lie between 0 and 1, not {alpha}")
        self._policy, self._alpha = policy, alpha
        self._spec = _augmented(policy.spec, f"cooled by {alpha}", f"cooled {alpha}", ())

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

    ``camera`` is what the env calls the library's camera. The library says which state numbers are the end effector
    and which action number is the gripper.
    """

    def __init__(self, policy: Policy, library: Library, config: RetrievalConfig, camera: str | None = None) -> None:
        spec = policy.spec
        if not spec.warm_start:
            raise ComponentError(f"{spec.name} cannot be warm-started, so nothing can be retrieved for it")
        camera = camera or library.camera
        world = EnvSpec(
            name=spec.name, tasks=(), starts=range(0), action_dim=spec.action_dim,
            state_dim=spec.state_dim or library.state_dim or 0, cameras=(camera,), score_camera=camera,
            gripper_dim=library.gripper_dim, eef_dims=library.eef_dims,
        )  # fmt: skip
        library.check_fit(world, config)
        self._library = library
        self._arms = ArmSampler(_Whole(policy), world, config, library, library.encoder())
        how = f"retrieving ({config.rule}, alpha {config.alpha})"
        self._spec = _augmented(spec, how, f"{config} {library.fingerprint}", (camera,))

    @property
    def spec(self) -> PolicySpec:
        """The policy's own, with the library's camera, without further warm starts."""
        return self._spec

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """As the policy, each row started from its best match, as at the first step of an episode."""
        _no_warm(self._spec, warm)
        rows = zip(observations, draws, strict=True)
        chunks = self._arms.sample([self._request(seen, draw, Course(states=[seen.state])) for seen, draw in rows])
        return np.stack(chunks) if chunks else np.empty((0, self._spec.horizon, self._spec.action_dim), np.float32)

    def follow(self, observation: Observation, draw: Draw, course: Course) -> F32:
        """The arm `retrieve` of a diagnosis at this point of ``course``: one chunk (horizon, action_dim)."""
        return self._arms.sample([self._request(observation, draw, course)])[0]

    def _request(self, seen: Observation, draw: Draw, course: Course) -> Request:
        if len(seen.state) != self._library.state_dim:
            raise ComponentError(
                f"{self._library.path} is searched by {self._library.state_dim} state numbers, not {len(seen.state)}"
            )
        key = TakeKey(self._spec.name, "", self._task(course.task, seen.instruction), draw.start, "retrieve", draw.seed)
        camera = self._arms.env.score_camera
        job = Job(key, horizon=0, cameras=self._spec.cameras, score_camera=camera, stride=1, goes_on=False)
        return Request(job, draw, seen, len(course.actions), course.states, course.actions, course.memory)

    def _task(self, task: str, instruction: str) -> str:
        """The name that has demonstrations; empty (all of them) where neither has."""
        named = (name for name in (task, instruction) if name and self._library.view(name).matched != "all")
        return next(named, "")


class _Whole:
    """A policy that executes all of its chunk: the arms cut a chunk to what is executed, which the client decides."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.spec = replace(policy.spec, replan=policy.spec.horizon)

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        return self._policy.sample(observations, draws, warm)


def _augmented(spec: PolicySpec, how: str, mark: str, cameras: tuple[str, ...]) -> PolicySpec:
    return replace(
        spec, name=f"{spec.name}, {how}", cameras=tuple(dict.fromkeys((*spec.cameras, *cameras))), warm_start=False,
        cools=False, fingerprint=f"{spec.fingerprint} {mark}", notes=(*spec.notes, how),
    )  # fmt: skip


def _no_warm(spec: PolicySpec, warm: Sequence[Warm | None] | None) -> None:
    if warm is not None and any(one is not None for one in warm):
        raise ComponentError(f"{spec.name} is augmented already and takes no further warm start")
