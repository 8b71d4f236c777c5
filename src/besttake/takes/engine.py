"""The rollout engine: jobs in, takes out.

Simulators run in workers. A large policy is sampled here, for takes that wait for actions together; a small one is in
every worker, and its jobs name it as their actor. One thread carries orders and answers, another (two, where the
policy says how many rows it takes) does nothing but sample: while one group is with the policy, the next is made ready.
What a take contains depends on its key alone, never on this schedule.

`Queue` and `Schedule` decide who plays and who is sampled next, without clock or process. `Engine` drives them with
real workers and a real policy, and `Writer` stores what comes out.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from besttake.arms.base import Request
from besttake.errors import one_line
from besttake.takes.draws import Draw
from besttake.takes.jobs import Act, Answer, Begin, End, Failed, Job, Need, Order, Sampler, next_blocks
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import LOOK, WorkerPool
from besttake.takes.store import Store
from besttake.threads import call_limit, no_answer, outcome
from besttake.types import F32

_AHEAD = 2
"""Groups that are in progress at once: one is sampled while the next is made ready."""
_MOST = 64
"""Takes that are sampled at once at most, where the policy does not say how many."""
_LANES = 2
"""Takes that begin together and have an actor are answered together; the other lane is for the time between."""
_LIVES = 3
"""A take that was lost so often, the last time alone, is given up."""
_WRITERS = 4


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
    jobs: Sequence[Job], sampler: Sampler, draw: Callable[[TakeKey], Draw], store: Store, pool: WorkerPool,
    *, slots: int, on_take: Callable[[Row], None] = lambda row: None,
) -> Tally:  # fmt: skip
    """Play ``jobs`` and keep their takes in ``store``; each worker has ``slots`` takes in progress at once."""
    stalled = pool.stalled
    with Writer(store, on_take) as writer:
        engine = Engine(Queue(jobs), sampler, draw, pool, slots)
        engine.run(writer.put, writer.check)
    return Tally(writer.done, writer.failed, pool.stalled - stalled, engine.sampling)


class Engine:
    """Plays what is in ``queue``, until it has ended, with the workers of ``pool``."""

    def __init__(
        self, queue: Queue, sampler: Sampler, draw: Callable[[TakeKey], Draw], pool: WorkerPool, slots: int
    ) -> None:
        self._queue, self._sampler, self._pool = queue, sampler, pool
        self._schedule = Schedule(queue, draw, pool.size, slots, getattr(sampler, "width", 0))
        self._fresh = self._stopped = False
        self.sampling = 0.0

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
        samplers = _Samplers(self._sampler, _AHEAD if self._schedule.width else 1, self._pool)
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
            for answer in over:
                put(answer)
        for group, blocks in samplers.finished():
            orders, failed = self._schedule.sampled(group, blocks)
            for worker, order in orders:  # one by one, so that each answer comes as soon as it can
                self._pool.send(worker, [order])
            for worker, answer in failed:
                free.add(worker)
                put(answer)
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
    """Threads that sample groups of takes, and wake ``pool`` after each. ``seconds``: at least one was busy.

    What ends a thread, or keeps all of them from an answer for longer than the pool's patience, ends the run.
    """

    def __init__(self, sampler: Sampler, threads: int, pool: WorkerPool) -> None:
        self._sampler, self._pool = sampler, pool
        self._todo: queue.SimpleQueue[list[Waiting] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[list[Waiting], list[F32 | Exception] | Exception]] = queue.SimpleQueue()
        self._under_way, self._first = 0, True
        self._looked, self._silent, self.seconds = time.monotonic(), 0.0, 0.0
        # Daemons, so that a policy that hangs does not keep a process that was asked to end.
        self._threads = [threading.Thread(target=self._work, name="sampling", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def start(self, group: list[Waiting]) -> None:
        """Sample ``group`` as soon as a thread is free."""
        self._look()
        self._under_way += 1
        self._todo.put(group)

    def finished(self) -> list[tuple[list[Waiting], list[F32 | Exception]]]:
        """The groups that were sampled since the last call."""
        self._look()
        done = []
        while not self._done.empty():
            group, blocks = self._done.get()
            if isinstance(blocks, Exception):
                raise blocks
            self._under_way, self._first, self._silent = self._under_way - 1, False, 0.0
            done.append((group, blocks))
        if self._silent > (limit := call_limit(self._pool.patience, first=self._first)):
            raise no_answer("the policy or the encoder", limit)
        return done

    def close(self) -> None:
        """End the threads when they have finished what they do."""
        for _ in self._threads:
            self._todo.put(None)

    def _look(self) -> None:
        """Count the time since the last look, at most `LOOK`, as long as something is sampled."""
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        if self._under_way:
            self.seconds += passed
            self._silent += min(passed, LOOK)

    def _work(self) -> None:
        while (group := self._todo.get()) is not None:
            blocks = outcome(next_blocks, self._sampler, [row.take.request for row in group])
            self._done.put((group, blocks))
            self._pool.wake()


class Queue:
    """Jobs in their order; threads may add to it. It knows which takes may be killing whoever plays them."""

    def __init__(self, jobs: Iterable[Job] = (), *, ended: bool = True) -> None:
        self._jobs = deque(jobs)
        self._deaths: Counter[TakeKey] = Counter()
        self._changed = threading.Condition()
        self._ended = ended

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """More jobs, behind the others."""
        with self._changed:
            self._jobs.extend(jobs)
            self._changed.notify_all()

    def end(self) -> None:
        """No more jobs will be added."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait for a job; False when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._jobs))
            return bool(self._jobs)

    def next(self, beside: Iterable[Job]) -> Job | None:
        """A job to play beside others, if there is one: a suspect plays alone."""
        with self._changed:
            others = list(beside)
            if not self._jobs or (others and any(map(self.suspect, (self._jobs[0], *others)))):
                return None
            return self._jobs.popleft()

    def suspect(self, job: Job) -> bool:
        """Whether the take may be killing whoever plays it."""
        return self._deaths[job.key] >= _LIVES - 1

    def give_back(self, lost: Sequence[Job], who: str) -> list[Failed]:
        """Put jobs back in front, whose player (``who``) died; the answer for one that keeps killing players."""
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
class Waiting:
    """A take that waits for actions, and its worker."""

    worker: int
    take: Begin


class Schedule:
    """The takes under way in ``workers`` workers of ``slots`` each.

    ``width`` takes are sampled at once; 0: as many as wait, up to 64.
    """

    def __init__(self, queue: Queue, draw: Callable[[TakeKey], Draw], workers: int, slots: int, width: int = 0) -> None:
        self.queue, self.slots, self.width = queue, slots, width
        self._draw = draw
        self._playing: list[dict[int, Begin]] = [{} for _ in range(workers)]
        self._needy: deque[Waiting] = deque()
        self._sampling = 0

    @property
    def under_way(self) -> int:
        """How many takes are under way."""
        return sum(map(len, self._playing))

    def fill(self, worker: int) -> list[list[Order]]:
        """What to send to ``worker`` so that its free slots play: a list of orders per lane."""
        playing = self._playing[worker]
        lanes: list[list[Order]] = [[] for _ in range(_LANES)]
        for slot in range(self.slots if len(playing) < self.slots else 0):
            if slot in playing:
                continue
            job = self.queue.next(take.job for take in playing.values())
            if job is None:
                break
            playing[slot] = Begin(slot, job, Request(job.key.task, job.key.arm, self._draw(job.key)))
            lanes[slot % _LANES].append(playing[slot])
        return [lane for lane in lanes if lane]

    def answered(self, worker: int, answers: Sequence[Answer]) -> list[End | Failed]:
        """Note the answers of ``worker``; those of takes that are over."""
        over: list[End | Failed] = []
        for answer in answers:
            if isinstance(answer, Need):
                take = self._playing[worker][answer.slot]
                answer.update(take.request)
                self._needy.append(Waiting(worker, take))
            else:
                del self._playing[worker][answer.slot]
                over.append(answer)
        return over

    def died(self, worker: int) -> list[Failed]:
        """``worker`` is a new one: its takes go back to the queue, but one that keeps killing workers."""
        lost: list[Job] = [take.job for _, take in sorted(self._playing[worker].items())]
        self._playing[worker] = {}
        self._needy = deque(row for row in self._needy if row.worker != worker)
        return self.queue.give_back(lost, "the simulator")

    def group(self) -> list[Waiting]:
        """The takes to sample next, if any.

        Whatever waits while nothing is sampled; ahead of time only a whole group, so that no call is half empty.
        """
        count = min(len(self._needy), self.width or _MOST)
        whole = self._sampling < _AHEAD and count == self.width and self.width > 0
        if not count or not (whole or self._sampling == 0):
            return []
        self._sampling += 1
        return [self._needy.popleft() for _ in range(count)]

    def sampled(
        self, group: Sequence[Waiting], blocks: Sequence[F32 | Exception]
    ) -> tuple[list[tuple[int, Act]], list[tuple[int, Failed]]]:
        """The actions of a group have come: orders by worker, and the takes that got none."""
        self._sampling -= 1
        orders: list[tuple[int, Act]] = []
        failed: list[tuple[int, Failed]] = []
        for row, block in zip(group, blocks, strict=True):
            slot = row.take.slot
            if self._playing[row.worker].get(slot) is not row.take:  # its worker died meanwhile
                continue
            if isinstance(block, Exception):
                del self._playing[row.worker][slot]
                failed.append((row.worker, Failed(slot, row.take.job.key, one_line(block), 0.0)))
            else:
                orders.append((row.worker, Act(slot, block)))
        return orders, failed


class Writer:
    """Writes takes into ``store`` in threads of its own, so that nobody waits for the disk; counts them.

    A disk can flush several files at once, and waiting for it is most of the work: a few threads write files, and one
    at a time enters its take into the table.
    """

    def __init__(self, store: Store, on_take: Callable[[Row], None]) -> None:
        self.store, self.on_take = store, on_take
        self.done = self.failed = 0
        self._queue: queue.Queue[End | Failed | None] = queue.Queue(maxsize=256)
        self._error: BaseException | None = None
        self._turn = threading.Lock()
        self._threads = [threading.Thread(target=self._work, name="writer", daemon=True) for _ in range(_WRITERS)]

    def __enter__(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._finish()
        except KeyboardInterrupt:  # what is played is kept, before anyone closes the store
            self._finish()
            raise
        if kind is None:
            self.check()

    def put(self, answer: End | Failed) -> None:
        """Keep ``answer``."""
        self._queue.put(answer)

    def check(self) -> None:
        """Raise here what went wrong in a thread."""
        if self._error is not None:
            raise self._error

    def _finish(self) -> None:
        for _thread in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (answer := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                if isinstance(answer, End):
                    keep = self.store.stage(answer.take, answer.seconds)
                else:
                    keep = partial(self.store.add_error, answer.key, answer.reason, answer.seconds)
                with self._turn:
                    row = keep()
                    self.done, self.failed = self.done + (not row.error), self.failed + bool(row.error)
                    self.on_take(row)
            except BaseException as error:
                self._error = error
