"""LIBERO under BestTake against vla-eval's own LIBERO class, side by side in one process and one run.

    python -m bench.libero                       # needs hf-libero and vla-eval in the same environment

The same chunked policy (the same actions) drives both: it looks at both cameras when it replans, and a score looks at
the wrist camera at every fifth step. vla-eval renders both cameras at every step whoever looks; BestTake renders what
is asked for. Blocks of the two alternate, so that a noisy machine is noisy for both. Each block is a take: a reset and
some steps. BestTake's first take of a start resets, the others restore, as the engine does.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from besttake import registry
from besttake.types import Start

STRIDE = 5
TARGETS = {10: 5.5, 50: 8.0}


@dataclass
class Clock:
    """Seconds of each take's reset and of each of its steps, by the wall and by this process's CPU time."""

    resets: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take(self, reset: float, per_step: float, cpu_per_step: float) -> None:
        self.resets.append(reset)
        self.steps.append(per_step)
        self.cpu.append(cpu_per_step)

    def rate(self) -> float:
        return 1 / float(np.mean(self.steps))

    def takes_an_hour(self, horizon: int) -> float:
        return 3600 / (float(np.mean(self.resets)) + horizon * float(np.mean(self.steps)))


def ours(
    env: Any, start: Start, snapshot: Any, actions: Any, replan: int
) -> tuple[tuple[float, float, float], Any, bytes]:
    """What the take cost, the state to restore for the next one, and the last picture."""
    began = time.perf_counter()
    if snapshot is None:
        env.reset(start)
        snapshot = env.save()
    else:
        env.restore(snapshot)
    ready, cpu = time.perf_counter(), time.process_time()
    for step, action in enumerate(actions):
        cameras = ("agentview", "wrist") if step % replan == 0 else ("wrist",) if step % STRIDE == 0 else ()
        env.observe(cameras)
        env.step(action)
    cost = ready - began, *_each(actions, ready, cpu)
    return cost, snapshot, env.observe(("wrist",)).images["wrist"].tobytes()


def theirs(benchmark: Any, task: dict[str, Any], index: int, actions: Any, replan: int) -> tuple[float, float, float]:
    began = time.perf_counter()
    seen = benchmark.reset({**task, "episode_idx": index})
    ready, cpu = time.perf_counter(), time.process_time()
    for step, action in enumerate(actions):
        if step % replan == 0 or step % STRIDE == 0:
            benchmark.make_obs(seen, task)
        seen = benchmark.step({"actions": action}).obs
    return ready - began, *_each(actions, ready, cpu)


def _each(actions: Any, ready: float, cpu: float) -> tuple[float, float]:
    return (time.perf_counter() - ready) / len(actions), (time.process_time() - cpu) / len(actions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="object")
    parser.add_argument("--task", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50, help="steps per take (a multiple of 50 is fair to both)")
    parser.add_argument("--takes", type=int, default=3, help="takes of the start, alternating between the two")
    asked = parser.parse_args()

    env = registry.env(f"libero:{asked.suite}?task={asked.task}&convention=vla-eval")
    name = env.spec.tasks[0].name
    env.reset(Start(name, 0))
    env.observe(env.spec.cameras)
    from vla_eval.benchmarks.libero.benchmark import LIBEROBenchmark
    from vla_eval.recording import NullEpisodeRecorder

    benchmark = LIBEROBenchmark(suite=f"libero_{asked.suite}", send_wrist_image=True, send_state=True)
    benchmark._recorder = NullEpisodeRecorder()
    task = benchmark.get_tasks()[asked.task]
    benchmark.reset({**task, "episode_idx": 0})

    actions = np.random.default_rng(0).uniform(-0.3, 0.3, (asked.steps, 7)).astype(np.float32)
    print(f"{name}: {asked.takes} takes of {asked.steps} steps each, scoring every {STRIDE} steps")
    for replan in TARGETS:
        mine, other, snapshot, pictures = Clock(), Clock(), None, set()
        for _ in range(asked.takes):
            took, snapshot, picture = ours(env, Start(name, 0), snapshot, actions, replan)
            mine.take(*took)
            pictures.add(picture)
            other.take(*theirs(benchmark, task, 0, actions, replan))
        assert len(pictures) == 1, (
            "the same take ends in different pictures: one of the two spoils the other's graphics"
        )
        horizon = env.spec.tasks[0].horizon
        cpu, hours = np.mean(other.cpu) / np.mean(mine.cpu), [each.takes_an_hour(horizon) for each in (mine, other)]
        print(
            f"replan {replan:3d}: steps/s {mine.rate():.2f} against {other.rate():.2f}"
            f" = {mine.rate() / other.rate():.2f}x (CPU time {cpu:.2f}x); takes/hour {hours[0]:.1f} against"
            f" {hours[1]:.1f} = {hours[0] / hours[1]:.2f}x (asked: {TARGETS[replan]}x)",
            flush=True,
        )
    env.close()
    benchmark.cleanup()


if __name__ == "__main__":
    main()
