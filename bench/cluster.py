"""What limits a run on one GPU, eight or sixty-four: the real schedule, a virtual clock. ``python -m bench cluster``

`takes/schedule.py` (which take is sampled and played next) and `takes/queue.py` (which replica plays which) are the
ones that diagnoses run; only the clock, the simulators and the policy are modelled. The model: a pass of 8 rows takes
60 ms, a step 20 ms of one core, a take 280 steps, 5 of them per chunk; host work per 8 rows as measured for LeRobot
policies with two 256 px cameras (hash 5.2 ms and stack 5.3 ms beside the sampling, preprocess 1.6 ms within it,
unpickle .6 ms in the thread that carries orders). What the writer needs per take is measured, with takes of that size.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from besttake.takes.draws import Draw
from besttake.takes.film import Film
from besttake.takes.keeper import Keeper
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.orders import Act, Answer, Begin, End, Job, Need, Order
from besttake.takes.queue import Feed, Queue
from besttake.takes.schedule import Schedule, Waiting
from besttake.takes.store import Store
from besttake.takes.take import Take
from besttake.types import Observation

NOTHING = np.zeros((0, 1), np.float32)
SEEN = Observation({}, NOTHING)
PICTURES = 57
"""Frames of a take of 280 steps at stride 5."""


@dataclass(frozen=True)
class Costs:
    """Seconds, unless the name says otherwise."""

    sample: float = 0.060
    width: int = 8
    inside: float = 0.0016
    beside: float = 0.0105
    carry: float = 0.0006 / 8
    step: float = 0.020
    horizon: int = 280
    replan: int = 5
    travel: float = 0.002
    """From driver to replica or back: a pipe or Ray."""
    receive: float = 0.0005
    """The driver's own work per take."""
    keep: float = 0.004
    """The writer's work per take."""


@dataclass
class Clock:
    """Events in the order of their virtual time."""

    now: float = 0.0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: Any = field(default_factory=itertools.count)

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), do))

    def run(self) -> None:
        while self._events:
            self.now, _, do = heapq.heappop(self._events)
            do()


class Server:
    """Something that does one thing at a time: a core, a thread, a GPU, the writer."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.free, self.busy = clock, 0.0, 0.0

    def serve(self, seconds: float, then: Callable[[], None], after: float = 0.0) -> None:
        self.free = max(self.free, self.clock.now + after) + seconds
        self.busy += seconds
        self.clock.at(self.free, then)


class Replica:
    """The real schedule with virtual workers and a virtual policy."""

    def __init__(self, clock: Clock, costs: Costs, workers: int, takes: int, send: Callable[[End], None]) -> None:
        self.clock, self.costs, self.send = clock, costs, send
        self.queue = Queue(ended=False)
        self.schedule = Schedule(self.queue, lambda key: Draw(0, "", key.start, 0), workers, takes // workers, 8)
        self.cores = [Server(clock) for _ in range(workers)]
        self.carrier, self.gpu = Server(clock), Server(clock)
        self.threads = [Server(clock) for _ in range(2)]
        self.steps: dict[tuple[int, int], int] = {}

    def add(self, jobs: list[Job]) -> None:
        self.queue.add(jobs)
        for worker in range(len(self.cores)):
            self._fill(worker)

    def _fill(self, worker: int) -> None:
        for orders in self.schedule.fill(worker):
            self._order(worker, orders)

    def _order(self, worker: int, orders: list[Order]) -> None:
        answers: list[Answer] = []
        seconds = 0.0
        for order in orders:
            slot = worker, order.slot
            steps = 0 if isinstance(order, Begin) else self.costs.replan
            seconds += steps * self.costs.step
            done = self.steps[slot] = (self.steps[slot] if isinstance(order, Act) else 0) + steps
            if done < self.costs.horizon:
                answers.append(Need(order.slot, SEEN, done, NOTHING))
            else:
                key = self.schedule._playing[worker][order.slot].job.key
                take = Take(key, None, NOTHING, NOTHING, Film(b"", 0, 0, 0, 0), np.zeros(0, np.int32))
                answers.append(End(order.slot, take, 0.0))
        self.cores[worker].serve(seconds, lambda: self._carry(worker, answers))

    def _carry(self, worker: int, answers: list[Answer]) -> None:
        self.carrier.serve(self.costs.carry * len(answers), lambda: self._answered(worker, answers))

    def _answered(self, worker: int, answers: list[Answer]) -> None:
        for over in self.schedule.answered(worker, answers):
            assert isinstance(over, End)
            self.send(over)
        self._fill(worker)
        self._sample()

    def _sample(self) -> None:
        while group := self.schedule.group():
            self._prepare(group)

    def _prepare(self, group: list[Waiting]) -> None:
        part = len(group) / self.costs.width
        thread = min(self.threads, key=lambda each: each.free)
        inside = self.costs.sample + self.costs.inside * part
        thread.serve(self.costs.beside * part, lambda: self.gpu.serve(inside, lambda: self._sampled(group)))
        thread.free = max(thread.free, self.gpu.free + inside)  # a thread sees its group through

    def _sampled(self, group: list[Waiting]) -> None:
        for worker, order in self.schedule.sampled(group, [NOTHING] * len(group))[0]:
            self._order(worker, [order])
        self._sample()


@dataclass(frozen=True)
class Outcome:
    """Takes per second until all were kept, and the parts of that time in which something was busy."""

    rate: float
    gpu: float
    cores: float
    driver: float
    writer: float


def simulate(gpus: int, cores: int, takes: int, costs: Costs, per_gpu: int = 400) -> Outcome:
    """``gpus`` replicas that share ``cores``, each with ``takes`` under way, play ``per_gpu`` takes each."""
    clock, kept = Clock(), deque[End]()
    driver, writer = Server(clock), Server(clock)
    jobs = [Job(TakeKey("p", "e", "t", start, "base", 0), 280, (), "eye", 5, True) for start in range(per_gpu * gpus)]
    feed = Feed(Queue(jobs), gpus)

    def give(member: int) -> None:
        if more := feed.give(member):
            clock.at(clock.now + costs.travel, lambda: replicas[member].add(more))

    def back(member: int, end: End) -> None:
        def received() -> None:
            kept.extend(e for e in feed.returned(member, [end]) if isinstance(e, End))
            writer.serve(costs.keep, lambda: None)
            give(member)

        driver.serve(costs.receive, received, after=costs.travel)

    def sender(member: int) -> Callable[[End], None]:
        return lambda end: back(member, end)

    replicas = [Replica(clock, costs, cores // gpus, takes, sender(member)) for member in range(gpus)]
    for member in range(gpus):
        feed.joined(member, takes)
    for member in range(gpus):
        give(member)
    clock.run()
    assert len(kept) == len(jobs)
    busy = [sum(core.busy for core in replica.cores) for replica in replicas]
    return Outcome(
        len(jobs) / clock.now, sum(r.gpu.busy for r in replicas) / clock.now / gpus, sum(busy) / clock.now / cores,
        driver.busy / clock.now, writer.busy / clock.now,
    )  # fmt: skip


def measured_writer(takes: int = 120) -> float:
    """Seconds that the real store takes to keep a take of 57 pictures of 256 px (its film is packed by the worker)."""
    rng = np.random.default_rng(0)
    smooth = rng.integers(0, 255, (PICTURES, 8, 8, 3), dtype=np.uint8)
    film = Film.pack(smooth.repeat(32, axis=1).repeat(32, axis=2))
    states, actions = rng.normal(size=(281, 8)).astype(np.float32), rng.normal(size=(280, 7)).astype(np.float32)
    with tempfile.TemporaryDirectory() as scratch, Store.write(Path(scratch) / "run", Manifest()) as store:
        began = time.perf_counter()
        with Keeper(store, lambda row: None) as keeper:
            for start in range(takes):
                key = TakeKey("p", "e", "t", start, "base", 0)
                steps = np.arange(0, 281, 5, dtype=np.int32)
                keeper.put(End(0, Take(key, None, actions, states, film, steps, 56), 0.0))
        return (time.perf_counter() - began) / takes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replan", type=int, default=5)
    parser.add_argument("--takes", type=int, default=400, help="per GPU")
    options = parser.parse_args()
    keep = min(measured_writer() for _ in range(3))
    costs = Costs(replan=options.replan, keep=keep)
    print(f"the writer keeps a take in {1000 * keep:.1f} ms here: at most {1 / keep:.0f} takes/s; the driver's own")
    print(f"work is taken as {1000 * costs.receive:.1f} ms: at most {1 / costs.receive:.0f} takes/s")
    print("GPUs cores under way   takes/s  times   GPU busy  cores  driver  writer")
    one = 0.0
    for gpus, cores, takes in ((1, 2, 32), (1, 16, 32), (1, 16, 64), (1, 64, 128), (8, 128, 64), (64, 1024, 64)):
        out = simulate(gpus, cores, takes, costs, options.takes)
        one = out.rate if (gpus, cores, takes) == (1, 16, 64) else one
        times = f"{out.rate / one:5.1f}x" if one else "      "
        print(
            f"{gpus:4} {cores:5} {takes:9} {out.rate:9.2f} {times} {out.gpu:9.1%} {out.cores:6.0%} {out.driver:7.0%}"
            f" {out.writer:7.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
