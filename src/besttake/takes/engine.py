"""The rollout engine, which plays jobs and stores their takes.

Simulators run in workers. A large policy is sampled here, for all takes that wait for actions; a small one is sampled
in every worker. One thread exchanges orders and replies with the workers. Another thread (two for a policy with a fixed
number of rows) samples: while one group is with the policy, the next is prepared. What a take contains depends on its
key alone, never on this schedule.

`Queue` and `Schedule` decide which take is played and sampled next, without clock or process. `Engine` drives them with
real workers and a real policy, and `Writer` stores the takes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from besttake.arms.base import TakeState
from besttake.errors import one_line
from besttake.takes.draws import Draw
from besttake.takes.jobs import Act, Begin, End, Failed, Job, NeedsActions, Order, Reply, Sampler, next_actions
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import LOOK, WorkerPool
from besttake.takes.store import Store
from besttake.threads import call_limit, no_answer, outcome
from besttake.types import F32

_AHEAD = 2
"""Groups in progress at once: one is sampled while the next is prepared."""
_MOST = 64
"""Takes that are sampled at once at most, if the policy does not say how many."""
_LANES = 2
"""Takes that a worker samples itself come back together, a lane at a time; meanwhile it plays the other lane."""
_LIVES = 3
"""A take that was lost this often, the last time alone, is given up."""
_WRITERS = 4


@dataclass(frozen=True)
class Tally:
    """How many takes were played and failed, and how many workers were replaced because they did not answer in time.

    ``sampling`` is the share of the time in which the policy was sampled in this process.
    """

    done: int
    failed: int
    stalled: int = 0
    sampling: float = 0.0


def play(
    jobs: Sequence[Job], sampler: Sampler, draw: Callable[[TakeKey], Draw], store: Store, pool: WorkerPool,
    *, slots: int, on_take: Callable[[Row], None] = lambda row: None,
) -> Tally:  # fmt: skip
    """Play ``jobs`` and write their takes to ``store``; each worker has ``slots`` takes in progress at once."""
    stalled = pool.stalled
    with Writer(store, on_take) as writer:
        engine = Engine(Queue(jobs), sampler, draw, pool, slots)
        engine.run(writer.put, writer.check)
    return Tally(writer.done, writer.failed, pool.stalled - stalled, engine.sampling)


class Engine:
    """Plays the jobs of ``queue`` with the workers of ``pool``, until the queue has ended."""

    def __init__(
        self, queue: Queue, sampler: Sampler, draw: Callable[[TakeKey], Draw], pool: WorkerPool, slots: int
    ) -> None:
        self._queue, self._sampler, self._pool = queue, sampler, pool
        self._schedule = Schedule(queue, draw, pool.size, slots, getattr(sampler, "width", 0))
        self._has_new_jobs = self._stopped = False
        self.sampling = 0.0

    def add(self, jobs: Sequence[Job]) -> None:
        """Add takes to play, from any thread."""
        self._queue.add(jobs)
        self._has_new_jobs = True
        self._pool.wake()

    def stop(self) -> None:
        """Let `run` return soon, even if takes are in progress; from any thread."""
        self._stopped = True
        self._queue.end()
        self._pool.wake()

    def run(self, put: Callable[[End | Failed], None], check: Callable[[], None] = lambda: None) -> None:
        """Play until the queue has ended; each finished take goes to ``put``, and ``check`` may raise to stop."""
        samplers = _Samplers(self._sampler, _AHEAD if self._schedule.width else 1, self._pool)
        began = time.perf_counter()
        try:
            while self._queue.wait() and not self._stopped:
                for worker in range(self._pool.size):
                    self._fill(worker)
                while self._schedule.under_way and not self._stopped:
                    self._step(samplers, put)
                    check()
        finally:
            samplers.close()
            self.sampling = samplers.seconds / max(time.perf_counter() - began, 1e-9)

    def _step(self, samplers: _Samplers, put: Callable[[End | Failed], None]) -> None:
        free: set[int] = set()
        for worker, replies in self._pool.receive():
            free.add(worker)
            plan = self._schedule
            for end in plan.take_back(worker) if replies is None else plan.note_replies(worker, replies):
                put(end)
        for group, actions in samplers.finished():
            orders, failed = self._schedule.note_sampled(group, actions)
            for worker, order in orders:  # one by one, so that each reply comes as soon as it can
                self._pool.send(worker, [order])
            for worker, failure in failed:
                free.add(worker)
                put(failure)
        if self._has_new_jobs:
            self._has_new_jobs, free = False, set(range(self._pool.size))
        for worker in sorted(free):
            self._fill(worker)
        while group := self._schedule.group():
            samplers.start(group)

    def _fill(self, worker: int) -> None:
        for orders in self._schedule.fill(worker):
            self._pool.send(worker, orders)


class _Samplers:
    """Threads that sample groups of takes, and wake ``pool`` after each group.

    ``seconds`` counts the time in which at least one was busy. An error in a thread ends the run, and so does a time
    without any result that is longer than the pool's patience.
    """

    def __init__(self, sampler: Sampler, threads: int, pool: WorkerPool) -> None:
        self._sampler, self._pool = sampler, pool
        self._todo: queue.SimpleQueue[list[WaitingTake] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[list[WaitingTake], list[F32 | Exception] | Exception]] = queue.SimpleQueue()
        self._under_way, self._first = 0, True
        self._last_look, self._silent, self.seconds = time.monotonic(), 0.0, 0.0
        # Daemons, so that a policy that hangs does not keep the process from ending.
        self._threads = [threading.Thread(target=self._work, name="sampling", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def start(self, group: list[WaitingTake]) -> None:
        """Sample ``group`` as soon as a thread is free."""
        self._count_time()
        self._under_way += 1
        self._todo.put(group)

    def finished(self) -> list[tuple[list[WaitingTake], list[F32 | Exception]]]:
        """The groups that were sampled since the last call, with their actions."""
        self._count_time()
        done = []
        while not self._done.empty():
            group, actions = self._done.get()
            if isinstance(actions, Exception):
                raise actions
            self._under_way, self._first, self._silent = self._under_way - 1, False, 0.0
            done.append((group, actions))
        if self._silent > (limit := call_limit(self._pool.patience, first=self._first)):
            raise no_answer("the policy or the encoder", limit)
        return done

    def close(self) -> None:
        """Let each thread end after its present group."""
        for _ in self._threads:
            self._todo.put(None)

    def _count_time(self) -> None:
        """Add the time since the last call (to the silence at most `LOOK`), if something is being sampled."""
        now = time.monotonic()
        passed, self._last_look = now - self._last_look, now
        if self._under_way:
            self.seconds += passed
            self._silent += min(passed, LOOK)

    def _work(self) -> None:
        while (group := self._todo.get()) is not None:
            self._done.put((group, outcome(next_actions, self._sampler, [row.take.state for row in group])))
            self._pool.wake()


class Queue:
    """Jobs in the order of play, to which any thread may add. It knows which takes may kill their worker."""

    def __init__(self, jobs: Iterable[Job] = (), *, ended: bool = True) -> None:
        self._jobs = deque(jobs)
        self._deaths: Counter[TakeKey] = Counter()
        self._changed = threading.Condition()
        self._ended = ended

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """Add jobs behind the others."""
        with self._changed:
            self._jobs.extend(jobs)
            self._changed.notify_all()

    def end(self) -> None:
        """Declare that no more jobs will be added."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait for a job; False if there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._jobs))
            return bool(self._jobs)

    def next(self, others: Iterable[Job]) -> Job | None:
        """Take the next job, to be played beside ``others``; None if there is none. A suspect is played alone."""
        with self._changed:
            if not self._jobs or ((beside := list(others)) and any(map(self._suspect, (self._jobs[0], *beside)))):
                return None
            return self._jobs.popleft()

    def _suspect(self, job: Job) -> bool:
        """Whether the take may kill its worker."""
        return self._deaths[job.key] >= _LIVES - 1

    def give_back(self, lost: Sequence[Job], who: str) -> list[Failed]:
        """Put the jobs of ``who``, which died, back in front; fail a take that keeps killing whoever plays it."""
        given_up: list[Failed] = []
        with self._changed:
            for job in reversed(lost):
                self._deaths[job.key] += 1
                if self._deaths[job.key] >= _LIVES and len(lost) == 1:
                    given_up.append(Failed(0, job.key, f"{who} died or hung {_LIVES} times on this take", 0.0))
                else:
                    self._jobs.appendleft(job)
            self._changed.notify_all()
        return given_up


@dataclass(frozen=True)
class WaitingTake:
    """A take that waits for actions, and its worker."""

    worker: int
    take: Begin


class Schedule:
    """Decides what ``workers`` workers with ``slots`` slots each play, and which takes are sampled next.

    ``width`` takes are sampled at once; 0 means as many as wait, up to 64.
    """

    def __init__(self, queue: Queue, draw: Callable[[TakeKey], Draw], workers: int, slots: int, width: int = 0) -> None:
        self.queue, self.slots, self.width = queue, slots, width
        self._draw = draw
        self._playing: list[dict[int, Begin]] = [{} for _ in range(workers)]
        self._waiting: deque[WaitingTake] = deque()
        self._sampling = 0

    @property
    def under_way(self) -> int:
        """How many takes are in progress."""
        return sum(map(len, self._playing))

    def fill(self, worker: int) -> list[list[Order]]:
        """The orders that fill the free slots of ``worker``, a list per lane."""
        playing = self._playing[worker]
        lanes: list[list[Order]] = [[] for _ in range(_LANES)]
        for slot in range(self.slots if len(playing) < self.slots else 0):
            if slot in playing:
                continue
            job = self.queue.next(take.job for take in playing.values())
            if job is None:
                break
            playing[slot] = Begin(slot, job, TakeState(job.key.task, job.key.arm, self._draw(job.key)))
            lanes[slot % _LANES].append(playing[slot])
        return [lane for lane in lanes if lane]

    def note_replies(self, worker: int, replies: Sequence[Reply]) -> list[End | Failed]:
        """Note the replies of ``worker``; return those of takes that have ended."""
        ended: list[End | Failed] = []
        for reply in replies:
            if isinstance(reply, NeedsActions):
                take = self._playing[worker][reply.slot]
                reply.update(take.state)
                self._waiting.append(WaitingTake(worker, take))
            else:
                del self._playing[worker][reply.slot]
                ended.append(reply)
        return ended

    def take_back(self, worker: int) -> list[Failed]:
        """Put the takes of a worker that was replaced back into the queue; return those that keep killing workers."""
        lost = [take.job for _, take in sorted(self._playing[worker].items())]
        self._playing[worker] = {}
        self._waiting = deque(row for row in self._waiting if row.worker != worker)
        return self.queue.give_back(lost, "the simulator")

    def group(self) -> list[WaitingTake]:
        """The takes to sample next, if any.

        If nothing is being sampled, these are all that wait; ahead of time only a full group, so that no call is half
        empty.
        """
        count = min(len(self._waiting), self.width or _MOST)
        full = self._sampling < _AHEAD and count == self.width
        if not count or not (full or self._sampling == 0):
            return []
        self._sampling += 1
        return [self._waiting.popleft() for _ in range(count)]

    def note_sampled(
        self, group: Sequence[WaitingTake], sampled: Sequence[F32 | Exception]
    ) -> tuple[list[tuple[int, Act]], list[tuple[int, Failed]]]:
        """Note that a group was sampled; return the orders, and the failures of takes without actions, by worker."""
        self._sampling -= 1
        orders: list[tuple[int, Act]] = []
        failed: list[tuple[int, Failed]] = []
        for row, actions in zip(group, sampled, strict=True):
            slot = row.take.slot
            if self._playing[row.worker].get(slot) is not row.take:  # its worker died meanwhile
                continue
            if isinstance(actions, Exception):
                del self._playing[row.worker][slot]
                failed.append((row.worker, Failed(slot, row.take.job.key, one_line(actions), 0.0)))
            else:
                orders.append((row.worker, Act(slot, actions)))
        return orders, failed


class Writer:
    """Counts takes and writes them to ``store`` in threads of its own, so that the engine never waits for the disk.

    Most of the work is waiting for the disk to flush a file, and a disk can flush several at once. So a few threads
    write files, and one at a time enters its take into the table.
    """

    def __init__(self, store: Store, on_take: Callable[[Row], None]) -> None:
        self.store, self.on_take = store, on_take
        self.done = self.failed = 0
        self._queue: queue.Queue[End | Failed | None] = queue.Queue(maxsize=256)
        self._error: BaseException | None = None
        self._one_at_a_time = threading.Lock()
        self._threads = [threading.Thread(target=self._work, name="writer", daemon=True) for _ in range(_WRITERS)]

    def __enter__(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._finish()
        except KeyboardInterrupt:  # finished takes are written before anyone closes the store
            self._finish()
            raise
        if kind is None:
            self.check()

    def put(self, end: End | Failed) -> None:
        """Write a take, or why there is none."""
        self._queue.put(end)

    def check(self) -> None:
        """Raise the error that a thread ran into."""
        if self._error is not None:
            raise self._error

    def _finish(self) -> None:
        for _thread in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (end := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                if isinstance(end, End):
                    keep = self.store.stage(end.take, end.seconds)
                else:
                    keep = partial(self.store.add_error, end.key, end.reason, end.seconds)
                with self._one_at_a_time:
                    row = keep()
                    self.done, self.failed = self.done + (not row.error), self.failed + bool(row.error)
                    self.on_take(row)
            except BaseException as error:
                self._error = error
