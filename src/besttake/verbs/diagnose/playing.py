"""Play the takes that a run does not have yet, with one engine in this process or with several replicas on Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

from besttake.arms.sampler import PolicyFactory, arm_sampler
from besttake.config import Plan
from besttake.errors import MissingExtra
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.takes.engine import Tally, play
from besttake.takes.jobs import Job, TakeGrid, take_draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import WorkerPool
from besttake.takes.ray import Assignment, Cluster, Replicas, own_modules
from besttake.takes.sizes import AUTO, cores, gpus, takes_per_worker
from besttake.takes.store import Store
from besttake.types import EnvSpec, PolicySpec
from besttake.verbs.diagnose.setup import Setup

_log = logging.getLogger(__name__)


def check_replicas(plan: Plan) -> None:
    """Raise `MissingExtra` if a plan needs several replicas or a cluster, and Ray is not installed."""
    if (plan.on == "ray" or plan.replicas not in (AUTO, 1)) and not _has_ray():
        raise MissingExtra("ray", "ray", "a run with several replicas")


def replica_count(plan: Plan, spec: PolicySpec) -> int:
    """How many replicas play on this machine: as planned, else one per GPU for a policy that may use one.

    A small policy runs in every worker anyway, and one behind a server cannot be copied. Without Ray there is one.
    """
    if plan.on == "ray":  # this process only feeds and writes
        return 1
    if plan.replicas != AUTO:
        return int(plan.replicas)
    return max(1, len(gpus())) if _uses_a_gpu(spec) and _has_ray() else 1


def _uses_a_gpu(spec: PolicySpec) -> bool:
    return spec.seeded and not spec.small


def _has_ray() -> bool:
    return find_spec("ray") is not None


@dataclass(frozen=True)
class TakePlayerFactory:
    """Makes the player of each policy's takes: the engine, or people.

    ``identity`` is added to that of the run. ``loaded``: policies that are loaded already, by URI.
    """

    make: Callable[..., TakePlayer]
    identity: Mapping[str, Any] = field(default_factory=dict)
    loaded: Mapping[str, Policy] = field(default_factory=dict)


class TakePlayer:
    """Plays the takes of a policy that the run does not have yet, one environment after the other."""

    def __init__(
        self, grids: list[TakeGrid], uri: str, policy: Policy, setup: Setup, store: Store, workers: WorkerPool,
        reporter: Reporter, on_take: Callable[[Row], None],
    ) -> None:  # fmt: skip
        self.grids, self.uri, self.policy, self.setup = grids, uri, policy, setup
        self.store, self.workers, self.reporter = store, workers, reporter
        self._closing, self._on_take = ExitStack(), on_take
        self._running: Replicas | None = None
        spec = policy.spec
        library = None if setup.library is None else str(setup.library.path)
        trusted = setup.plan.trust_remote_code and not spec.small
        self._factory = PolicyFactory(uri, setup.retrieval, library, setup.plan.candidates, trusted, spec.fingerprint)
        if setup.plan.replicas == AUTO and _uses_a_gpu(spec) and len(gpus()) > 1 and not _has_ray():
            reporter.note(f"one of {len(gpus())} GPUs is used; for a replica on each: pip install 'besttake[ray]'")
        in_workers = spec.small and setup.cheap
        self.jobs: dict[str, list[Job]] = {}
        for grid in grids:
            env = setup.envs[grid.env]
            self.jobs[grid.env] = grid.jobs(
                spec, env, stride=setup.plan.stride, goes_on=setup.goes_on(env),
                factory=self._factory if in_workers else None,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def __call__(self, keys: Collection[TakeKey]) -> None:
        """Play the takes of ``keys`` that are missing."""
        missing = {*keys} - {row.key for row in self.store.rows()}
        for env, planned in self.jobs.items():
            jobs = [job for job in planned if job.key in missing]
            _log.info("%s in %s: %d of %d takes to play", self.grids[0].policy, env, len(jobs), len(planned))
            if jobs:
                self._play(jobs, self.setup.envs[env])

    def remarks(self) -> list[str]:
        """Remarks for the result on how the takes were played."""
        return []

    def _play(self, jobs: list[Job], env: EnvSpec) -> None:
        reporter = self.reporter
        with reporter.stage(f"takes {self.grids[0].policy[-24:]}", len(jobs), "takes", plays=True) as stage:

            def finished(row: Row) -> None:
                self._on_take(row)
                stage.advance()
                if row.error:
                    _log.info("%s start %s seed %s failed: %s", row.key.task, row.key.start, row.key.seed, row.error)

            if self.setup.plan.on == "ray" or replica_count(self.setup.plan, self.policy.spec) > 1:
                tally = self._play_on_replicas(jobs, env, finished)
            else:
                tally = self._play_here(jobs, env, finished)
        _log.info("sampling %.0f %% of the time", 100 * tally.sampling)
        if tally.stalled:
            reporter.note(f"{tally.stalled} workers gave no answer in time; their takes were tried again")
        if tally.failed:
            reporter.note(f"{tally.failed} takes failed; `besttake runs show {self.store.path}` says why")

    def _play_here(self, jobs: list[Job], env: EnvSpec, finished: Callable[[Row], None]) -> Tally:
        setup, plan = self.setup, self.setup.plan
        sampler = arm_sampler(self.policy, env.world, setup.retrieval, setup.library, setup.encoder, plan.candidates)
        return play(
            jobs, sampler, partial(take_draw, plan.seed), self.store, self.workers,
            slots=self._slots(self.workers.size, jobs, env), on_take=finished,
        )  # fmt: skip

    def _play_on_replicas(self, jobs: list[Job], env: EnvSpec, finished: Callable[[Row], None]) -> Tally:
        replicas, draw = self._replicas(), partial(take_draw, self.setup.plan.seed)
        library = "" if self.setup.library is None else self.setup.library.fingerprint
        assignment = Assignment(self._factory, env, draw, self._slots(replicas.workers, jobs, env), library)
        return replicas.play(assignment, jobs, self.store, finished)

    def _slots(self, workers: int, jobs: list[Job], env: EnvSpec) -> int:
        acting = jobs[0].factory is not None
        return takes_per_worker(self.setup.plan.batch, workers, self.policy.spec.width, env.at_once, acting=acting)

    def _replicas(self) -> Replicas:
        """The replicas, on the cluster or on this machine; the first call starts them."""
        if self._running is not None:
            return self._running
        plan, spec, share = self.setup.plan, self.policy.spec, self.setup.plan.gpus_per_replica
        replicas, workers = (None if count == AUTO else int(count) for count in (plan.replicas, plan.workers))
        local_cores = None
        if plan.on == "local":
            replicas = replica_count(plan, spec)
            local_cores = max(cores(), replicas * (workers or 1))
            if share is None and (local_gpus := len(gpus())):
                share = 1 / -(-replicas // local_gpus)
        if spec.small and plan.gpus_per_replica is None:
            share = 0.0
        modules = own_modules([self.uri, *plan.env, *plan.arms, plan.encoder or ""])
        cluster = self._closing.enter_context(closing(Cluster(modules, local_cores)))
        layout = cluster.layout(replicas, workers, share)
        if layout.room < layout.replicas:
            room = f"the Ray cluster has room for {layout.room} of {layout.replicas} replicas"
            self.reporter.note(f"{room}; the others start as nodes join it")
        started = Replicas(cluster, layout.replicas, layout.workers, layout.gpus, plan.patience, self.reporter.note)
        self._running = self._closing.enter_context(started)
        return self._running
