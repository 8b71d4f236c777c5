"""Takes of what the check chose where no run of the study has it, on the same starts and draws, without pictures."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from bench.zoo.takes import F64
from besttake import registry
from besttake.arms.cooled import cooled_at
from besttake.config import load_plan
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.resolve import open_or_build
from besttake.files import short_hash
from besttake.takes.pool import WorkerPool
from besttake.takes.sizes import worker_count
from besttake.threads import one_thread
from besttake.verbs.diagnose.rollouts import Rollouts, arm_of


def played(directory: Path, uri: str, plan_file: Path, arm: RetrievalConfig | float) -> F64:
    """Success of each start (tasks, starts) under a retrieval configuration, or under cooling to a noise.

    Kept in ``directory/chosen``. ``plan_file`` says which starts, and how many seeds.
    """
    plan, env = load_plan(plan_file, {"policy": uri}), registry.env("testbed").spec
    name = cooled_at(arm) if isinstance(arm, float) else arm_of(arm)
    kept = directory / "chosen" / f"{Path(uri.partition(':')[2]).stem}-{short_hash(name)}.npy"
    if not kept.is_file():
        starts = plan.chosen_starts(env.starts, "testbed")
        rollouts = Rollouts(open_or_build("testbed"), uri, registry.policy(uri), "testbed", env, starts, plan.seeds, 0)
        with one_thread(), closing(WorkerPool(worker_count(plan.workers))) as pool:
            values = rollouts.success((name,), pool, lambda *_: None)[name]
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, values.reshape(len(env.tasks), -1), allow_pickle=False)
    return np.asarray(np.load(kept, allow_pickle=False), np.float64)
