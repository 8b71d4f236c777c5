"""The diagnosis from end to end: env + policy -> takes -> embeddings -> scores -> statistics -> verdict."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from besttake.arms import chosen
from besttake.arms.sampler import SmallActor, arm_sampler
from besttake.compatibility import check_compatible
from besttake.config import Plan, as_plan
from besttake.core.offline import Check
from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.encoders.cache import CachedEncoder
from besttake.encoders.skip import SkippingEncoder, SkipReport
from besttake.errors import RunError
from besttake.files import version
from besttake.measure.cell import count_cost, measure
from besttake.measure.cells import CellData, Recorded, Settings, Stop, cells_of
from besttake.measure.looks import Unit, history_of, random_order
from besttake.measure.probes import Probed
from besttake.measure.scores import Scores, run_digest
from besttake.policies.base import Policy
from besttake.progress import Reporter, as_reporter
from besttake.reporting.words import worded
from besttake.result import Result
from besttake.scorers.scoring import Scoring, named_scorers, score_run
from besttake.takes.jobs import Block, take_draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Extent, Manifest
from besttake.takes.orders import Job
from besttake.takes.pool import LocalPool, Workers
from besttake.takes.probing import probe_policy
from besttake.takes.runner import play
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import EnvSpec, PolicySpec
from besttake.verbs.choice import Choice, choose
from besttake.verbs.setup import Setup, load_policy, open_envs, scorer_notes, set_up
from besttake.verbs.until import PER_CELL, Course, play_until_decided

_log = logging.getLogger(__name__)


def diagnose(
    plan: Plan | str | Path, out: str | Path, *, progress: bool | Reporter = False, command: str = ""
) -> Result:
    """Measure what the policies of ``plan`` (a `Plan`, or a YAML file) need, in run directory ``out``.

    An unfinished run in ``out`` goes on. The result is also kept as ``out/result.json``.

    >>> plan = besttake.Plan(policy="testbed:half", env="testbed:pick", starts=20)  # doctest: +SKIP
    >>> besttake.diagnose(plan, out="runs/half").policies[0].verdict.headline       # doctest: +SKIP
    """
    plan, session = as_plan(plan), _Session(as_reporter(progress))
    with one_thread(), Workers(plan.workers, plan.on, plan.patience) as workers:
        with session.timed("set-up"):
            envs = open_envs(plan)
            for uri, env in envs.items():
                plan.chosen_starts(env.starts, uri)
            loaded = {plan.policy[0]: load_policy(plan, plan.policy[0])}
            setup = set_up(plan, envs, session.reporter, workers.map)
        session.notes += setup.notes
        with Store.write(out, _manifest(setup, command)) as store:
            _forget_the_bad(store, session.reporter)
            _log.info("run %s: %d takes are there", store.path, len(store.rows()))
            recorded = _record(setup, loaded, store, workers, session)
            with session.timed("statistics"):
                cells, policies, relation = measure(recorded, history_of(_previous(store)), workers.map_if_running)
            result = Result(
                besttake=version(), created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), command=command,
                digest=_digest(store), plan=plan.model_dump(mode="json"), versions=versions(),
                library=None if setup.library is None else setup.library.summary(), worth=plan.worth / 100,
                cells=[worded(c, plan.worth / 100) for c in cells],
                policies=[worded(c, plan.worth / 100) for c in policies], relation=relation,
                cost=count_cost(recorded, session.seconds, session.encoded), checks=session.checks,
                notes=_all_notes(setup, recorded.policies, session.notes),
            )  # fmt: skip
            store.keep("result.json", result.to_json().encode())
    return result


def _digest(store: Store) -> str:
    return run_digest(store.digest(), Scores.intact(store.path)[0])


def _previous(store: Store) -> Result | None:
    """The last result of a run, whose looks count, or its copy where the file is damaged; None if there is none."""
    try:
        return Result.load(store.path / "result.json")
    except RunError:
        copy = store.copy_of("result.json")
        return None if copy is None else Result.from_bytes(copy)


@dataclass
class _Session:
    """What one invocation keeps count of: seconds per stage, remarks, checks of retrieval, frames that it encoded."""

    reporter: Reporter
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    checks: dict[str, Check] = field(default_factory=dict)
    encoded: int = 0

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the time within as ``stage``'s."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began
            _log.debug("%s: %.2f s", stage, time.perf_counter() - began)


def _record(setup: Setup, loaded: dict[str, Policy], store: Store, workers: Workers, session: _Session) -> Recorded:
    """Make the takes, probes and scores that are missing. Workers that made takes also help to score them.

    Policies are large, so only one is held at a time: ``loaded`` is emptied.
    """
    plan, specs, probes = setup.plan, {}, {}
    settings, scoring = _settings(setup), _Scores(setup, store, workers, session)
    planned: list[TakeKey] = []
    stops: dict[str, Stop] = {}
    for left, uri in zip(range(len(plan.policy), 0, -1), plan.policy, strict=True):
        with session.timed("set-up"):
            policy = loaded.pop(uri, None) or load_policy(plan, uri)
            for env in setup.envs.values():
                check_compatible(policy.spec, env)
        with session.timed("check"):
            choice = _choose(uri, policy, setup, session)
            setup = replace(setup, retrieval=choice.config)
        own = _admit(uri, policy.spec, setup, store, choice.left_out)
        play = _Play(own, policy, setup, store, workers, session)
        if settings.places is None:
            keys = [key for block in own for key in block.take_keys()]
            play(keys)
        else:
            course = _course(own, policy.spec, setup, settings, play, scoring)
            budget = plan.budget or PER_CELL * len({*course.cell_of.values()}) * len(plan.policy)
            played = play_until_decided(course, (budget - len(planned)) // left)
            keys, stops = played.planned, {**stops, **played.stops}
        planned += keys
        with session.timed("probe"):
            probes[uri] = _probe(policy, setup, session)
        specs[uri] = policy.spec
        del policy, play
    with session.timed("scoring"):
        scores = scoring.finish()
        _say_what_was_mended(store, session.reporter)
    return Recorded(
        settings, envs=setup.envs, policies=specs, rows=store.rows(), scores=scores, probes=probes,
        goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned), stops=stops,
    )  # fmt: skip


def _settings(setup: Setup) -> Settings:
    """How to measure; for a run until decided also the place of each start in its order."""
    plan = setup.plan
    controls = {uri: spec.control for uri, spec in chosen.specs_of(plan.arms).items() if spec.control}
    places = {unit: i for i, unit in enumerate(_order(setup))} if plan.until is not None else None
    return Settings(
        plan.seeds, plan.n, plan.worth / 100, setup.scorer.name, tuple(plan.arms), plan.probe_samples, controls, places
    )


def _order(setup: Setup) -> list[Unit]:
    """All starts of the plan, in random order across tasks."""
    units = [
        (uri, task.name, start)
        for uri, env in setup.envs.items()
        for task in setup.plan.chosen_tasks(env)
        for start in setup.plan.chosen_starts(env.starts, uri)
    ]
    return random_order(units, setup.plan.seed)


def _course(
    blocks: list[Block], spec: PolicySpec, setup: Setup, settings: Settings, play: _Play, scoring: _Scores
) -> Course:
    """What a policy is run on until it is decided."""
    policy = blocks[0].policy
    groups = {(uri, task.name): task.group for uri, env in setup.envs.items() for task in env.tasks}
    order = sorted(settings.places or {}, key=(settings.places or {}).__getitem__)

    def observe(planned: Collection[TakeKey]) -> list[CellData]:
        with play.session.timed("scoring"):
            scores = scoring.add(planned)
        return cells_of(
            Recorded(
                settings, envs=setup.envs, policies={policy: spec}, rows=play.store.rows(), scores=scores, probes={},
                goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned),
            )
        )  # fmt: skip

    cells = {(env, task, start): (env, groups[env, task]) for env, task, start in order}
    return Course(policy, order, cells, blocks[0].arms, settings, play, observe)


def _choose(uri: str, policy: Policy, setup: Setup, session: _Session) -> Choice:
    """The retrieval of a policy's takes, with what there is to say about it, before the first of them."""
    choice = choose(uri, policy, setup.plan, setup.envs, setup.library, setup.planned, session.reporter)
    for note in choice.notes:
        session.reporter.note(note)
    session.notes += choice.notes
    if choice.check is not None:
        session.checks[uri] = choice.check
    return choice


def _admit(uri: str, spec: PolicySpec, setup: Setup, store: Store, left_out: tuple[str, ...]) -> list[Block]:
    """Bind the run to a policy and its retrieval, and note the arms that it cannot run or that are ``left_out``.

    Returns its planned takes, a block per environment.
    """
    plan = setup.plan
    store.claim(f"policy {uri}", spec.fingerprint)
    arms = tuple(arm for arm in chosen.runnable(spec, plan.arms, setup.retrieval.way)[0] if arm not in left_out)
    if any({"alpha", "retrieval"} & {*each.settings} for each in chosen.specs_of(arms).values()):
        store.claim(f"retrieval {uri}", setup.retrieval.to_dict())
    store.skip(uri, [arm for arm in plan.arms if arm not in arms])
    return [
        Block(uri, name, plan.chosen_tasks(env), plan.chosen_starts(env.starts, name), arms, plan.seeds)
        for name, env in setup.envs.items()
    ]


@dataclass
class _Play:
    """Plays takes of a policy that the run does not have yet, one environment after the other."""

    blocks: list[Block]
    policy: Policy
    setup: Setup
    store: Store
    workers: Workers
    session: _Session

    def __post_init__(self) -> None:
        plan, spec = self.setup.plan, self.policy.spec
        self.jobs: dict[str, list[Job]] = {}
        for block in self.blocks:
            env, actor = self.setup.envs[block.env], _actor(self.setup, block.policy, spec)
            goes_on = self.setup.goes_on(env)
            self.jobs[block.env] = block.jobs(spec, env, stride=plan.stride, goes_on=goes_on, actor=actor)

    def __call__(self, keys: Collection[TakeKey]) -> None:
        """Play those of ``keys`` that are missing."""
        with self.session.timed("takes"):
            missing = {*keys} - {row.key for row in self.store.rows()}
            for env, planned in self.jobs.items():
                jobs = [job for job in planned if job.key in missing]
                _log.info("%s in %s: %d of %d takes to play", self.blocks[0].policy, env, len(jobs), len(planned))
                if jobs:
                    self._play(jobs, self.setup.envs[env])

    def _play(self, jobs: list[Job], env: EnvSpec) -> None:
        setup, reporter = self.setup, self.session.reporter
        sampler = arm_sampler(
            self.policy, env.world, setup.retrieval, setup.library, setup.encoder, setup.plan.candidates
        )
        with reporter.stage(self.policy.spec.name[-16:], len(jobs), "takes") as stage:

            def finished(row: Row) -> None:
                stage.advance()
                if row.error:
                    _log.info("%s start %s seed %s failed: %s", row.key.task, row.key.start, row.key.seed, row.error)

            tally = play(
                jobs, sampler, partial(take_draw, setup.plan.seed), self.store, self.workers.pool(),
                batch=setup.plan.batch, at_once=env.at_once, on_take=finished,
            )  # fmt: skip
        if tally.stalled:
            reporter.note(f"{tally.stalled} workers gave no answer in time; their takes were tried again")
        if tally.failed:
            reporter.note(f"{tally.failed} takes failed; `besttake runs show {self.store.path}` says why")


def _actor(setup: Setup, policy: str, spec: PolicySpec) -> SmallActor | None:
    """Who acts in the workers: a small policy whose arms look through a cheap encoder. On Ray the library may be out
    of a worker's reach, so there the engine acts."""
    if not spec.small or not setup.cheap or setup.plan.on != "local":
        return None
    library = None if setup.library is None else str(setup.library.path)
    return SmallActor(policy, setup.retrieval, library, setup.plan.candidates)


def _probe(policy: Policy, setup: Setup, session: _Session) -> Probed | None:
    if setup.library is None or not setup.plan.probe_states:
        return None
    probed = probe_policy(policy, setup.library, setup.envs, setup.plan, session.reporter)
    session.notes += probed.notes(policy.spec.name)
    return probed


class _Scores:
    """Scores takes: all at the end, or for a run until decided round by round. Without demonstrations, none."""

    def __init__(self, setup: Setup, store: Store, workers: Workers, session: _Session) -> None:
        self.setup, self.store, self.workers, self.session = setup, store, workers, session
        plan, encoder = setup.plan, setup.encoder
        self.skipping = SkippingEncoder(encoder, plan.skip_still) if encoder is not None and plan.skip_still else None
        self.scoring: Scoring | None = None

    def add(self, keys: Collection[TakeKey]) -> Scores | None:
        """Score the takes of ``keys``; all scores so far."""
        if self.setup.library is None or self.setup.encoder is None:
            return None
        if self.scoring is None:
            self.scoring = Scoring(*self._sources(self.setup.library, self.setup.encoder), self._instructions())
        return self.scoring.add(keys, pool=self._pool())

    def finish(self) -> Scores | None:
        """The scores of all takes; those that the run has already are read."""
        encoder = self.setup.encoder
        if self.setup.library is None or encoder is None:
            return None
        count = sum(row.status == "done" for row in self.store.rows())
        with self.session.reporter.stage("scoring", count, "takes") as stage:
            if self.scoring is not None:
                scores = self.scoring.finish()
            else:
                scores = score_run(
                    *self._sources(self.setup.library, encoder), on_takes=stage.advance, pool=self._pool(),
                    instructions=self._instructions(),
                )  # fmt: skip
        made = bool(stage.done) or self.scoring is not None
        if self.skipping is not None and made:
            self.session.notes.append(_skipped_note(self.skipping.report()))
        if isinstance(encoder, CachedEncoder):
            _log.info("embeddings: %d encoded, %d from the cache", encoder.encoded, encoder.reused)
        self.session.encoded = encoder.encoded if isinstance(encoder, CachedEncoder) else scores.frames if made else 0
        return scores

    def _sources(self, library: Library, encoder: Encoder) -> tuple[Store, Library, Encoder, tuple[str, ...]]:
        return self.store, library, self.skipping or encoder, named_scorers(self.setup.plan.scorer)

    def _pool(self) -> LocalPool | None:
        return self.workers.running if self.skipping is None and self.setup.cheap else None

    def _instructions(self) -> dict[str, str]:
        return {task.name: task.instruction for env in self.setup.envs.values() for task in env.tasks}


def _forget_the_bad(store: Store, reporter: Reporter) -> None:
    """Drop takes that are damaged or failed, so that they are made again."""
    damaged, failed = store.damaged(), [row for row in store.rows() if row.status == "error"]
    store.forget([*damaged, *failed])
    _say_what_was_mended(store, reporter)
    if damaged:
        reporter.note(f"{len(damaged)} takes are damaged and will be made again")
    if failed:
        reporter.note(f"{len(failed)} takes failed before and will be tried again")


def _say_what_was_mended(store: Store, reporter: Reporter) -> None:
    while store.mended:
        reporter.note(store.mended.pop(0))


def _manifest(setup: Setup, command: str) -> Manifest:
    """What ``run.json`` says: identity (may not change when a run goes on) and extent (may only grow)."""
    plan, library = setup.plan, setup.library
    identity: dict[str, Any] = {
        "seed": plan.seed,
        "stride": plan.stride,
        "until": plan.until and hashlib.sha256(json.dumps(_order(setup)).encode()).hexdigest()[:16],
        **{f"env {uri}": [env.fingerprint, setup.goes_on(env)] for uri, env in setup.envs.items()},
    }
    fingerprint = None if library is None else library.fingerprint
    identity |= chosen.identity(chosen.specs_of(plan.arms), setup.retrieval, plan.candidates, fingerprint)
    return Manifest(
        besttake=version(), command=command, plan=plan.model_dump(mode="json"), versions=versions(),
        library=None if library is None else str(library.path), identity=identity,
        extent=Extent(
            policies=list(plan.policy), seeds=list(range(plan.seeds)), arms=list(plan.arms),
            tasks=[f"{uri} {task.name}" for uri, env in setup.envs.items() for task in plan.chosen_tasks(env)],
            starts=sorted({s for uri, env in setup.envs.items() for s in plan.chosen_starts(env.starts, uri)}),
        ),
    )  # fmt: skip


def _all_notes(setup: Setup, specs: Mapping[str, PolicySpec], noted: list[str]) -> list[str]:
    notes = list(noted)
    for spec in specs.values():
        notes += [*chosen.runnable(spec, setup.plan.arms, setup.retrieval.way)[1], *spec.notes]
    for env in setup.envs.values():
        notes += [*env.notes, *_window_notes(setup.plan.window, env)]
    notes += scorer_notes(setup.scorer)
    if setup.library is None:
        notes.append("no demonstrations were named: nothing is scored, so selection cannot be judged")
    return list(dict.fromkeys(notes))


def _window_notes(window: str, env: EnvSpec) -> list[str]:
    if window == "episode":
        return ["the window `episode` leaks length: it is measured, and the verdict reads `common`"]
    if window == "full" and not env.goes_on:
        return [f"{env.name} cannot go on after success: the verdict reads the window `common`"]
    return []


def _skipped_note(report: SkipReport) -> str:
    """What skipping still frames saved, and what it cost."""
    return (
        f"{report.skipped} of {report.frames} frames took the embedding of an earlier one; on {report.audited} of them"
        f" that were encoded all the same, the cosine was off by {report.mean_error:.4f} on average, at most"
        f" {report.worst_error:.4f}"
    )


def versions() -> dict[str, str]:
    """The versions that numbers may depend on."""
    libraries = ("numpy", "scipy", "mujoco", "torch", "lerobot", "hf-libero", "mani-skill")
    here = {"python": platform.python_version(), "machine": platform.machine()}
    return here | {name: number for name in libraries if (number := version(name, ""))}
