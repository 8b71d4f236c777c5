"""Takes per second of the engine against a straightforward loop, side by side. ``python -m bench rollouts``

The loop does what harnesses do: a reset for each take and every camera rendered at every step. The same policy, starts,
seeds and steps on both sides; the order alternates and the best of the rounds counts, because machines are noisy. What
a second worker can give at most is measured in the same run: two processes that step the same physics and share
nothing, against one. On virtual machines whose cores are two threads of one, that is far less than two.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from besttake import registry
from besttake.arms.sampler import PolicyFactory, arm_sampler
from besttake.core.retrieve import RetrievalConfig
from besttake.takes.draws import Draw
from besttake.takes.engine import play
from besttake.takes.jobs import Job
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import Start

POLICY, ENV = "testbed:mid", "testbed"
_BATCH, _ROUNDS = 64, 2


def keys(starts: int, seeds: int) -> list[TakeKey]:
    tasks = [task.name for task in registry.env(ENV).spec.tasks]
    return [
        TakeKey(POLICY, ENV, task, start, "base", seed)
        for task in tasks for start in range(starts) for seed in range(seeds)
    ]  # fmt: skip


def draw(key: TakeKey) -> Draw:
    return Draw(0, f"testbed/{key.task}", key.start, key.seed)


def plain_loop(work: list[TakeKey]) -> float:
    """Takes per second of a loop without any of our care."""
    env, policy = registry.env(ENV), registry.policy(POLICY)
    began = time.perf_counter()
    for key in work:
        env.reset(Start(key.task, key.start))
        seen = env.observe(env.spec.cameras)
        step, chunk = 0, 0
        while step < env.spec.task(key.task).horizon:
            actions = policy.sample([seen], [draw(key).at(chunk)])[0]
            for action in actions[: policy.spec.replan]:
                env.step(action)
                seen = env.observe(env.spec.cameras)
                step += 1
            chunk += 1
    return len(work) / (time.perf_counter() - began)


def engine(work: list[TakeKey], workers: int) -> float:
    """Takes per second of the engine, workers already up."""
    env, policy = registry.env(ENV).spec, registry.policy(POLICY)
    factory = PolicyFactory(POLICY, RetrievalConfig())
    jobs = [Job(key, env.task(key.task).horizon, (), "wrist", 5, True, factory=factory) for key in work]
    sampler = arm_sampler(policy, env.world, RetrievalConfig())
    pool = WorkerPool(workers)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            with Store.write(Path(scratch) / "warm", Manifest()) as store:
                play(jobs[:: max(1, len(jobs) // 64)], sampler, draw, store, pool, slots=_BATCH)
            with Store.write(Path(scratch) / "run", Manifest()) as store:
                began = time.perf_counter()
                play(jobs, sampler, draw, store, pool, slots=_BATCH)
                return len(work) / (time.perf_counter() - began)
    finally:
        pool.close()


def alone(processes: int) -> float:
    """Physics steps per second of processes that share nothing."""
    from bench.rollouts import stepping  # by its importable name, which the workers need

    pool = WorkerPool(processes)
    try:
        pool.map(stepping, [80] * processes)
        return sum(pool.map(stepping, [8000] * processes))
    finally:
        pool.close()


def stepping(steps: int) -> float:
    """Physics steps per second."""
    env, action = registry.env(ENV), np.array([0.3, 0.2, -0.3, 1], np.float32)
    env.reset(Start("pick", 0))
    began = time.perf_counter()
    for step in range(steps):
        if step % 80 == 0:
            env.reset(Start("pick", step))
        env.step(action)
    return steps / (time.perf_counter() - began)


def main() -> None:
    work = keys(12, 3)
    with one_thread():
        rounds = [
            (plain_loop(work[::12]), engine(work, 1), engine(work, 2), alone(1), alone(2)) for _ in range(_ROUNDS)
        ]
    plain, one, two, lone, pair = map(max, zip(*rounds, strict=True))
    print(f"plain loop  {plain:6.1f} takes/s")
    print(f"1 worker    {one:6.1f} takes/s   {one / plain:4.1f}x the loop")
    print(f"2 workers   {two:6.1f} takes/s   {two / plain:4.1f}x the loop, {two / one:4.2f}x one worker")
    print(f"            two processes that share nothing step {pair / lone:4.2f}x the physics of one on this machine")
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + 2 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    )
    print(f"peak memory of parent and two workers at most {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main()
