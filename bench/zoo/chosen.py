"""Takes of what the check chose where no run of the study has it, on the same starts and draws, without pictures."""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from bench.zoo.takes import F64
from besttake import registry
from besttake.arms.cooled import cooled_at
from besttake.arms.sampler import PolicyFactory, arm_sampler
from besttake.config import Plan, load_plan
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.resolve import open_or_build
from besttake.files import short_hash
from besttake.takes.engine import play
from besttake.takes.jobs import TakeGrid, take_draw
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.sizes import takes_per_worker, worker_count
from besttake.takes.store import Store
from besttake.threads import one_thread


def played(directory: Path, uri: str, plan_file: Path, arm: RetrievalConfig | float) -> F64:
    """Success of each start (tasks, starts) under a retrieval configuration, or under cooling to a noise.

    Kept in ``directory/chosen``. ``plan_file`` says which starts, and how many seeds.
    """
    plan = load_plan(plan_file, {"policy": uri})
    name = cooled_at(arm) if isinstance(arm, float) else _arm_of(arm)
    kept = directory / "chosen" / f"{Path(uri.partition(':')[2]).stem}-{short_hash(name)}.npy"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, _success(uri, plan, name), allow_pickle=False)
    return np.asarray(np.load(kept, allow_pickle=False), np.float64)


def _arm_of(config: RetrievalConfig) -> str:
    """The arm that runs ``config`` whatever the plan says, as a URI."""
    values = config.to_dict().items()
    return "retrieve?" + "&".join(f"{name}={json.dumps(value)}".replace('"', "") for name, value in values)


def _success(uri: str, plan: Plan, arm: str) -> F64:
    """Mean success over seeds (tasks, starts)."""
    env, policy, library = registry.env("testbed").spec, registry.policy(uri), open_or_build("testbed")
    starts, config = plan.chosen_starts(env.starts, "testbed"), RetrievalConfig()
    with tempfile.TemporaryDirectory() as scratch, Store.write(scratch, Manifest()) as store:
        sampler = arm_sampler(policy, env.world, config, library, library.encoder())
        factory = PolicyFactory(uri, config, str(library.path))
        block = TakeGrid(uri, "testbed", env.tasks, starts, (arm,), plan.seeds)
        jobs = block.jobs(policy.spec, env, stride=None, goes_on=False, factory=factory)
        with one_thread(), closing(WorkerPool(worker_count(plan.workers))) as pool:
            slots = takes_per_worker(16, pool.size, 0, env.at_once, acting=True)
            play(jobs, sampler, partial(take_draw, 0), store, pool, slots=slots)
        success: dict[tuple[str, int], list[bool]] = {}
        for row in store.rows():
            success.setdefault((row.key.task, row.key.start), []).append(bool(row.success))
    return np.array([[np.mean(success[task.name, start]) for start in starts] for task in env.tasks])
