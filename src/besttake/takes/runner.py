"""The rollout engine: jobs in, takes out.

Simulators run in workers. A large policy is sampled here, for takes that wait for actions together; a small one is in
every worker, and its jobs name it as their actor. One thread carries orders and answers, another (two, where the
policy says how many rows it takes) does nothing but sample: while one group is with the policy, the next is made ready.
What a take contains depends on its key alone, never on this schedule.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from besttake.takes.autoscale import Autoscale, Load, Measured
from besttake.takes.draws import Draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.messages import End, Failed, Job, Need, Sampler, next_blocks
from besttake.takes.pool import Pool
from besttake.takes.schedule import AHEAD, Queue, Schedule, Waiting
from besttake.takes.sizes import room_for
from besttake.takes.store import Store
from besttake.takes.writer import Writer
from besttake.types import F32


@dataclass(frozen=True)
class Tally:
    """How many takes were played, how many failed, and how many workers gave no answer in time and were replaced.

    ``sampling``: the part of the time in which the policy was sampled here.
    """

    done: int
    failed: int
    stalled: int = 0
    sampling: float = 0.0


def play(
    jobs: Sequence[Job],
    sampler: Sampler,
    draw: Callable[[TakeKey], Draw],
    store: Store,
    pool: Pool,
    *,
    batch: int | Concurrency,
    on_take: Callable[[Row], None] = lambda row: None,
) -> Tally:
    """Play ``jobs`` and keep their takes in ``store``. ``batch`` takes are under way at once, over all workers."""
    stalled, concurrency = pool.stalled, Concurrency(batch) if isinstance(batch, int) else batch
    with Writer(store, on_take) as writer:
        engine = Engine(Queue(jobs), sampler, draw, pool, concurrency)
        engine.run(writer.put, writer.check)
    return Tally(writer.done, writer.failed, pool.stalled - stalled, engine.sampling)


@dataclass(frozen=True)
class Concurrency:
    """How many ``takes`` are under way at once, over all workers, and in one worker no more than ``at_once``.

    None: as many as measured times ask for, where the policy says how many rows it takes, else ``otherwise``.
    ``on_load`` is told what was chosen, and why, each time.
    """

    takes: int | None
    at_once: int | None = None
    otherwise: int = 32
    on_load: Callable[[Load, Measured], None] = lambda load, measured: None

    def slots(self, workers: int) -> int:
        """How many takes each worker plays at once, where that is settled beforehand."""
        takes = self.otherwise if self.takes is None else self.takes
        return max(1, min(takes // workers, self.at_once or takes))

    def autoscale(self, pool: Pool, width: int) -> Autoscale | None:
        """What measures and chooses, where that is to be done."""
        if self.takes is not None or not width:
            return None
        return Autoscale(pool.size, width, self.at_once, lambda load: room_for(pool.pids, load), self.on_load)


class Engine:
    """Plays what is in ``queue``, until it has ended, with the workers of ``pool``."""

    def __init__(
        self, queue: Queue, sampler: Sampler, draw: Callable[[TakeKey], Draw], pool: Pool, concurrency: Concurrency
    ) -> None:
        self._queue, self._sampler, self._pool = queue, sampler, pool
        width = getattr(sampler, "width", 0)
        self._autoscale = concurrency.autoscale(pool, width)
        self._schedule = Schedule(queue, draw, pool.size, concurrency.slots(pool.size), width)
        self._fresh = self._stopped = False
        self._resize()
        self.sampling = 0.0

    @property
    def takes(self) -> int:
        """How many takes can be under way now."""
        return self._schedule.slots * self._schedule.active

    def _resize(self) -> None:
        """Let as many takes be under way as was decided last."""
        if self._autoscale is not None:
            self._schedule.active, self._schedule.slots = self._autoscale.load.workers, self._autoscale.slots

    def add(self, jobs: Sequence[Job]) -> None:
        """More takes to play, from any thread."""
        self._queue.add(jobs)
        self._fresh = True
        self._pool.wake()

    def stop(self) -> None:
        """Let `run` return soon, whatever is under way; from any thread."""
        self._stopped = True
        self._queue.end()
        self._pool.wake()

    def run(self, put: Callable[[End | Failed], None], check: Callable[[], None] = lambda: None) -> None:
        """Play until the queue has ended; each answer goes to ``put``, and ``check`` may raise to stop."""
        samplers = _Samplers(self._sampler, AHEAD if self._schedule.width else 1, self._pool.wake)
        began = time.perf_counter()
        try:
            while self._queue.wait() and not self._stopped:
                for worker in range(self._pool.size):
                    self._fill(worker)
                while self._schedule.under_way and not self._stopped:
                    self._turn(samplers, put)
                    check()
        finally:
            samplers.close()
            self.sampling = samplers.seconds / max(time.perf_counter() - began, 1e-9)

    def _turn(self, samplers: _Samplers, put: Callable[[End | Failed], None]) -> None:
        free: set[int] = set()
        for worker, answers in self._pool.receive():
            free.add(worker)
            over = self._schedule.died(worker) if answers is None else self._schedule.answered(worker, answers)
            for answer in answers or ():
                if self._autoscale is not None and isinstance(answer, Need):
                    self._autoscale.turned(answer.seconds)
            for answer in over:
                put(answer)
        for group, blocks in samplers.finished():
            orders, failed = self._schedule.sampled(group, blocks)
            for worker, order in orders:  # one by one, so that each answer comes as soon as it can
                self._pool.send(worker, [order])
            for worker, answer in failed:
                free.add(worker)
                put(answer)
        if self._autoscale is not None and self._autoscale.grown(samplers.calls, samplers.seconds):
            self._resize()
            self._fresh = True
        if self._fresh:
            self._fresh, free = False, set(range(self._pool.size))
        for worker in sorted(free):
            self._fill(worker)
        while group := self._schedule.group():
            samplers.start(group)

    def _fill(self, worker: int) -> None:
        for orders in self._schedule.fill(worker):
            self._pool.send(worker, orders)


class _Samplers:
    """Threads that sample groups of takes; ``wake`` is called after each.

    ``calls`` counts groups, ``seconds`` when at least one thread was busy.
    """

    def __init__(self, sampler: Sampler, threads: int, wake: Callable[[], None]) -> None:
        self._sampler, self._wake = sampler, wake
        self._todo: queue.SimpleQueue[list[Waiting] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[list[Waiting], list[F32 | Exception]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy, self._since, self.seconds, self.calls = 0, 0.0, 0.0, 0
        # Daemons, so that a policy that hangs does not keep a process that was asked to end.
        self._threads = [threading.Thread(target=self._work, name="sampling", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def start(self, group: list[Waiting]) -> None:
        """Sample ``group`` as soon as a thread is free."""
        self._todo.put(group)

    def finished(self) -> list[tuple[list[Waiting], list[F32 | Exception]]]:
        """The groups that were sampled since the last call."""
        done = []
        while not self._done.empty():
            done.append(self._done.get())
        return done

    def close(self) -> None:
        """End the threads when they have finished what they do."""
        for _ in self._threads:
            self._todo.put(None)

    def _work(self) -> None:
        while (group := self._todo.get()) is not None:
            with self._lock:
                self._since = self._since if self._busy else time.perf_counter()
                self._busy += 1
            blocks = next_blocks(self._sampler, [row.take.request for row in group])
            with self._lock:
                self._busy -= 1
                self.calls += 1
                now = time.perf_counter()
                self.seconds += now - self._since
                self._since = now
            self._done.put((group, blocks))
            self._wake()
