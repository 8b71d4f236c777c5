"""What a plan names, made ready: environments, policies, library, encoder and retrieval settings.

Everything that can be wrong with a plan is found here, before the first take.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from besttake import registry
from besttake.arms.base import specs_of
from besttake.config import Plan
from besttake.conventions import check_actions, check_library
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import BuildHooks, Options
from besttake.demos.library import Library, check_camera, check_chunks, check_retrieval, check_tasks
from besttake.demos.resolve import open_or_build
from besttake.encoders.base import Encoder, Fitted
from besttake.encoders.cache import cached
from besttake.errors import PlanError
from besttake.measure.looks import Unit
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.registry import Uri
from besttake.scorers.base import Scorer, ScorerSpec
from besttake.scorers.scoring import Context, make_scorers, named_scorers
from besttake.types import EnvSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """A plan and what it names. ``notes`` are remarks for the user; without demonstrations there is no ``library``.

    ``planned`` is the retrieval by the plan; ``retrieval`` is that of the policy at hand. The
    first of ``scorers`` picks; takes are scored by all of ``panel``.
    """

    plan: Plan
    envs: Mapping[str, EnvSpec]
    library: Library | None
    encoder: Encoder | None
    retrieval: RetrievalConfig
    scorers: tuple[ScorerSpec, ...]
    notes: tuple[str, ...]
    planned: RetrievalConfig
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
    envs = {uri: spec_of(uri) for uri in plan.env}
    known = [task.name for env in envs.values() for task in env.tasks]
    for name in plan.task:
        if name not in known:
            raise PlanError(f"no task {name!r} in {', '.join(envs)}; there are {', '.join(known[:12])}")
    return envs


def set_up(
    plan: Plan, envs: Mapping[str, EnvSpec], reporter: Reporter, each: Callable[..., Iterable[Any]] = map
) -> Setup:
    """Open or build the library that a plan names, and check that it suits the environments.

    ``each`` is a `map`, by which demonstrations are made ready.
    """
    made = make_scorers(named_scorers(plan.scorer))
    scorers = tuple(made[uri].spec for uri in plan.scorer)
    starts = {
        (uri, task.name, start)
        for uri, env in envs.items()
        for task in plan.chosen_tasks(env)
        for start in plan.chosen_starts(plan.offered(env), uri)
    }
    check_not_trained_on(scorers, starts)
    library = library_for(plan, envs, reporter, each)
    if library is None:
        config = _retrieval(plan, envs, None)
        panel = tuple(made[uri] for uri in named_scorers(plan.scorer, demos=False))
        return Setup(plan, envs, None, None, config, scorers, (), config, panel)
    notes, retrieval, encoder = match_tasks(plan, envs, library), _retrieval(plan, envs, library), library.encoder()
    notes = [*(f"demonstrations: {note}" for note in library.head.notes), *notes]
    _log.info("library %s: %d demonstrations, encoder %s", library.path, len(library.demos), encoder.spec.name)
    return Setup(plan, envs, library, cached(encoder), retrieval, scorers, tuple(notes), retrieval, (*made.values(),))


def with_possible_arms(plan: Plan) -> Plan:
    """The plan; one that names neither arms nor demonstrations runs those default arms that need none."""
    if "arms" in plan.model_fields_set or plan.demos is not None or _on_testbed(plan.env):
        return plan
    arms = tuple(uri for uri, spec in specs_of(plan.arms).items() if not spec.library)
    return plan.model_copy(update={"arms": arms})


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
        return open_or_build(named, plan.encoder, options, BuildHooks(each=each, frames=stage.reach))


def _on_testbed(envs: Iterable[str]) -> bool:
    return all(Uri.parse(uri).scheme == "testbed" for uri in envs)


def gripper_of(envs: Mapping[str, EnvSpec]) -> tuple[float, float] | None:
    """The commands that open and close the gripper in all ``envs``; None where they have none, or not the same."""
    signs = {env.gripper_open for env in envs.values() if env.gripper_dim is not None}
    return (float(sign), float(-sign)) if len(signs) == 1 and (sign := signs.pop()) else None


def match_tasks(plan: Plan, envs: Mapping[str, EnvSpec], library: Library) -> list[str]:
    """LibraryError when it lacks demonstrations of a planned task; else remarks on how tasks were matched."""
    return check_tasks(library, [task for env in envs.values() for task in plan.chosen_tasks(env)])


def encoder_without_demos(named: str | registry.FromFile | None) -> Encoder:
    """The encoder of frames where there are no demonstrations that one could be fitted to: ``named``, else ``hog``."""
    encoder = registry.encoder(named or "hog")
    if isinstance(encoder, Fitted):
        raise PlanError(
            f"`encoder` {named}: it is fitted to demonstrations, and there are none; name another, e.g. hog"
        )
    return cached(encoder)


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
    """What to say of a scorer that depends on what follows a window."""
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


def spec_of(uri: str | registry.FromFile) -> EnvSpec:
    """The spec of an environment, which is made for it and closed again."""
    env = registry.env(uri)
    _log.info("environment %s: %d tasks, %d starts each", uri, len(env.spec.tasks), len(env.spec.starts))
    try:
        return env.spec
    finally:
        env.close()
