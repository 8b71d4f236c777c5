"""A policy with an arm built in, for whoever runs it: `besttake serve`, or your own loop.

Some arms look back over the episode. `follow` takes its history so far, and is that arm of a diagnosis, by the same
code. `sample`, the contract of every policy, knows one observation at a time: each of its rows is the first step of an
episode, where there is nothing to look back at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake import registry
from besttake.arms import BASE, COOLED, RETRIEVE
from besttake.arms.base import TakeState, unmet
from besttake.arms.sampler import ArmSampler, arm_sampler
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library, check_retrieval
from besttake.errors import ComponentError, PlanError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.takes.manifest import Manifest
from besttake.types import F32, Observation, PolicySpec, Warm, WorldSpec


@dataclass
class EpisodeHistory:
    """An episode so far: ``states`` of each step up to now, ``actions`` executed (one fewer), and the arm's memory.

    ``task`` names the demonstrations to retrieve from, where the caller knows it; else the instruction does. ``arm``
    is that of the episode where a policy has several (`InSession`).
    """

    task: str = ""
    states: list[F32] = field(default_factory=list)
    actions: list[F32] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)
    arm: str = ""


class Augmented:
    """A policy in one arm. ``how`` names it for people, ``fingerprint`` tells it from the same arm set otherwise."""

    def __init__(self, arms: ArmSampler, arm: str, how: str, fingerprint: str) -> None:
        spec, needs = arms.policy.spec, registry.arm(arm).spec
        cameras = (*spec.cameras, *([arms.tools.world.score_camera] if needs.score_camera else []))
        self._arms, self._arm, self._library = arms, arm, arms.tools.library
        self.looks_back = needs.history
        self._spec = replace(
            spec, name=f"{spec.name}, {how}", cameras=tuple(dict.fromkeys(cameras)), warm_start=False, cools=False,
            state_dim=spec.state_dim if self._library is None else self._library.head.state_dim,
            fingerprint=f"{spec.fingerprint} {fingerprint}", notes=(*spec.notes, how),
        )  # fmt: skip

    @property
    def spec(self) -> PolicySpec:
        """The policy's own, with the cameras that the arm needs, without further warm starts."""
        return self._spec

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """As the policy in this arm, each row at the first step of an episode."""
        if any(one is not None for one in warm or ()):
            raise ComponentError(f"{self._spec.name} is augmented already and takes no further warm start")
        chunks = self.follow_all(observations, draws, [EpisodeHistory(states=[seen.state]) for seen in observations])
        empty = np.empty((0, self._spec.horizon, self._spec.action_dim), np.float32)
        return np.stack([_raised(chunk) for chunk in chunks]) if chunks else empty

    def follow(self, observation: Observation, draw: Draw, history: EpisodeHistory) -> F32:
        """The arm of a diagnosis at this point of ``history``: one chunk (horizon, action_dim)."""
        return _raised(self.follow_all([observation], [draw], [history])[0])

    def follow_all(
        self, observations: Sequence[Observation], draws: Sequence[Draw], histories: Sequence[EpisodeHistory]
    ) -> list[F32 | Exception]:
        """`follow` for several episodes at once: the chunk of each, or why there is none."""
        rows = zip(observations, draws, histories, strict=True)
        return self._arms.chunks([self._request(*row) for row in rows])

    def _request(self, seen: Observation, draw: Draw, history: EpisodeHistory) -> TakeState:
        library = self._library
        if library is not None and len(seen.state) != library.head.state_dim:
            raise ComponentError(
                f"{library.path} is searched by {library.head.state_dim} state numbers, not {len(seen.state)}"
            )
        task = self._task(history.task, seen.instruction)
        return TakeState(
            task,
            history.arm or self._arm,
            draw,
            seen,
            len(history.actions),
            history.states,
            history.actions,
            history.memory,
        )

    def _task(self, task: str, instruction: str) -> str:
        """The name that has demonstrations; empty (all of them) where neither has."""
        if self._library is None:
            return task
        named = (name for name in (task, instruction) if name and self._library.view(name).matched != "all")
        return next(named, "")


class InSession(Augmented):
    """A policy that plays each episode in the arm that its history names, and does not tell which.

    ``begin`` gives a server's client its next episode.
    """

    def __init__(self, arms: ArmSampler, begin: Callable[[Any, Any], Awaitable[Any]]) -> None:
        super().__init__(arms, BASE, "in a session", "")
        self.begin = begin
        self.looks_back = True  # takes are recorded with what happened in them
        camera = arms.tools.world.score_camera
        cameras = (*arms.policy.spec.cameras, *([camera] if camera else []))
        self._spec = replace(self._spec, cameras=tuple(dict.fromkeys(cameras)))


def _raised(chunk: F32 | Exception) -> F32:
    if isinstance(chunk, Exception):
        raise chunk
    return chunk


def cooled(policy: Policy, noise: float) -> Augmented:
    """The policy with calmer sampling: ``a_init = noise * eps``, or a lower temperature."""
    spec = policy.spec
    if not spec.cools:
        raise ComponentError(f"{spec.name} cannot be cooled: its sampling noise is out of reach")
    if not 0 <= noise <= 1:
        raise ComponentError(f"noise must lie between 0 and 1, not {noise}")
    world = WorldSpec(spec.name, "", spec.action_dim, spec.state_dim or 0)
    arms = arm_sampler(policy, world, RetrievalConfig(noise=noise))
    return Augmented(arms, COOLED, f"cooled to noise x {noise:g}", f"cooled noise {noise}")


def retrieving(policy: Policy, library: Library, config: RetrievalConfig, camera: str | None = None) -> Augmented:
    """The policy warm-started from demonstrations. It reads the library's camera besides its own.

    ``camera`` is what the env calls the library's camera. The library says which state numbers are the end effector
    and which action number is the gripper.
    """
    spec = policy.spec
    if reason := unmet(spec, ("warm start",)):
        raise ComponentError(f"{spec.name}: nothing can be retrieved for it, {reason}")
    world = WorldSpec(
        spec.name, camera or library.head.camera, spec.action_dim, spec.state_dim or library.head.state_dim or 0,
        library.head.gripper_dim, library.head.eef_dims,
    )  # fmt: skip
    check_retrieval(library, world, config)
    arms = arm_sampler(policy, world, config, library, library.encoder())
    how = f"retrieving ({config.rule}, prior {config.prior:g}, noise {config.noise:g})"
    return Augmented(arms, RETRIEVE, how, f"{config} {library.fingerprint}")


def retrieval_from(
    path: Path, policy: str = "", dials: Mapping[str, float | None] | None = None
) -> tuple[Library, RetrievalConfig]:
    """The library and the configuration that ``path`` names, a library or a run.

    ``dials``, noise and prior, override its own. In a run each policy has its own: ``policy`` is the one served.
    """
    if (path / "run.json").is_file():
        library, config = _of_run(path, policy)
    else:
        library = Library.open(path)
        config = RetrievalConfig()
    try:
        own = {name: value for name, value in (dials or {}).items() if value is not None}
        return library, config.changed(own)
    except ValueError as error:
        raise PlanError(str(error)) from None


def _of_run(path: Path, policy: str) -> tuple[Library, RetrievalConfig]:
    manifest = Manifest.read(path)
    if "retrieval" not in manifest.identity or not manifest.library:
        raise PlanError(f"{path} was diagnosed without retrieval, so there is none to serve; name a library instead")
    library = Library.open(manifest.library)
    if library.fingerprint != manifest.identity["library"]:
        raise PlanError(f"{library.path} is no longer the library that {path} was diagnosed with; diagnose again")
    own = {name: value for name, value in manifest.identity.items() if name.startswith("retrieval ")}
    alike = len({repr(value) for value in own.values()}) == 1
    called = dict(zip(manifest.plan["policy"], manifest.plan.get("name") or (), strict=False))
    chosen = next(iter(own.values())) if alike else own.get(f"retrieval {called.get(policy, policy)}")
    if own and chosen is None:
        names = ", ".join(name.partition(" ")[2] for name in own)
        raise PlanError(f"{path} was diagnosed with other policies ({names}), and each has a retrieval of its own")
    return library, RetrievalConfig.from_dict(chosen or manifest.identity["retrieval"])
