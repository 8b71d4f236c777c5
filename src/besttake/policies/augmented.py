"""A policy with an arm built in, for `besttake serve` or your own loop.

Some arms use the history of the episode. `follow` takes that history, and runs the same code as the arm of a diagnosis.
`sample`, the contract of every policy, has one observation per row and treats it as the first step of an episode.
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
    """An episode so far: the ``states`` of each step, the ``actions`` executed (one fewer), and the arm's ``memory``.

    ``task`` names the demonstrations to retrieve from; if it is empty, the instruction does. ``arm`` is that of the
    episode if the policy has several (`SessionPolicy`).
    """

    task: str = ""
    states: list[F32] = field(default_factory=list)
    actions: list[F32] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)
    arm: str = ""


class AugmentedPolicy:
    """A policy with an arm. ``how`` describes the arm in the name; ``fingerprint`` depends on its settings."""

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
        """The spec of the policy, with the cameras that the arm needs and without warm starts."""
        return self._spec

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """Sample the policy in this arm, each row at the first step of an episode."""
        if any(row is not None for row in warm or ()):
            raise ComponentError(f"{self._spec.name} is augmented already and takes no further warm start")
        chunks = self.follow_all(observations, draws, [EpisodeHistory(states=[seen.state]) for seen in observations])
        empty = np.empty((0, self._spec.horizon, self._spec.action_dim), np.float32)
        return np.stack([_raised(chunk) for chunk in chunks]) if chunks else empty

    def follow(self, observation: Observation, draw: Draw, history: EpisodeHistory) -> F32:
        """Sample one chunk (horizon, action_dim) at this point of ``history``."""
        return _raised(self.follow_all([observation], [draw], [history])[0])

    def follow_all(
        self, observations: Sequence[Observation], draws: Sequence[Draw], histories: Sequence[EpisodeHistory]
    ) -> list[F32 | Exception]:
        """`follow` for several episodes at once; an episode that fails gets its error instead of a chunk."""
        rows = zip(observations, draws, histories, strict=True)
        return self._arms.chunks([self._request(*row) for row in rows])

    def _request(self, seen: Observation, draw: Draw, history: EpisodeHistory) -> TakeState:
        library = self._library
        if library is not None and len(seen.state) != library.head.state_dim:
            raise ComponentError(
                f"{library.path} is searched by {library.head.state_dim} state numbers, not {len(seen.state)}"
            )
        task, arm = history.task, history.arm or self._arm
        if library is not None:  # the name that has demonstrations; empty (all of them) if neither has any
            names = (name for name in (task, seen.instruction) if name and library.view(name).matched != "all")
            task = next(names, "")
        return TakeState(
            task, arm, draw, seen, len(history.actions), history.states, history.actions, history.memory
        )  # fmt: skip


class SessionPolicy(AugmentedPolicy):
    """A policy that plays each episode in the arm that its history names, without revealing it.

    ``begin`` assigns the next episode to a client of the server.
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


def cooled(policy: Policy, noise: float) -> AugmentedPolicy:
    """Wrap the policy for calmer sampling: ``a_init = noise * eps``, or a lower temperature."""
    spec = policy.spec
    if not spec.cools:
        raise ComponentError(f"{spec.name} cannot be cooled: its sampling noise is out of reach")
    if not 0 <= noise <= 1:
        raise ComponentError(f"noise must lie between 0 and 1, not {noise}")
    world = WorldSpec(spec.name, "", spec.action_dim, spec.state_dim or 0)
    arms = arm_sampler(policy, world, RetrievalConfig(noise=noise))
    return AugmentedPolicy(arms, COOLED, f"cooled to noise x {noise:g}", f"cooled noise {noise}")


def retrieving(policy: Policy, library: Library, config: RetrievalConfig, camera: str | None = None) -> AugmentedPolicy:
    """Wrap the policy for warm starts from demonstrations. It then also reads the library's camera.

    ``camera`` is the env's name for that camera. The library says which state numbers are the end effector and which
    action number is the gripper.
    """
    spec = policy.spec
    if reason := unmet(spec, ("warm start",)):
        raise ComponentError(f"{spec.name} cannot use retrieval: {reason}")
    world = WorldSpec(
        spec.name, camera or library.head.camera, spec.action_dim, spec.state_dim or library.head.state_dim or 0,
        library.head.gripper_dim, library.head.eef_dims,
    )  # fmt: skip
    check_retrieval(library, world, config)
    arms = arm_sampler(policy, world, config, library, library.encoder())
    how = f"retrieving ({config.rule}, prior {config.prior:g}, noise {config.noise:g})"
    return AugmentedPolicy(arms, RETRIEVE, how, f"{config} {library.fingerprint}")


def read_retrieval(
    path: Path, policy: str = "", dials: Mapping[str, float | None] | None = None
) -> tuple[Library, RetrievalConfig]:
    """Read the library and the retrieval settings from ``path``, a library or a run.

    ``dials``, noise and prior, override those settings. A run has settings for each policy, chosen by ``policy``.
    """
    if (path / "run.json").is_file():
        library, config = _retrieval_of_run(path, policy)
    else:
        library, config = Library.open(path), RetrievalConfig()
    try:
        return library, config.changed({name: value for name, value in (dials or {}).items() if value is not None})
    except ValueError as error:
        raise PlanError(str(error)) from None


def _retrieval_of_run(path: Path, policy: str) -> tuple[Library, RetrievalConfig]:
    manifest = Manifest.read(path)
    if "retrieval" not in manifest.identity or not manifest.library:
        raise PlanError(f"{path} was diagnosed without retrieval, so there is none to serve; name a library instead")
    library = Library.open(manifest.library)
    if library.fingerprint != manifest.identity["library"]:
        raise PlanError(f"{library.path} is no longer the library that {path} was diagnosed with; diagnose again")
    settings = {name: value for name, value in manifest.identity.items() if name.startswith("retrieval ")}
    alike = len({repr(value) for value in settings.values()}) == 1
    names = dict(zip(manifest.plan["policy"], manifest.plan.get("name") or (), strict=False))
    chosen = next(iter(settings.values())) if alike else settings.get(f"retrieval {names.get(policy, policy)}")
    if settings and chosen is None:
        others = ", ".join(name.partition(" ")[2] for name in settings)
        raise PlanError(f"{path} was diagnosed with other policies ({others}), each with its own retrieval")
    return library, RetrievalConfig.from_dict(chosen or manifest.identity["retrieval"])
