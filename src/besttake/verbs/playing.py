"""How a diagnosis plays the takes that its run does not have yet: by one engine here, or by many replicas."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import Self

from besttake.arms.sampler import ArmSampler, SmallActor, arm_sampler
from besttake.config import Plan
from besttake.encoders.cache import Arrivals, CachedEncoder
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.takes import devices
from besttake.takes.fleet import Fleet, Member, OnVectors, OwnMember, ProcessMember, Tell
from besttake.takes.jobs import Block, take_draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.orders import Job
from besttake.takes.pool import Workers
from besttake.takes.ray import Cluster, RayMember, own_modules
from besttake.takes.replica import Course
from besttake.takes.runner import Tally, UnderWay, play
from besttake.takes.sizes import AUTO, takes_under_way
from besttake.takes.store import Store
from besttake.takes.tempo import Load, Measured
from besttake.types import F32, EnvSpec, PolicySpec
from besttake.verbs.setup import Setup

_log = logging.getLogger(__name__)


def replica_count(plan: Plan, spec: PolicySpec) -> int:
    """How many replicas play on this machine: as planned, else one per GPU for a policy that may need one.

    A small policy is in every worker anyway, and one behind a server is not ours to copy.
    """
    if spec.small or plan.on == "ray":  # on Ray this process only feeds and writes
        return 1
    if plan.replicas != AUTO:
        return int(plan.replicas)
    return max(1, len(devices.gpus())) if spec.seeded else 1


def settled(uri: str, spec: PolicySpec) -> str:
    """The URI by which replicas make a policy: they take over the width that was measured here."""
    return re.sub(r"^(lerobot:.*[?&]width=)auto(?=&|$)", rf"\g<1>{spec.width}", uri)


def _no_vectors(vectors: Mapping[bytes, F32], encoded: int) -> None:
    """Replicas embed nothing."""


class Playing:
    """Plays takes of a policy that the run does not have yet, one environment after the other."""

    def __init__(
        self, blocks: list[Block], policy: Policy, setup: Setup, store: Store, workers: Workers, reporter: Reporter,
        saw: Callable[[Row], None],
    ) -> None:  # fmt: skip
        self.blocks, self.policy, self.setup = blocks, policy, setup
        self.store, self.workers, self.reporter = store, workers, reporter
        self._closing, self._saw = ExitStack(), saw
        self._fleet: Fleet | None = None
        spec, uri = policy.spec, blocks[0].policy
        library = None if setup.library is None else str(setup.library.path)
        self._recipe = SmallActor(
            settled(uri, spec),
            setup.retrieval,
            library,
            setup.plan.candidates,
            setup.plan.trust_remote_code and not spec.small,
            spec.fingerprint,
        )
        acting = spec.small and setup.cheap
        self.jobs: dict[str, list[Job]] = {}
        for block in blocks:
            env = setup.envs[block.env]
            self.jobs[block.env] = block.jobs(
                spec, env, stride=setup.plan.stride, goes_on=setup.goes_on(env),
                actor=self._recipe if acting else None,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def __call__(self, keys: Collection[TakeKey]) -> None:
        """Play those of ``keys`` that are missing."""
        missing = {*keys} - {row.key for row in self.store.rows()}
        for env, planned in self.jobs.items():
            jobs = [job for job in planned if job.key in missing]
            _log.info("%s in %s: %d of %d takes to play", self.blocks[0].policy, env, len(jobs), len(planned))
            if jobs:
                self._play(jobs, self.setup.envs[env])

    def _play(self, jobs: list[Job], env: EnvSpec) -> None:
        reporter, plan, count = self.reporter, self.setup.plan, self.workers.count
        acting = jobs[0].actor is not None
        usual = takes_under_way(plan.batch, count, self.policy.spec.width, acting=acting)
        batch = None if plan.batch == AUTO and not acting else usual
        with reporter.stage(f"takes {self.policy.spec.name[-24:]}", len(jobs), "takes", plays=True) as stage:

            def finished(row: Row) -> None:
                self._saw(row)
                stage.advance()
                if row.error:
                    _log.info("%s start %s seed %s failed: %s", row.key.task, row.key.start, row.key.seed, row.error)

            if plan.on == "ray" or replica_count(plan, self.policy.spec) > 1:
                course = Course(self._recipe, env, partial(take_draw, plan.seed), batch, usual, self._embeds)
                with ExitStack() as ending:
                    encoder = self.setup.encoder
                    keep: OnVectors = _no_vectors
                    if course.embeds and isinstance(encoder, CachedEncoder):
                        keep = ending.enter_context(Arrivals(encoder)).add
                    tally = self._replicas().play(course, jobs, self.store, finished, keep)
            else:
                tally = self._play_here(jobs, env, UnderWay(batch, env.at_once, usual, self._loaded), finished)
        _log.info("%d workers; %s", count, f"sampling {tally.sampling:.0%} of the time")
        if tally.stalled:
            reporter.note(f"{tally.stalled} workers gave no answer in time; their takes were tried again")
        if tally.failed:
            reporter.note(f"{tally.failed} takes failed; `besttake runs show {self.store.path}` says why")

    @property
    def _embeds(self) -> bool:
        """Whether replicas embed the frames of their takes: where an encoder is costly, and every frame needs it."""
        return isinstance(self.setup.encoder, CachedEncoder) and not self.setup.plan.skip_still

    def _loaded(self, load: Load, measured: Measured) -> None:
        """Say what was chosen."""
        text = f"{load.workers} of {self.workers.count} workers, {load.takes} takes under way: {measured}"
        self.reporter.note(text)

    def _play_here(self, jobs: list[Job], env: EnvSpec, under_way: UnderWay, finished: Callable[[Row], None]) -> Tally:
        return play(
            jobs, self._sampler(env), partial(take_draw, self.setup.plan.seed), self.store, self.workers.pool(),
            batch=under_way, on_take=finished,
        )  # fmt: skip

    def _sampler(self, env: EnvSpec) -> ArmSampler:
        setup = self.setup
        return arm_sampler(self.policy, env.world, setup.retrieval, setup.library, setup.encoder, setup.plan.candidates)

    def _replicas(self) -> Fleet:
        """The replicas, started by the first call."""
        if self._fleet is None:
            makers = self._on_ray() if self.setup.plan.on == "ray" else self._on_this_machine()
            self._fleet = self._closing.enter_context(Fleet(makers, self.reporter.note))
        return self._fleet

    def _on_this_machine(self) -> list[Callable[[Tell], Member]]:
        """This process is the first replica, with the policy that is loaded here; the others are processes."""
        plan, visible = self.setup.plan, devices.gpus()
        makers: list[Callable[[Tell], Member]] = [
            partial(OwnMember, lambda course: self._sampler(course.env), self.workers.pool)
        ]
        for index in range(1, replica_count(plan, self.policy.spec)):
            variables = devices.variables(visible[index % len(visible)]) if visible else {}
            makers.append(partial(ProcessMember, self.workers.count, plan.patience, variables))
        return makers

    def _on_ray(self) -> list[Callable[[Tell], Member]]:
        """Every replica is an actor of its own."""
        plan, spec = self.setup.plan, self.policy.spec
        cluster = self._closing.enter_context(
            closing(Cluster(own_modules([self.blocks[0].policy, *plan.env, *plan.arms])))
        )
        gpus = 0.0 if spec.small and plan.gpus_per_replica is None else plan.gpus_per_replica
        replicas, workers = (None if count == AUTO else int(count) for count in (plan.replicas, plan.workers))
        layout = cluster.layout(replicas, workers, gpus)
        if layout.room < layout.replicas:
            few = f"the Ray cluster has room for {layout.room} of {layout.replicas} replicas"
            self.reporter.note(f"{few}; the others start as nodes join it")
        return [partial(RayMember, cluster, layout.workers, layout.gpus, plan.patience)] * layout.replicas
