"""Set up what a plan names: environments, policies, library, encoder and retrieval settings.

Mistakes in a plan are reported before the first take, and most of them are found here. The user's own policy and env
are also rehearsed (`rehearse`, called by `policies`): takes can be repeated only if the env resets exactly and the
policy takes its noise from the draw, and no result would show that they do not.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake import registry
from besttake.arms.base import identity as arms_identity
from besttake.arms.base import specs_of
from besttake.config import Plan
from besttake.conventions import check_actions, check_library
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import BuildHooks, Options
from besttake.demos.library import Library, check_camera, check_chunks, check_retrieval, check_tasks
from besttake.demos.resolve import open_or_build, source_of
from besttake.encoders.base import Encoder, Fitted
from besttake.encoders.cache import cached
from besttake.envs.base import Env
from besttake.errors import ComponentError, PlanError, blaming
from besttake.files import version
from besttake.measure.looks import Unit, random_order
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.registry import Uri
from besttake.scorers.base import Scorer, ScorerSpec
from besttake.scorers.score_run import Context, all_scorers, make_scorers
from besttake.takes.draws import Draw
from besttake.takes.jobs import TakeGrid
from besttake.takes.manifest import Extent, Manifest
from besttake.threads import PatientCaller
from besttake.types import F32, Array, EnvSpec, Observation, Start

_NOT_REHEARSED = ("python", "vla-eval")
"""Envs that are not rehearsed: one may be a robot whose scene a person sets up, the other takes minutes to build."""
_FOREIGN = ("gym", "hub")
_STEPS = 5
_CLOSE, _LEVELS = 1e-4, 8
"""Tolerances of numbers and grey levels: a GPU adds in another order each time. Noise is far larger."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """A plan and the components that it names. ``library`` is None without demonstrations.

    ``retrieval`` has the plan's settings, until `choice` has chosen those of a policy. The first of ``scorers`` picks
    the take to keep; takes are scored by all of ``panel``. ``notes`` are remarks for the user.
    """

    plan: Plan
    envs: Mapping[str, EnvSpec]
    library: Library | None
    encoder: Encoder | None
    retrieval: RetrievalConfig
    scorers: tuple[ScorerSpec, ...]
    notes: tuple[str, ...]
    panel: tuple[Scorer, ...]

    @property
    def cheap(self) -> bool:
        """Whether encoding a frame costs so little that every worker may do it."""
        return self.encoder is None or self.encoder.spec.cheap

    def goes_on(self, env: EnvSpec) -> bool:
        """Whether takes go on after success."""
        return self.plan.window == "full" and env.goes_on


def open_envs(plan: Plan) -> dict[str, EnvSpec]:
    """Open a plan's environments for their specs, by URI; PlanError if none has a planned task."""
    envs = {uri: spec_of(uri, trust_remote_code=plan.trust_remote_code) for uri in plan.env}
    known = [task.name for env in envs.values() for task in env.tasks]
    for name in plan.task:
        if name not in known:
            raise PlanError(f"no task {name!r} in {', '.join(envs)}; there are {', '.join(known[:12])}")
    return envs


def planned_starts(plan: Plan, envs: Mapping[str, EnvSpec]) -> list[Unit]:
    """All starts of a plan, as (env, task, start)."""
    return [
        (uri, task.name, start)
        for uri, env in envs.items()
        for task in plan.chosen_tasks(env)
        for start in plan.chosen_starts(plan.offered(env), uri)
    ]


def grids_of(plan: Plan, envs: Mapping[str, EnvSpec], policy: str, arms: tuple[str, ...], seeds: int) -> list[TakeGrid]:
    """The planned takes of a policy in ``arms``, one grid per environment."""
    return [
        TakeGrid(policy, uri, plan.chosen_tasks(env), plan.chosen_starts(plan.offered(env), uri), arms, seeds)
        for uri, env in envs.items()
    ]


def check_starts_and_demos(plan: Plan, envs: Mapping[str, EnvSpec]) -> None:
    """Raise an error if an env lacks a planned start, or if the demonstrations do not exist; loads nothing large."""
    for uri, env in envs.items():
        plan.chosen_starts(plan.offered(env), uri)
    if plan.demos is not None and not (Path(plan.demos) / "library.json").is_file():
        source_of(plan.demos)


def set_up(
    plan: Plan, envs: Mapping[str, EnvSpec], reporter: Reporter, each: Callable[..., Iterable[Any]] = map
) -> Setup:
    """Make a plan's scorers, open or build its library, and check that they suit the environments.

    ``each`` is `map` or that of a pool, by which demonstrations are processed.
    """
    by_uri = make_scorers(all_scorers(plan.scorer))
    scorers = tuple(by_uri[uri].spec for uri in plan.scorer)
    check_not_trained_on(scorers, planned_starts(plan, envs))
    library = library_for(plan, envs, reporter, each)
    if library is None:
        config = _retrieval(plan, envs, None)
        panel = tuple(by_uri[uri] for uri in all_scorers(plan.scorer, demos=False))
        return Setup(plan, envs, None, None, config, scorers, (), panel)
    notes, retrieval = match_tasks(plan, envs, library), _retrieval(plan, envs, library)
    encoder = cached(library.encoder(), plan.patience)
    notes = [*(f"demonstrations: {note}" for note in library.head.notes), *notes]
    _log.info("library %s: %d demonstrations, encoder %s", library.path, len(library.demos), encoder.spec.name)
    return Setup(plan, envs, library, encoder, retrieval, scorers, tuple(notes), (*by_uri.values(),))


WITHOUT_DEMOS = ("smoothness",)
"""The default scorer of a plan without demonstrations."""


def with_defaults(plan: Plan) -> Plan:
    """The plan, in which arms and scorer default to those that need no demonstrations if there are none."""
    if plan.demos is not None or _on_testbed(plan.env):
        return plan
    arms = tuple(uri for uri, spec in specs_of(plan.arms).items() if not spec.library)
    changes = {"arms": arms, "scorer": WITHOUT_DEMOS}
    return plan.model_copy(update={name: new for name, new in changes.items() if name not in plan.model_fields_set})


def load_policy(plan: Plan, uri: str) -> Policy:
    """Load the policy ``uri``. It may run code that comes with its checkpoint if the plan allows this."""
    _log.info("loading policy %s", uri)
    return registry.policy(uri, trust_remote_code=plan.trust_remote_code)


def library_for(
    plan: Plan, envs: Mapping[str, EnvSpec], reporter: Reporter, each: Callable[..., Iterable[Any]] = map
) -> Library | None:
    """Open the library that a plan names, or build it from demonstrations, unless the cache has it.

    None if the plan names no demonstrations, except on the testbed, which has its own.
    """
    demos = "testbed" if plan.demos is None and _on_testbed(envs) else plan.demos
    if demos is None:
        return None
    with reporter.stage("library", -1, "frames") as stage:
        options = Options(
            max_demos=plan.demos_per_task, gripper_dim=plan.gripper_dim, eef_dims=plan.eef_dims,
            gripper_threshold=plan.gripper_threshold, gripper_open=plan.gripper_open, gripper_as=gripper_of(envs),
            angle=plan.event_angle, turns=plan.event_turns,
        )  # fmt: skip
        return open_or_build(demos, plan.encoder, options, BuildHooks(each, stage.reach, plan.patience))


def _on_testbed(envs: Iterable[str]) -> bool:
    return all(Uri.parse(uri).scheme == "testbed" for uri in envs)


def gripper_of(envs: Mapping[str, EnvSpec]) -> tuple[float, float] | None:
    """The commands that open and close the gripper in all ``envs``; None if these have no gripper or differ."""
    signs = {env.gripper_open for env in envs.values() if env.gripper_dim is not None}
    return (float(sign), float(-sign)) if len(signs) == 1 and (sign := signs.pop()) else None


def match_tasks(plan: Plan, envs: Mapping[str, EnvSpec], library: Library) -> list[str]:
    """Remarks on how demonstrations match the planned tasks; LibraryError if a task has none."""
    return check_tasks(library, [task for env in envs.values() for task in plan.chosen_tasks(env)])


def encoder_without_demos(uri: str | registry.FromFile | None, patience: float | None = None) -> Encoder:
    """The encoder ``uri`` (default ``hog``) for a run without demonstrations; PlanError if it is fitted to some."""
    encoder = registry.encoder(uri or "hog")
    if isinstance(encoder, Fitted):
        raise PlanError(f"`encoder` {uri}: it is fitted to demonstrations, and there are none; name another, e.g. hog")
    return cached(encoder, patience)


def context_of(envs: Iterable[EnvSpec]) -> Context:
    """The instructions and score cameras of all tasks, for scorers."""
    tasks = [(task, env) for env in envs for task in env.tasks]
    return Context(
        {task.name: task.instruction for task, _ in tasks}, {task.name: env.score_camera for task, env in tasks}
    )


def scorer_notes(scorer: ScorerSpec) -> list[str]:
    """What a user should know about a scorer."""
    return [*scorer.notes, *([length_note(scorer.name)] if scorer.length else [])]


def length_note(scorer: str) -> str:
    """The remark on a scorer whose score depends on what follows its window."""
    return f"the scorer {scorer} reads a take's length, which can give the outcome away"


def check_not_trained_on(scorers: Iterable[ScorerSpec], starts: Collection[Unit]) -> None:
    """PlanError if a scorer would be judged on one of ``starts`` that it was trained on.

    Options of an env do not count: with pictures of another size, a start is still the same.
    """
    planned = {(env.partition("?")[0], task, start) for env, task, start in starts}
    for spec in scorers:
        shared = sorted(unit for unit in spec.trained_on if (unit[0].partition("?")[0], *unit[1:]) in planned)
        if shared:
            env, task, start = shared[0]
            raise PlanError(
                f"scorer {spec.name} was trained on start {start} of {task} in {env}; judge it on other `starts`"
            )


def _retrieval(plan: Plan, envs: Mapping[str, EnvSpec], library: Library | None) -> RetrievalConfig:
    """The retrieval settings of the plan, checked against library and environments."""
    config = RetrievalConfig.from_dict(plan.retrieval.given())
    if library is not None and plan.retrieval.rule is None and not library.has_events:
        config = replace(config, rule="frame")  # the only rule that needs no events
    specs = specs_of(plan.arms)
    needs = [uri for uri, spec in specs.items() if spec.library]
    # An arm whose settings do not include `retrieval` compares chunks, and searches neither states nor events.
    retrieves = any(spec.library and (not spec.settings or "retrieval" in spec.settings) for spec in specs.values())
    if library is None:
        if needs:
            arms = ", ".join(needs)
            raise PlanError(f"the arms {arms} need demonstrations: name them with `demos`, or choose other `arms`")
        return config
    for env in envs.values():
        check_camera(library, env)
    for env in envs.values() if needs else ():
        if retrieves:
            check_retrieval(library, env, config)
            check_library(library, env)
        else:
            check_chunks(library, env)
            check_actions(library, env)
    return config


def spec_of(uri: str | registry.FromFile, *, trust_remote_code: bool = False) -> EnvSpec:
    """Open an environment, return its spec, and close it again."""
    with registry.opened_env(uri, trust_remote_code=trust_remote_code) as env:
        _log.info("environment %s: %d tasks, %d starts each", uri, len(env.spec.tasks), len(env.spec.starts))
        return env.spec


def manifest_of(setup: Setup, command: str) -> Manifest:
    """The manifest of a run, with its identity (may not change when the run continues) and extent (may only grow)."""
    plan, library = setup.plan, setup.library
    identity: dict[str, Any] = {
        "seed": plan.seed,
        "stride": plan.stride,
        "until": plan.until and hashlib.sha256(json.dumps(order_of(setup)).encode()).hexdigest()[:16],
        **{f"env {uri}": [env.fingerprint, setup.goes_on(env)] for uri, env in setup.envs.items()},
    }
    if plan.until is not None:  # the choice of takes depends on these
        best_of = None if plan.n == plan.seeds else plan.n
        identity |= {"seeds": plan.seeds, "best_of": best_of, "worth": plan.worth}
        identity |= {"scorer": plan.scorer[0], "window": plan.window}
    fingerprint = None if library is None else library.fingerprint
    identity |= arms_identity(specs_of(plan.arms), setup.retrieval, plan.candidates, fingerprint)
    return Manifest(
        besttake=version(), command=command, plan=plan.model_dump(mode="json"), versions=versions(),
        library=None if library is None else str(library.path), identity=identity,
        extent=Extent(
            policies=list(plan.names.values()), seeds=list(range(plan.seeds)), arms=list(plan.arms),
            tasks=[f"{uri} {task.name}" for uri, env in setup.envs.items() for task in plan.chosen_tasks(env)],
            starts=sorted({start for _, _, start in planned_starts(plan, setup.envs)}),
        ),
    )  # fmt: skip


def order_of(setup: Setup) -> list[Unit]:
    """All starts of the plan, in an order that is random across tasks."""
    return random_order(planned_starts(setup.plan, setup.envs), setup.plan.seed)


def versions() -> dict[str, str]:
    """The versions of software on which numbers may depend."""
    libraries = ("numpy", "scipy", "mujoco", "torch", "lerobot", "hf-libero", "mani-skill")
    system = {"python": platform.python_version(), "machine": platform.machine()}
    return system | {name: number for name in libraries if (number := version(name, ""))}


def needs_rehearsal(policy_uri: str, env_uri: str) -> bool:
    """Whether to rehearse a pair: the policy or the env is the user's own, and the env can be played at once."""
    policy, env = Uri.parse(policy_uri).scheme, Uri.parse(env_uri).scheme
    return env in _FOREIGN or (policy == "python" and env not in _NOT_REHEARSED)


def rehearse(policy: Policy, policy_uri: str, env_uri: str, patience: float | None = None) -> float:
    """Return the seconds that rendering a picture takes; ComponentError if ``policy`` or the env does not repeat."""
    with registry.opened_env(env_uri) as env:
        if not getattr(env, "repeats", True):  # perhaps a robot whose scene a person sets up
            return 0.0
        spec = env.spec
        start, cameras = Start(spec.tasks[0].name, spec.starts[0]), {*policy.spec.cameras, spec.score_camera}
        observation = _reset(env, start, sorted(cameras))
        caller = PatientCaller(f"the policy {policy_uri}", patience)
        with blaming(policy_uri):
            if Uri.parse(policy_uri).scheme == "python":
                caller(_check_policy, policy, policy_uri, observation)
            chunk = caller(policy.sample, [observation], [_draw(0)])[0]
        if Uri.parse(env_uri).scheme in _FOREIGN:
            _check_env(env, start, chunk[: min(policy.spec.replan, _STEPS)])
        began = time.perf_counter()
        env.observe((spec.score_camera,))
        return time.perf_counter() - began


def _draw(seed: int) -> Draw:
    return Draw(0, "rehearsal", start=0, seed=seed)


def _reset(env: Env, start: Start, cameras: Iterable[str]) -> Observation:
    env.reset(start)
    return env.observe(tuple(cameras))


def _check_policy(policy: Policy, uri: str, observation: Observation) -> None:
    """ComponentError unless the same observation gives the same chunk with the same draw, or with any if `spec.kind`
    is deterministic."""
    spec = policy.spec
    if not spec.seeded:
        return
    first, again, other = (policy.sample([observation], [_draw(seed)])[0] for seed in (0, 0, 1))
    if _difference(first, again) > _CLOSE:
        raise ComponentError(
            f"{uri} gave two different chunks for the same observation and the same draw, so its takes could be"
            " neither repeated nor paired. Take all noise from the draw (draw.normal(shape), draw.generator(), or"
            " torch.Generator().manual_seed(draw.integer())), and keep nothing from one call to the next. If you"
            " cannot control its noise, set seeded=False in its spec"
        )
    if spec.kind == "deterministic" and _difference(first, other) > _CLOSE:
        raise ComponentError(f"{uri} calls itself deterministic, but its chunk changes with the draw")


def _check_env(env: Env, start: Start, actions: F32) -> None:
    """ComponentError unless the same start and actions give the same states and pictures."""
    name, first = env.spec.name, _play_actions(env, start, actions)
    again = _play_actions(env, start, actions)
    hint = (
        "if the env is yours, draw everything random from self.np_random, after super().reset(seed=seed); if it is not,"
        " rebuild=true in its URI may help; repeats=false accepts it as it is"
    )
    for step, (old, new) in enumerate(zip(first, again, strict=False)):
        for part, tolerance, a, b in zip(("state", "picture"), (_CLOSE, _LEVELS), old, new, strict=True):
            if _difference(a, b) > tolerance:
                when = f"at step {step} of the same actions" if step else f"after reset(seed={start.index})"
                raise ComponentError(
                    f"{name}: {when} the {part} is not the same twice, so starts are not fixed; {hint}"
                )


def _play_actions(env: Env, start: Start, actions: F32) -> list[tuple[Array, Array]]:
    """The states and pictures from ``start`` on, until the actions or the episode end."""
    camera = env.spec.score_camera
    observations = [_reset(env, start, (camera,))]
    for action in actions:
        step = env.step(action)
        observations.append(env.observe((camera,)))
        if step.done:
            break
    return [(observation.state, observation.images[camera]) for observation in observations]


def _difference(a: Array, b: Array) -> float:
    """The largest difference, relative to ``a`` where its numbers exceed 1; infinite if the shapes differ."""
    if a.shape != b.shape:
        return float("inf")
    size = 1 if a.dtype == np.uint8 else np.maximum(1, np.abs(a))
    return float(np.max(np.abs(a.astype(np.float64) - b) / size, initial=0.0))
