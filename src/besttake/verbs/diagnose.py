"""The diagnosis from end to end: env + policy -> takes -> embeddings -> scores -> statistics -> verdict."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from besttake import registry
from besttake.arms.sampler import ArmSampler, SmallActor, arms_of, looks
from besttake.compatibility import check_compatible
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.encoders.base import Encoder
from besttake.encoders.cache import CachedEncoder, cached
from besttake.encoders.skip import SkippingEncoder, SkipReport
from besttake.errors import LibraryError, PlanError
from besttake.measure.cell import count_cost, measure, probed_cells
from besttake.measure.cells import Recorded
from besttake.measure.probes import Probed
from besttake.measure.verdict import looks_of
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.registry import Uri
from besttake.result import Cell, Relation, Result
from besttake.scorers.scoring import score_run
from besttake.takes.draws import Draw
from besttake.takes.orders import Job
from besttake.takes.pool import LocalPool, Pool
from besttake.takes.probing import probe_policy
from besttake.takes.runner import play
from besttake.takes.store import Row, Store
from besttake.takes.take import TakeKey
from besttake.threads import one_thread
from besttake.types import EnvSpec, PolicySpec, TaskSpec


def diagnose(plan: Plan, out: str | Path, reporter: Reporter | None = None, command: str = "") -> Result:
    """Run (or go on with) the diagnosis in directory ``out``; its numbers are also in ``out/result.json``."""
    with one_thread():
        return _Diagnosis(plan, Path(out), reporter or Reporter(0), command).run()


def probe_only(plan: Plan, reporter: Reporter | None = None) -> list[Cell]:
    """The demonstration-fit error of each policy in each cell, without a take."""
    told = reporter or Reporter(0)
    with one_thread():
        envs = {uri: _spec_of(uri) for uri in plan.env}
        library = library_for(plan, list(envs.values()), told)
        if library is None:
            raise PlanError("the probe needs demonstrations; name them with --demos")
        for note in check_tasks(plan, list(envs.values()), library):
            told.note(note)
        specs, probes = {}, {}
        for uri in plan.policy:
            policy = load_policy(plan, uri)
            for env in envs.values():
                check_compatible(policy.spec, env)
            specs[uri], probes[uri] = policy.spec, probe_policy(policy, library, envs, plan, told)
        if all(probed.reason for probed in probes.values()):
            raise LibraryError(f"{library.path}: {next(iter(probes.values())).reason}")
        for uri, probed in probes.items():
            for note in probed.notes(specs[uri].name):
                told.note(note)
        return probed_cells(plan, envs, specs, probes)


def load_policy(plan: Plan, uri: str) -> Policy:
    """The policy ``uri``, with the plan's leave to run code that comes with it or not."""
    return registry.policy(uri, **trusted(uri, plan.trust_remote_code))


def trusted(uri: str, allowed: bool) -> dict[str, Any]:
    """The option that lets a checkpoint's own code run, for the kind of policy that has such code."""
    return {"trust_remote_code": True} if allowed and Uri.parse(uri).scheme == "openvla" else {}


def skipped_note(report: SkipReport) -> str:
    """What skipping still frames left out, and what it cost."""
    return (
        f"{report.skipped} of {report.frames} frames took the embedding of an earlier one; on {report.audited} of them"
        f" that were encoded all the same, the cosine was off by {report.mean_error:.4f} on average, at most"
        f" {report.worst_error:.4f}"
    )


def library_for(
    plan: Plan, envs: Sequence[EnvSpec], reporter: Reporter, each: Callable[..., Iterable[Any]] = map
) -> Library | None:
    """The library that a plan names: a directory, or demonstrations to build one from (once, cached).

    ``each`` is a `map` that may work elsewhere.
    """
    named = plan.demos
    if named is None:
        if all(Uri.parse(uri).scheme == "testbed" for uri in plan.env):
            named = "testbed"
        else:
            return None
    wanted = {task.name for env in envs for task in _tasks_of(plan, env)}
    with reporter.stage("library", len(wanted) * plan.demos_per_task, "demos") as stage:
        return open_or_build(
            named, plan.encoder, progress=lambda _: stage.advance(), each=each,
            max_demos=plan.demos_per_task, gripper_dim=plan.gripper_dim, eef_dims=plan.eef_dims,
        )  # fmt: skip


def check_tasks(plan: Plan, envs: Sequence[EnvSpec], library: Library) -> list[str]:
    """LibraryError when it lacks demonstrations of a planned task; else what is to be said about their names."""
    return library.check_tasks([task for env in envs for task in _tasks_of(plan, env)])


def _tasks_of(plan: Plan, env: EnvSpec) -> list[TaskSpec]:
    return [task for task in env.tasks if not plan.task or task.name in plan.task]


@dataclass
class _Diagnosis:
    plan: Plan
    out: Path
    reporter: Reporter
    command: str
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    encoded: int = 0
    pool: Pool | None = None

    def run(self) -> Result:
        """Set up, make what is missing, measure, and write ``result.json``."""
        try:
            self._set_up()
            return self._diagnosed()
        finally:
            if self.pool is not None:
                self.pool.close()

    def _set_up(self) -> None:
        plan = self.plan
        with self._timed("set-up"):
            self.envs = {uri: _spec_of(uri) for uri in plan.env}
            self._check_tasks()
            self.loaded = {plan.policy[0]: load_policy(plan, plan.policy[0])}
            self.library = library_for(plan, list(self.envs.values()), self.reporter, self._share)
            if self.library is not None:
                self.notes += check_tasks(plan, list(self.envs.values()), self.library)
            self.config = self._retrieval()
            self.encoder = cached(self.library.encoder()) if self.library is not None else None

    def _diagnosed(self) -> Result:
        plan = self.plan
        with Store.write(self.out, self._manifest()) as store:
            self._forget_the_bad(store)
            recorded, (cells, policies, relation) = self._record(store)
            cost = count_cost(recorded, self.seconds, self.encoded)
            result = Result(
                besttake=_version(), created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), command=self.command,
                digest=store.digest(), plan=plan.model_dump(mode="json"), versions=versions(),
                library=None if self.library is None else self.library.summary(), worth=plan.worth / 100,
                cells=cells, policies=policies, relation=relation, cost=cost, notes=self._all_notes(recorded.policies),
            )  # fmt: skip
            store.write_bytes("result.json", result.model_dump_json(indent=1).encode())
        return result

    def _record(self, store: Store) -> tuple[Recorded, tuple[list[Cell], list[Cell], Relation]]:
        """Make what is missing of takes and scores, and measure. Workers that made takes help with the rest."""
        plan = self.plan
        specs, probes = {}, {}
        for uri in plan.policy:
            specs[uri], probes[uri] = self._play(uri, store)
        helpers = self.pool if isinstance(self.pool, LocalPool) else None
        scores = None
        if self.library is not None and self.encoder is not None:
            with self._timed("scoring"):
                scores = self._score(store, self.library, self.encoder, helpers)
        with self._timed("statistics"):
            recorded = Recorded(
                plan=plan, envs=self.envs, policies=specs, rows=store.rows(), scores=scores, probes=probes,
                goes_on={uri: self._goes_on(env) for uri, env in self.envs.items()}, planned=self._planned(specs),
            )  # fmt: skip
            return recorded, measure(recorded, helpers.map if helpers is not None else map, looks_of(self.out))

    def _check_tasks(self) -> None:
        known = [task.name for env in self.envs.values() for task in env.tasks]
        for name in self.plan.task:
            if name not in known:
                raise PlanError(f"no task {name!r} in {', '.join(self.envs)}; there are {', '.join(known[:12])}")
        for uri, env in self.envs.items():
            self.plan.chosen_starts(env.starts, uri)

    def _retrieval(self) -> RetrievalConfig:
        tuned = self.library.retrieval if self.library is not None else None
        base = tuned.to_dict() if tuned is not None else {}
        try:
            config = RetrievalConfig.from_dict({**base, **self.plan.retrieval})
        except (TypeError, ValueError) as error:
            raise PlanError(f"retrieval: {str(error).split('() ')[-1]}") from error
        needs = [arm for arm in self.plan.arms if arm in ("retrieve", "shuffled", "rerank")]
        if needs and self.library is None:
            raise PlanError(
                f"the arms {', '.join(needs)} need demonstrations; name them with --demos, or --arms base,cooled"
            )
        if self.library is not None:
            for env in self.envs.values():
                self.library.check_camera(env)
        if needs and self.library is not None:
            for uri, env in self.envs.items():
                self.library.check_fit(env, config)
                self._check_not_tuned_here(self.library, uri, env)
        return config

    def _check_not_tuned_here(self, library: Library, uri: str, env: EnvSpec) -> None:
        tuned = library.tuned_on
        if tuned is not None and tuned["env"] == uri:
            both = sorted({*tuned["starts"]} & {*self.plan.chosen_starts(env.starts, uri)})
            if both:
                raise PlanError(f"{library.path} was tuned on start {both[0]} of {uri}; evaluate on others (--starts)")

    def _goes_on(self, env: EnvSpec) -> bool:
        return self.plan.window == "full" and env.goes_on

    def _manifest(self) -> dict[str, Any]:
        plan = self.plan
        identity: dict[str, Any] = {
            "seed": plan.seed,
            "stride": plan.stride,
            **{f"env {uri}": [env.fingerprint, self._goes_on(env)] for uri, env in self.envs.items()},
        }
        if "cooled" in plan.arms:
            identity["alpha"] = self.config.alpha
        if {"retrieve", "shuffled"} & set(plan.arms) and self.library is not None:
            identity["retrieval"] = self.config.to_dict()
            identity["library"] = self.library.fingerprint
        if "rerank" in plan.arms and self.library is not None:
            identity["candidates"] = [plan.candidates, self.library.fingerprint]
        return {
            "besttake": _version(),
            "command": self.command,
            "plan": plan.model_dump(mode="json"),
            "versions": versions(),
            "library": None if self.library is None else str(self.library.path),
            "identity": identity,
            "extent": {
                "policies": list(plan.policy),
                "tasks": [f"{uri} {task.name}" for uri, env in self.envs.items() for task in _tasks_of(plan, env)],
                "starts": sorted({s for uri, env in self.envs.items() for s in plan.chosen_starts(env.starts, uri)}),
                "seeds": list(range(plan.seeds)),
                "arms": list(plan.arms),
            },
        }

    def _forget_the_bad(self, store: Store) -> None:
        damaged = store.damaged()
        failed = [row for row in store.rows() if row.status == "error"]
        store.forget([*damaged, *failed])
        if damaged:
            self.reporter.note(f"{len(damaged)} takes are damaged and will be made again")
        if failed:
            self.reporter.note(f"{len(failed)} takes failed before and will be tried again")

    def _play(self, uri: str, store: Store) -> tuple[PolicySpec, Probed | None]:
        """Make the takes of a policy that are missing, and probe it; a policy with nothing to do is still loaded."""
        with self._timed("set-up"):
            policy = self.loaded.pop(uri, None) or load_policy(self.plan, uri)
            spec = policy.spec
            for env in self.envs.values():
                check_compatible(spec, env)
            store.claim(f"policy {uri}", spec.fingerprint)
            store.remember("skipped", uri, [a for a in self.plan.arms if a not in arms_of(spec, self.plan.arms)[0]])
        done = {row.key for row in store.rows()}
        with self._timed("takes"):
            for env_uri, env in self.envs.items():
                jobs = [job for job in self._jobs(uri, spec, env_uri, env) if job.key not in done]
                if jobs:
                    self._play_jobs(jobs, policy, env_uri, env, store)
        with self._timed("probe"):
            probed = None
            if self.library is not None and self.plan.probe_states:
                probed = probe_policy(policy, self.library, self.envs, self.plan, self.reporter)
                self.notes += probed.notes(spec.name)
        return spec, probed

    def _play_jobs(self, jobs: list[Job], policy: Policy, env_uri: str, env: EnvSpec, store: Store) -> None:
        plan = self.plan
        sampler = ArmSampler(policy, env, self.config, self.library, self.encoder, plan.candidates)
        scheme = Uri.parse(env_uri).scheme

        def draw(key: TakeKey) -> Draw:
            return Draw(plan.seed, f"{scheme}/{key.task}", key.start, key.seed)

        with self.reporter.stage(policy.spec.name[-16:], len(jobs), "takes") as stage:

            def told(row: Row) -> None:
                stage.advance()
                if row.error:
                    self.reporter.detail(f"{row.key.task} start {row.key.start} seed {row.key.seed}: {row.error}")

            tally = play(
                jobs, sampler, draw, store, self._workers(), batch=plan.batch, at_once=env.at_once, on_take=told
            )
        if tally.failed:
            self.reporter.note(f"{tally.failed} takes failed; `besttake runs show {self.out}` says why")

    def _share(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`map`, by the workers where they are processes of this machine."""
        pool = self._workers() if self.plan.on == "local" else None
        return pool.map(function, items) if isinstance(pool, LocalPool) else map(function, items)

    def _workers(self) -> Pool:
        """The workers, started when they are first needed and kept until the end."""
        if self.pool is None:
            if self.plan.on == "ray":
                from besttake.takes.ray import RayPool

                self.pool = RayPool(self.plan.workers)
            else:
                self.pool = LocalPool(self.plan.workers)
        return self.pool

    def _jobs(self, policy: str, spec: PolicySpec, env_uri: str, env: EnvSpec) -> list[Job]:
        arms, _ = arms_of(spec, self.plan.arms)
        starts = self.plan.chosen_starts(env.starts, env_uri)
        actor = self._actor(policy, spec)
        return [
            Job(
                key=TakeKey(policy, env_uri, task.name, start, arm, seed),
                horizon=task.horizon,
                cameras=tuple(dict.fromkeys((*spec.cameras, *((env.score_camera,) if looks(arm) else ())))),
                score_camera=env.score_camera,
                stride=self.plan.stride,
                goes_on=self._goes_on(env),
                actor=actor,
            )
            for task in _tasks_of(self.plan, env)
            for start in starts
            for arm in arms
            for seed in range(self.plan.seeds)
        ]

    def _actor(self, policy: str, spec: PolicySpec) -> SmallActor | None:
        """Who acts in the workers: a small policy whose arms look through a cheap encoder. On Ray the library may be
        out of a worker's reach, so there the engine acts."""
        cheap = self.encoder is None or self.encoder.spec.cheap
        if not spec.small or not cheap or self.plan.on != "local":
            return None
        return SmallActor(
            policy, self.config, None if self.library is None else str(self.library.path), self.plan.candidates
        )

    def _planned(self, specs: dict[str, PolicySpec]) -> set[TakeKey]:
        return {
            job.key
            for uri, spec in specs.items()
            for env_uri, env in self.envs.items()
            for job in self._jobs(uri, spec, env_uri, env)
        }

    def _score(self, store: Store, library: Library, encoder: Encoder, helpers: LocalPool | None) -> Any:
        count = sum(row.status == "done" for row in store.rows())
        still = SkippingEncoder(encoder, self.plan.skip_still) if self.plan.skip_still else None
        with self.reporter.stage("scoring", count, "takes") as stage:
            cheap = still is None and encoder.spec.cheap
            scores = score_run(
                store, library, still or encoder, pool=helpers if cheap else None, on_takes=stage.advance,
                instructions={task.name: task.instruction for env in self.envs.values() for task in env.tasks},
            )  # fmt: skip
        if still is not None and stage.done:
            self.notes.append(skipped_note(still.report()))
        self.encoded = encoder.encoded if isinstance(encoder, CachedEncoder) else scores.frames if stage.done else 0
        return scores

    def _all_notes(self, specs: Mapping[str, PolicySpec]) -> list[str]:
        notes = list(self.notes)
        for spec in specs.values():
            notes += [*arms_of(spec, self.plan.arms)[1], *spec.notes]
        for env in self.envs.values():
            notes += env.notes
            if self.plan.window == "episode":
                notes.append("the window `episode` leaks length: it is measured, and the verdict reads `common`")
            if self.plan.window == "full" and not env.goes_on:
                notes.append(f"{env.name} cannot go on after success: the verdict reads the window `common`")
        if self.library is None:
            notes.append("no demonstrations were named: nothing is scored, so selection cannot be judged")
        return list(dict.fromkeys(notes))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


def _spec_of(uri: str) -> EnvSpec:
    env = registry.env(uri)
    try:
        return env.spec
    finally:
        env.close()


def versions() -> dict[str, str]:
    """The versions that numbers may depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("numpy", "scipy", "mujoco", "torch", "lerobot", "hf-libero", "mani-skill"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _version() -> str:
    try:
        return version("besttake")
    except PackageNotFoundError:
        return "source"
