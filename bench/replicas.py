"""How busy a policy is kept, and what several replicas of it gain: ``python -m bench.replicas`` (environment `ray`)

Everything sleeps, so that it can be measured where there are fewer cores than replicas: the policy 60 ms per call of up
to 8 rows, the simulator 2 ms per step; a take has 60 steps, 5 of them per chunk. Takes under way are `auto`. Every
run must have the same digest.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from besttake.arms.base import TakeState
from besttake.takes.draws import Draw
from besttake.takes.engine import play
from besttake.takes.jobs import Job
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.ray import Assignment, Cluster, Replicas
from besttake.takes.sizes import takes_per_worker
from besttake.takes.store import Store
from besttake.types import F32, EnvSpec, Observation, Start, Step, TaskSpec

STEPS, CHUNK, STEP, CALL, WIDTH = 60, 5, 0.002, 0.060, 8
WORKERS = 2
SLOTS = takes_per_worker("auto", WORKERS, WIDTH, None, acting=False)


class World:
    """A point that moves, slowly."""

    spec = EnvSpec("sleeping", (TaskSpec("walk", "walk", "go", STEPS),), range(10_000), 2, 2, ("eye",), "eye")

    def __init__(self) -> None:
        self.x = np.zeros(2)

    def reset(self, start: Start) -> None:
        self.x = np.full(2, start.index / 100)

    def step(self, action: F32) -> Step:
        time.sleep(STEP)
        self.x = self.x + action
        return Step(False, False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        return Observation({camera: np.zeros((8, 8, 3), np.uint8) for camera in cameras}, self.x.astype(np.float32))

    def close(self) -> None:
        pass


def world() -> World:
    return World()


class Sleeping:
    """Noise that takes its time; one call at a time, as on a GPU."""

    width = WIDTH

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def sample(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        with self._lock:
            time.sleep(CALL)
        return [request.draw.normal((CHUNK, 2)) for request in requests]


@dataclass(frozen=True)
class Recipe:
    library: str | None = None

    def load(self) -> Sleeping:
        return Sleeping()

    def sampler(self, env: EnvSpec) -> Sleeping:
        return Sleeping()

    def sampler_of(self, loaded: Sleeping, env: EnvSpec) -> Sleeping:
        return loaded


def draw(key: TakeKey) -> Draw:
    return Draw(0, key.task, key.start, key.seed)


def jobs(takes: int) -> list[Job]:
    keys = [TakeKey("p", "python:bench.replicas:world", "walk", start, "base", 0) for start in range(takes)]
    return [Job(key, STEPS, (), "eye", STEPS, True) for key in keys]


def alone(path: Path, takes: int) -> str:
    """One replica in this process; prints how busy it was."""
    with Store.write(path, Manifest()) as store, closing(WorkerPool(WORKERS)) as pool:
        pool.map(abs, range(WORKERS))
        tally = play(jobs(takes), Sleeping(), draw, store, pool, slots=SLOTS)
        print(f"one process: busy {tally.sampling:.1%} of the time, {takes} takes", flush=True)
        return store.digest()


def together(path: Path, cluster: Cluster, count: int, takes: int) -> tuple[float, str]:
    """Takes per second of replicas of which all have been at work before, and the digest of the takes."""
    notes: list[str] = []
    assignment, everything = Assignment(Recipe(), World.spec, draw, SLOTS), jobs(10_000)
    with Replicas(cluster, count, WORKERS, 0.0, None, notes.append) as replicas:
        with Store.write(path.with_name(f"{path.name} before"), Manifest()) as store:
            while not any(note.startswith(f"{count} replica") for note in notes):
                replicas.play(assignment, [everything.pop() for _ in range(16 * count)], store)
        with Store.write(path, Manifest()) as store:
            began = time.perf_counter()
            replicas.play(assignment, everything[:takes], store)
            return takes / (time.perf_counter() - began), store.digest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--takes", type=int, default=320)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, closing(Cluster([Path(__file__).parent], 4 * WORKERS)) as cluster:
        home = Path(scratch)
        digests = {alone(home / "alone", 48)}
        rates = {}
        for count in (1, 4):
            rates[count], _ = together(home / f"by {count}", cluster, count, options.takes * count // 4)
            digests.add(together(home / f"same {count}", cluster, count, 48)[1])
        print(
            f"on Ray: one replica {rates[1]:.2f} takes/s, four {rates[4]:.2f}: {rates[4] / rates[1]:.2f}x;"
            f" digests {'differ' if len(digests) > 1 else 'are the same'}",
            flush=True,
        )


if __name__ == "__main__":
    from bench import replicas  # by its own name, under which the other processes find its classes

    replicas.main()
