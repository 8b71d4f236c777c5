"""The contract of an arm: a way of running a frozen policy. Check yours with ``besttake.testing.check_arm``.

An arm decides what a take does next. It never calls the policy itself: it yields requests (a sample, an embedding) and
receives the answers, so that the requests of all takes in progress become one call of the policy and one of the
encoder.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from besttake import registry
from besttake.core.retrieve import RetrievalConfig, Retriever
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Observation, PolicySpec, Warm, WorldSpec

if TYPE_CHECKING:
    from besttake.demos.library import Library, View

Capability = Literal["cooling", "warm start", "candidates"]
Setting = Literal["noise", "retrieval", "candidates"]


@dataclass(frozen=True)
class ArmSpec:
    """What an arm is and what it needs.

    Attributes:
        name: Name of the arm in messages. Results name it by its URI.
        needs: What the policy must support: ``"cooling"`` (a `Warm` without a chunk), ``"warm start"`` (one with a
            chunk) or ``"candidates"`` (samples that differ from draw to draw).
        library: Whether it reads demonstrations.
        score_camera: Whether it needs the picture of the score camera at each replan.
        history: Whether it reads earlier states and actions of the take, or uses its ``memory``.
        control: URI of the arm that it is compared with if both are run; None for no arm.
        settings: Settings of the plan that its chunks depend on.
        fingerprint: Change it whenever the arm changes. A run is not continued with another fingerprint or settings.
    """

    name: str
    needs: tuple[Capability, ...] = ()
    library: bool = False
    score_camera: bool = False
    history: bool = False
    control: str | None = "base"
    settings: tuple[Setting, ...] = ()
    fingerprint: str = ""


@dataclass
class TakeState:
    """A take in progress, as its arm sees it.

    Attributes:
        task: Name of the task.
        arm: URI of the arm.
        draw: The randomness of this chunk.
        observation: What the policy sees now.
        step: Number of actions executed so far.
        states: States so far, float32 (state_dim,) each; one more than actions.
        actions: Actions so far, float32 (action_dim,) each.
        memory: A list for the arm's own use, empty at first and kept until the take ends.
    """

    task: str
    arm: str
    draw: Draw
    observation: Observation = field(default_factory=lambda: Observation({}, np.zeros(0, np.float32)))
    step: int = 0
    states: list[F32] = field(default_factory=list)
    actions: list[F32] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """A request for one chunk of the policy, float32 (horizon, action_dim)."""

    observation: Observation
    draw: Draw
    warm: Warm | None = None


@dataclass(frozen=True)
class Embed:
    """A request for the embedding (dim,) of an image, uint8 (H, W, 3), by the library's encoder."""

    image: U8


@dataclass(frozen=True)
class Perceive:
    """A request for the state (state_dim,) as the policy sees it at this chunk.

    This is the observed state, unless the policy has a perception error (`besttake.policies.base.Perception`).
    """

    observation: Observation
    draw: Draw


@dataclass(frozen=True)
class Recall:
    """A request for the best `Match` among the demonstrations of the take's task, by ``config``.

    ``embedding`` (dim,), ``chunk`` (horizon, action_dim) and ``state`` (state_dim,) are the query. ``phase`` says
    whether the gripper is open; None if that is unknown. Requests of several takes share one search.
    """

    take: TakeState
    config: RetrievalConfig
    embedding: F32
    chunk: F32
    state: F32
    phase: bool | None = None


Request = Sample | Embed | Perceive | Recall
Acting = Generator[Request | Sequence[Request], Any, Any]


class Arm(Protocol):
    """A way of running a frozen policy, such as ``base``, ``cooled`` or ``retrieve``.

    `besttake.testing.check_arm` checks an implementation.

    Examples:
        This arm executes the mean of three samples:

        >>> class MeanOfThree:
        ...     spec = ArmSpec("mean-of-three", needs=("candidates",), fingerprint="1")
        ...     def act(self, take, tools):
        ...         chunks = yield [Sample(take.observation, take.draw.candidate(c)) for c in range(3)]
        ...         return np.mean(chunks, axis=0)
    """

    @property
    def spec(self) -> ArmSpec:
        """The name of the arm, and what it needs of the policy and the plan."""
        ...

    def act(self, take: TakeState, tools: Tools) -> Acting:
        """Decide the next chunk of a take. This is a generator, which asks for what it needs and returns the chunk.

        An arm never calls the policy itself. It yields a request (`Sample`, `Embed`, `Perceive` or `Recall`)
        and receives the answer, or yields a list of requests and receives a list of answers. This way, requests of all
        takes in progress are answered in one batch. If a request fails, its error is raised at the ``yield``; unless
        the arm handles it, only this take fails.

        Args:
            take: The take so far: observation, states, actions, and ``memory`` that the arm may write to.
            tools: The specs of the policy and its environment, the plan's settings, and the demonstrations.

        Returns:
            Actions, float32 (horizon, action_dim), of which the first ``replan`` are executed. They may depend
            only on ``take`` and ``tools``, and all randomness must come from ``take.draw``.
        """
        ...


@dataclass
class Tools:
    """What arms may use: the policy's spec, the world it acts in, the plan's settings and the demonstrations."""

    policy: PolicySpec
    world: WorldSpec
    config: RetrievalConfig
    library: Library | None = None
    candidates: int = 4
    _retrievers: dict[tuple[str, RetrievalConfig], Retriever] = field(default_factory=dict)

    @property
    def demonstrations(self) -> Library:
        """The library, for arms whose spec asks for one."""
        assert self.library is not None, "arms that read demonstrations are only run with a library"
        return self.library

    def view(self, take: TakeState) -> View:
        """The demonstrations of the take's task."""
        return self.demonstrations.view(take.task, take.observation.instruction)

    def retriever(self, take: TakeState, config: RetrievalConfig | None = None) -> Retriever:
        """The retriever for the take's task, by the plan's configuration or another."""
        name = (take.task, config or self.config)
        if name not in self._retrievers:
            self._retrievers[name] = self.view(take).retriever(name[1], self.policy.horizon)
        return self._retrievers[name]

    def picture(self, take: TakeState) -> U8:
        """What the score camera shows now."""
        return take.observation.images[self.world.score_camera]

    def motion(self, take: TakeState) -> tuple[F32 | None, F32 | None]:
        """End-effector positions (step + 1, n) and gripper commands (step,) so far; None if unknown."""
        eef, gripper = self.world.eef_dims, self.world.gripper_dim
        positions = None if eef is None else np.stack(take.states)[:, list(eef)]
        commands = None if gripper is None else np.array([action[gripper] for action in take.actions], np.float32)
        return positions, commands


def specs_of(arms: Iterable[str]) -> dict[str, ArmSpec]:
    """The spec of each arm, by its URI."""
    return {uri: registry.arm(uri).spec for uri in arms}


def runnable(policy: PolicySpec, arms: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """The ``arms`` that the policy can run, and a one-line reason for each that it cannot."""
    reasons = {uri: unmet(policy, spec.needs) for uri, spec in specs_of(arms).items()}
    notes = [f"{policy.name}: no {uri} arm, {reason}" for uri, reason in reasons.items() if reason]
    return tuple(uri for uri, reason in reasons.items() if not reason), notes


def unmet(policy: PolicySpec, needs: tuple[Capability, ...]) -> str:
    """The reason why the policy cannot meet ``needs``; empty if it can."""
    if "cooling" in needs and not policy.cools:
        return f"its sampling noise is out of reach (kind {policy.kind}; `cools` in its spec)"
    if "warm start" in needs and not policy.warm_start:
        return "it cannot begin from a given chunk (`warm_start` in its spec)"
    if "candidates" in needs and policy.kind == "deterministic":
        return "a deterministic policy has one candidate"
    return ""


def identity(
    specs: Mapping[str, ArmSpec], config: RetrievalConfig, candidates: int, library: str | None
) -> dict[str, Any]:
    """What the takes of these arms depend on, for the run's identity; ``library`` is its fingerprint."""
    entries: dict[str, Any] = {}
    for uri, spec in specs.items():
        if "noise" in spec.settings:
            entries["noise"] = config.noise
        if "retrieval" in spec.settings:
            entries.update(retrieval=config.to_dict(), library=library)
        if "candidates" in spec.settings:
            entries["candidates"] = [candidates, library]
        if spec.fingerprint or (spec.library and not spec.settings):
            entries[f"arm {uri}"] = [spec.fingerprint, library if spec.library else None]
    return entries
