"""``tune: rollouts``: retrieval configurations rolled out on starts that are kept apart for it, beside `cooled` (S1).

The highest success is taken. A few starts seldom show a difference, and whoever prefers the weakest of those that are
not shown to be worse loses more by it than by the luck of the leader (docs/zoo.md).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from besttake.arms.cooled import cooled_at
from besttake.arms.sampler import SmallActor, arm_sampler
from besttake.core.offline import Check, complexity, lowest
from besttake.core.retrieve import RetrievalConfig
from besttake.core.stats import Estimate, difference_scale, mean_interval, unit_scale
from besttake.demos.library import Library
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.takes.engine import play
from besttake.takes.jobs import Block, take_draw
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.sizes import takes_per_worker
from besttake.takes.store import Store
from besttake.types import F64, EnvSpec
from besttake.verbs.diagnose.check import FIRST

_BATCH = 16
MOST = 6


@dataclass(frozen=True)
class Winner:
    """The configuration that succeeded most often on ``takes`` tuning starts.

    ``content`` is its success beyond cooling at the same noise, paired by start.
    """

    config: RetrievalConfig
    success: Estimate
    content: Estimate
    takes: int


def shortlist(check: Check, most: int = MOST) -> list[RetrievalConfig]:
    """The configurations worth rolling out, of those that the check tried.

    What it chose, at every prior; each rule as it is; and then the lowest errors.
    """
    tried = {one.config: lowest(one.added) for one in check.tried}
    chosen = [check.chosen] if check.chosen in tried and check.chosen is not None else []
    others = [c for own in chosen for c in tried if replace(c, prior=own.prior) == own]
    plain = [config for config in tried if config.prior == FIRST and not complexity(config)[0]]
    ranked = [*chosen, *others, *plain, *sorted(tried, key=lambda config: tried[config])]
    return list(dict.fromkeys(ranked))[:most]


def winner(outcomes: Mapping[str, F64], configs: Sequence[RetrievalConfig]) -> Winner:
    """The one of ``configs`` with the highest success; of equals the weakest prior, and then the simplest.

    ``outcomes`` is the success (S,) of each arm at each start.
    """
    means = {config: float(np.nanmean(outcomes[arm_of(config)])) for config in configs}
    config = min(configs, key=lambda one: (-means[one], one.prior, complexity(one)))
    values = outcomes[arm_of(config)]
    content = mean_interval(values - outcomes[cooled_at(config.noise)], difference_scale(1))
    return Winner(config, mean_interval(values, unit_scale()), content, len(values))


def arm_of(config: RetrievalConfig) -> str:
    """The arm that runs ``config`` whatever the plan says, as a URI."""
    values = config.to_dict()
    return "retrieve?" + "&".join(f"{name}={json.dumps(value)}".replace('"', "") for name, value in values.items())


@dataclass
class Rollouts:
    """A policy (``uri``), its env and the starts to roll it out from."""

    library: Library
    uri: str
    policy: Policy
    env_uri: str
    env: EnvSpec
    starts: tuple[int, ...]
    seeds: int
    run_seed: int

    def outcomes(self, configs: Sequence[RetrievalConfig], workers: int, reporter: Reporter) -> dict[str, F64]:
        """Success at every start (S,) of `cooled` and each configuration."""
        controls = (cooled_at(noise) for noise in sorted({config.noise for config in configs}))
        arms = (*controls, *map(arm_of, configs))
        total = len(arms) * len(self.env.tasks) * len(self.starts) * self.seeds
        with closing(WorkerPool(workers)) as pool, reporter.stage("tuning", total, "takes") as stage:
            return self.success(arms, pool, stage.advance)

    def success(self, arms: tuple[str, ...], pool: WorkerPool, done: Any) -> dict[str, F64]:
        """By arm: success at every start (S,) of all tasks, one after the other, the mean over seeds."""
        config = RetrievalConfig()
        units = [(task.name, start) for task in self.env.tasks for start in self.starts]
        with tempfile.TemporaryDirectory() as scratch, Store.write(scratch, Manifest()) as store:
            encoder = self.library.encoder()
            sampler = arm_sampler(self.policy, self.env.world, config, self.library, encoder)
            block = Block(self.uri, self.env_uri, self.env.tasks, self.starts, arms, self.seeds)
            small = self.policy.spec.small and encoder.spec.cheap
            actor = SmallActor(self.uri, config, str(self.library.path)) if small else None
            jobs = block.jobs(self.policy.spec, self.env, stride=None, goes_on=False, actor=actor)
            draw = partial(take_draw, self.run_seed)
            slots = takes_per_worker(_BATCH, pool.size, 0, self.env.at_once, acting=small)
            play(jobs, sampler, draw, store, pool, slots=slots, on_take=lambda _: done())
            rows = [row for row in store.rows() if row.status == "done"]
        success: dict[tuple[str, str, int], list[bool]] = {}
        for row in rows:
            success.setdefault((row.key.arm, row.key.task, row.key.start), []).append(bool(row.success))
        return {
            arm: np.array([np.mean(success.get((arm, *unit), [np.nan])) for unit in units], np.float64) for arm in arms
        }
