"""What a plan names, made ready: environments, policies, library, encoder and retrieval settings.

What is wrong with a plan is found before the first take, most of it here. The user's own policy and env are also
rehearsed (`rehearse`, called by `policies`): takes can be repeated only if the env resets exactly and the policy takes
its noise from the draw, and neither shows in a result.
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
from besttake.scorers.score_run import Context, make_scorers, named_scorers
from besttake.takes.draws import Draw
from besttake.takes.jobs import TakeGrid
from besttake.takes.manifest import Extent, Manifest
from besttake.threads import PatientCaller
from besttake.types import F32, Array, EnvSpec, Observation, Start

_NOT_REHEARSED = ("python", "vla-eval")
"""Envs that are not rehearsed: one may be a robot whose scene a person sets up, the other takes minutes to build."""
_OF_OTHERS = ("gym", "hub")
_STEPS = 5
_CLOSE, _LEVELS = 1e-4, 8
"""How far numbers and grey levels may be apart: a GPU does not add in the same order twice. Noise is far larger."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """A plan and what it names. ``notes`` are remarks for the user; without demonstrations there is no ``library``.

    ``retrieval`` is that of the plan, until `choice` has chosen that of a policy. The first of
    ``scorers`` picks; takes are scored by all of ``panel``.
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
    """The specs of a plan's environments by URI; PlanError when they lack a planned task."""
    envs = {uri: spec_of(uri, trust_remote_code=plan.trust_remote_code) for uri in plan.env}
    known = [task.name for env in envs.values() for task in env.tasks]
    for name in plan.task:
        if name not in known:
            raise PlanError(f"no task {name!r} in {', '.join(envs)}; there are {', '.join(known[:12])}")
    return envs


def planned_starts(plan: Plan, envs: Mapping[str, EnvSpec]) -> list[Unit]:
    """All starts of a plan: (env, task, start)."""
    return [
        (uri, task.name, start)
        for uri, env in envs.items()
        for task in plan.chosen_tasks(env)
        for start in plan.chosen_starts(plan.offered(env), uri)
    ]


def grids_of(plan: Plan, envs: Mapping[str, EnvSpec], policy: str, arms: tuple[str, ...], seeds: int) -> list[TakeGrid]:
    """The planned takes of a policy in these arms, a grid per environment."""
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
    """Open or build the library that a plan names, and check that it suits the environments.

    ``each`` is a `map`, by which demonstrations are made ready.
    """
    made = make_scorers(named_scorers(plan.scorer))
    scorers = tuple(made[uri].spec for uri in plan.scorer)
    check_not_trained_on(scorers, planned_starts(plan, envs))
    library = library_for(plan, envs, reporter, each)
    if library is None:
        config = _retrieval(plan, envs, None)
        panel = tuple(made[uri] for uri in named_scorers(plan.scorer, demos=False))
        return Setup(plan, envs, None, None, config, scorers, (), panel)
    notes, retrieval = match_tasks(plan, envs, library), _retrieval(plan, envs, library)
    encoder = cached(library.encoder(), plan.patience)
    notes = [*(f"demonstrations: {note}" for note in library.head.notes), *notes]
    _log.info("library %s: %d demonstrations, encoder %s", library.path, len(library.demos), encoder.spec.name)
    return Setup(plan, envs, library, encoder, retrieval, scorers, tuple(notes), (*made.values(),))


WITHOUT_DEMOS = ("smoothness",)
"""The scorer of a plan that has no demonstrations."""


def with_defaults(plan: Plan) -> Plan:
    """The plan; one without demonstrations runs those default arms and scorers that need none."""
    if plan.demos is not None or _on_testbed(plan.env):
        return plan
    arms = tuple(uri for uri, spec in specs_of(plan.arms).items() if not spec.library)
    changes = {"arms": arms, "scorer": WITHOUT_DEMOS}
    return plan.model_copy(update={name: new for name, new in changes.items() if name not in plan.model_fields_set})


def load_policy(plan: Plan, uri: str) -> Policy:
    """The policy ``uri``, which may run code that comes with its checkpoint if the plan says so."""
    _log.info("loading policy %s", uri)
    return registry.policy(uri, trust_remote_code=plan.trust_remote_code)


def library_for(
    plan: Plan, envs: Mapping[str, EnvSpec], reporter: Reporter, each: Callable[..., Iterable[Any]] = map
) -> Library | None:
    """The library that a plan names: a directory, or demonstrations to build one from (once, cached).

    A plan that names none has one only on the testbed, which brings its own demonstrations.
    """
    named = "testbed" if plan.demos is None and _on_testbed(envs) else plan.demos
    if named is None:
        return None
    with reporter.stage("library", -1, "frames") as stage:
        options = Options(
            max_demos=plan.demos_per_task, gripper_dim=plan.gripper_dim, eef_dims=plan.eef_dims,
            gripper_threshold=plan.gripper_threshold, gripper_open=plan.gripper_open, gripper_as=gripper_of(envs),
            angle=plan.event_angle, turns=plan.event_turns,
        )  # fmt: skip
        return open_or_build(named, plan.encoder, options, BuildHooks(each, stage.reach, plan.patience))


def _on_testbed(envs: Iterable[str]) -> bool:
    return all(Uri.parse(uri).scheme == "testbed" for uri in envs)


def gripper_of(envs: Mapping[str, EnvSpec]) -> tuple[float, float] | None:
    """The commands that open and close the gripper in all ``envs``; None where they have none, or not the same."""
    signs = {env.gripper_open for env in envs.values() if env.gripper_dim is not None}
    return (float(sign), float(-sign)) if len(signs) == 1 and (sign := signs.pop()) else None


def match_tasks(plan: Plan, envs: Mapping[str, EnvSpec], library: Library) -> list[str]:
    """LibraryError when it lacks demonstrations of a planned task; else remarks on how tasks were matched."""
    return check_tasks(library, [task for env in envs.values() for task in plan.chosen_tasks(env)])


def encoder_without_demos(named: str | registry.FromFile | None, patience: float | None = None) -> Encoder:
    """The encoder of frames where there are no demonstrations that one could be fitted to: ``named``, else ``hog``."""
    encoder = registry.encoder(named or "hog")
    if isinstance(encoder, Fitted):
        raise PlanError(
            f"`encoder` {named}: it is fitted to demonstrations, and there are none; name another, e.g. hog"
        )
    return cached(encoder, patience)


def context_of(envs: Iterable[EnvSpec]) -> Context:
    """What scorers are told of the tasks."""
    tasks = [(task, env) for env in envs for task in env.tasks]
    return Context(
        {task.name: task.instruction for task, _ in tasks}, {task.name: env.score_camera for task, env in tasks}
    )


def scorer_notes(scorer: ScorerSpec) -> list[str]:
    """What a user should know of a scorer."""
    return [*scorer.notes, *([length_note(scorer.name)] if scorer.length else [])]


def length_note(scorer: str) -> str:
    """The remark on a scorer whose score depends on frames after its window."""
    return f"the scorer {scorer} reads a take's length, which can give the outcome away"


def check_not_trained_on(scorers: Iterable[ScorerSpec], starts: Collection[Unit]) -> None:
    """PlanError when a scorer would be judged on one of ``starts`` that it has learned from.

    An env is known by its name without options: another size of its pictures does not make a start another one.
    """
    planned = {(env.partition("?")[0], task, start) for env, task, start in starts}
    for spec in scorers:
        both = sorted(unit for unit in spec.trained_on if (unit[0].partition("?")[0], *unit[1:]) in planned)
        if both:
            env, task, start = both[0]
            raise PlanError(
                f"scorer {spec.name} was trained on start {start} of {task} in {env}; judge it on other `starts`"
            )


def _retrieval(plan: Plan, envs: Mapping[str, EnvSpec], library: Library | None) -> RetrievalConfig:
    """The retrieval settings of the plan, checked against library and environments."""
    config = RetrievalConfig.from_dict(plan.retrieval.given())
    if library is not None and plan.retrieval.rule is None and not library.has_events:
        config = replace(config, rule="frame")  # the one rule that matches no events, and nobody named another
    specs = specs_of(plan.arms)
    needs = [uri for uri, spec in specs.items() if spec.library]
    # An arm that names its settings and not `retrieval` among them compares chunks, and searches no states or events.
    retrieves = any(spec.library and (not spec.settings or "retrieval" in spec.settings) for spec in specs.values())
    if library is None:
        if needs:
            names = ", ".join(needs)
            raise PlanError(f"the arms {names} need demonstrations: name them with `demos`, or choose other `arms`")
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
    """The spec of an environment, which is made for it and closed again."""
    with registry.opened_env(uri, trust_remote_code=trust_remote_code) as env:
        _log.info("environment %s: %d tasks, %d starts each", uri, len(env.spec.tasks), len(env.spec.starts))
        return env.spec


def manifest_of(setup: Setup, command: str) -> Manifest:
    """What ``run.json`` says: identity (may not change when a run goes on) and extent (may only grow)."""
    plan, library = setup.plan, setup.library
    identity: dict[str, Any] = {
        "seed": plan.seed,
        "stride": plan.stride,
        "until": plan.until and hashlib.sha256(json.dumps(order_of(setup)).encode()).hexdigest()[:16],
        **{f"env {uri}": [env.fingerprint, setup.goes_on(env)] for uri, env in setup.envs.items()},
    }
    if plan.until is not None:  # the takes follow from these, so with another value the answers so far would not hold
        kept = None if plan.n == plan.seeds else plan.n
        identity |= {"seeds": plan.seeds, "best_of": kept, "worth": plan.worth}
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
    """All starts of the plan, in random order across tasks."""
    return random_order(planned_starts(setup.plan, setup.envs), setup.plan.seed)


def versions() -> dict[str, str]:
    """The versions that numbers may depend on."""
    libraries = ("numpy", "scipy", "mujoco", "torch", "lerobot", "hf-libero", "mani-skill")
    here = {"python": platform.python_version(), "machine": platform.machine()}
    return here | {name: number for name in libraries if (number := version(name, ""))}


def rehearsed(policy_uri: str, env_uri: str) -> bool:
    """Whether this pair is worth a rehearsal: one of the two is the user's own, and the env may be played."""
    policy, env = Uri.parse(policy_uri).scheme, Uri.parse(env_uri).scheme
    return env in _OF_OTHERS or (policy == "python" and env not in _NOT_REHEARSED)


def rehearse(policy: Policy, policy_uri: str, env_uri: str, patience: float | None = None) -> float:
    """ComponentError when ``policy`` or the env does not repeat; else the seconds that drawing a picture takes."""
    with registry.opened_env(env_uri) as env:
        if not getattr(env, "repeats", True):  # perhaps a robot whose scene a person sets up
            return 0.0
        spec = env.spec
        start, cameras = Start(spec.tasks[0].name, spec.starts[0]), {*policy.spec.cameras, spec.score_camera}
        before = _reset(env, start, sorted(cameras))
        caller = PatientCaller(f"the policy {policy_uri}", patience)
        with blaming(policy_uri):
            if Uri.parse(policy_uri).scheme == "python":
                caller(_check_policy, policy, policy_uri, before)
            chunk = caller(policy.sample, [before], [_draw(0)])[0]
        if Uri.parse(env_uri).scheme in _OF_OTHERS:
            _check_env(env, start, chunk[: min(policy.spec.replan, _STEPS)])
        began = time.perf_counter()
        env.observe((spec.score_camera,))
        return time.perf_counter() - began


def _draw(seed: int) -> Draw:
    return Draw(0, "rehearsal", start=0, seed=seed)


def _reset(env: Env, start: Start, cameras: Iterable[str]) -> Observation:
    env.reset(start)
    return env.observe(tuple(cameras))


def _check_policy(policy: Policy, uri: str, seen: Observation) -> None:
    """Same observation and draw, same chunk; of a deterministic policy also with another draw."""
    spec = policy.spec
    if not spec.seeded:
        return
    first, again, other = (policy.sample([seen], [_draw(seed)])[0] for seed in (0, 0, 1))
    if _difference(first, again) > _CLOSE:
        raise ComponentError(
            f"{uri} gave two different chunks for the same observation and the same draw, so its takes could be"
            " neither repeated nor paired. Take all noise from the draw (draw.normal(shape), draw.generator(), or"
            " torch.Generator().manual_seed(draw.integer())), and keep nothing from one call to the next. If its"
            " noise is out of your hands, say seeded=False in its spec"
        )
    if spec.kind == "deterministic" and _difference(first, other) > _CLOSE:
        raise ComponentError(f"{uri} calls itself deterministic, but its chunk changes with the draw")


def _check_env(env: Env, start: Start, actions: F32) -> None:
    """Same start and actions, same states and pictures."""
    name, first = env.spec.name, _played(env, start, actions)
    again = _played(env, start, actions)
    mend = (
        "if the env is yours, draw everything random from self.np_random, after super().reset(seed=seed); if it is not,"
        " rebuild=true in its URI may mend it; repeats=false accepts it as it is"
    )
    for step, (one, two) in enumerate(zip(first, again, strict=False)):
        for what, least, a, b in zip(("state", "picture"), (_CLOSE, _LEVELS), one, two, strict=True):
            if _difference(a, b) > least:
                when = f"at step {step} of the same actions" if step else f"after reset(seed={start.index})"
                raise ComponentError(
                    f"{name}: {when} the {what} is not the same twice, so starts are not fixed; {mend}"
                )


def _played(env: Env, start: Start, actions: F32) -> list[tuple[Array, Array]]:
    camera = env.spec.score_camera
    seen = [_reset(env, start, (camera,))]
    for action in actions:
        over = env.step(action)
        seen.append(env.observe((camera,)))
        if over.done:
            break
    return [(each.state, each.images[camera]) for each in seen]


def _difference(a: Array, b: Array) -> float:
    """The largest difference, relative to the size of the numbers where they are large."""
    if a.shape != b.shape:
        return float("inf")
    size = 1 if a.dtype == np.uint8 else np.maximum(1, np.abs(a))
    return float(np.max(np.abs(a.astype(np.float64) - b) / size, initial=0.0))
