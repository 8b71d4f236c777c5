"""The workers of a run. A pool carries orders and answers; it knows nothing of takes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Pipe, wait
from typing import Any, Protocol, Self, TypeVar

from besttake.errors import RolloutError
from besttake.takes.deadlines import LOOK, Deadlines
from besttake.takes.messages import Answer, Order
from besttake.takes.process import READY, WorkerProcess

_LIVES = 3
_STILLBORN = 5
_WAIT, _LONGEST_WAIT = 0.25, 8.0
_POLITE = 2.0

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class Pool(Protocol):
    """``size`` numbered workers. Lists of orders sent to one are obeyed and answered one after the other.

    ``stalled`` counts the workers that gave no answer in time and were replaced.
    """

    size: int
    stalled: int

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        ...

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders."""
        ...

    def receive(self) -> list[tuple[int, list[Answer] | None]]:
        """Wait for at least one worker: its answers, or None when it died or stalled (and was replaced).

        Empty where `wake` was called meanwhile.
        """
        ...

    def wake(self) -> None:
        """Let `receive` return, or the next one; from any thread."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


class LocalPool:
    """Workers as processes of this machine, which share other work between takes.

    One that dies, or gives no answer in time (`besttake.takes.deadlines`), is replaced. ``stalled`` counts the latter.
    """

    def __init__(self, size: int, patience: float | None = None) -> None:
        self.size, self.stalled = size, 0
        self._members: list[WorkerProcess] = []
        self._deadlines = Deadlines(size, patience)
        self._ready = [False] * size
        self._stillborn, self._closed = 0, False
        self._woken, self._waker = Pipe(duplex=False)
        self._awake = threading.Lock()
        try:
            for _ in range(size):
                self._members.append(WorkerProcess(shares=True))
        except OSError as error:
            self.close()
            raise _cannot_start(size, error) from error

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [member.pid for member in self._members]

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders. A dead worker is noticed by `receive`."""
        self._post(worker, list(orders))

    def receive(self) -> list[tuple[int, Any]]:
        """Answers of every worker that has some, waiting for the first, or for `wake`."""
        answers: list[tuple[int, Any]] = []
        woken = False
        while not answers and not woken:
            ready = wait([self._woken, *(member.pipe for member in self._members)], LOOK)
            if woken := self._woken in ready:
                self._woken.recv_bytes()
                self._awake.release()
            heard = [worker for worker, member in enumerate(self._members) if member.pipe in ready]
            for worker in heard:
                try:
                    message = self._members[worker].receive()
                except Exception:  # it may have died in the middle of a message
                    self._replace(worker, "died")
                    answers.append((worker, None))
                    continue
                if isinstance(message, str) and message == READY:
                    self._ready[worker], self._stillborn = True, 0
                    self._deadlines.started(worker)
                else:
                    self._deadlines.answered(worker)
                    answers.append((worker, message))
            starting = [worker for worker in range(self.size) if not self._ready[worker]]
            for worker, seconds in self._deadlines.overdue(heard, starting):
                self.stalled += 1
                self._replace(worker, f"gave no answer for {seconds:.0f} s")
                answers.append((worker, None))
        return answers

    def wake(self) -> None:
        """Let `receive` return, or the next one; from any thread."""
        if self._awake.acquire(blocking=False):  # held from here until `receive` has noticed
            with suppress(OSError):  # closed already
                self._waker.send_bytes(b"!")

    def _post(self, worker: int, message: Any) -> None:
        self._deadlines.sent(worker, message)
        self._members[worker].send(message)

    def _replace(self, worker: int, why: str) -> None:
        """Put a new process in the place of one. Those that die before they are ready are not replaced for ever."""
        if self._closed:
            raise RolloutError("the workers were ended")
        old = self._members[worker]
        old.end()
        _log.warning("worker %d (process %d) %s and is replaced", worker, old.pid, why)
        if not self._ready[worker]:
            self._stillborn += 1
            if self._stillborn >= _STILLBORN:
                raise RolloutError(
                    f"{_STILLBORN} workers in a row died as they started; is memory short? Use fewer `workers`, and run"
                    " the same command again: finished takes are safe"
                )
            time.sleep(min(_WAIT * 2**self._stillborn, _LONGEST_WAIT))
        self._deadlines.replaced(worker)
        self._ready[worker] = False
        try:
            self._members[worker] = WorkerProcess(shares=True)
        except OSError as error:
            raise _cannot_start(self.size, error) from error

    def map(
        self, function: Callable[[T], R], items: Sequence[T], on_done: Callable[[T], None] = lambda item: None
    ) -> list[R]:
        """``function`` of each item, in order, shared among the workers. What it raises is raised here."""
        results: dict[int, R] = {}
        deaths: Counter[int] = Counter()
        waiting = deque(range(len(items)))
        busy: dict[int, int] = {}
        while len(results) < len(items):
            for worker in range(self.size):
                if waiting and worker not in busy:
                    busy[worker] = waiting.popleft()
                    self._post(worker, partial(function, items[busy[worker]]))
            for worker, answer in self.receive():
                if worker not in busy:  # it died while it had nothing to do
                    continue
                index = busy.pop(worker)
                if answer is None:
                    deaths[index] += 1
                    if deaths[index] == _LIVES:
                        raise RolloutError(
                            f"a worker process died or gave no answer {_LIVES} times over the same work; is memory"
                            " short? Use fewer `workers`"
                        )
                    waiting.appendleft(index)
                elif isinstance(answer, Exception):
                    raise answer
                else:
                    (results[index],) = answer
                    on_done(items[index])
        return [results[index] for index in range(len(items))]

    def close(self) -> None:
        """End all workers, politely first."""
        self._closed = True
        for member in self._members:
            member.hang_up()
        until = time.monotonic() + _POLITE
        for member in self._members:
            member.end(patience=max(0.0, until - time.monotonic()))
        self._woken.close()
        self._waker.close()


def _cannot_start(size: int, error: OSError) -> RolloutError:
    return RolloutError(
        f"cannot start {size} workers: {error.strerror}; use fewer `workers`, or raise this shell's limits (ulimit)"
    )


class Workers:
    """``count`` worker processes: started when they are first needed, kept until the run's end."""

    def __init__(self, count: int, patience: float | None = None) -> None:
        self.count, self.patience = count, patience
        self._pool: LocalPool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def pool(self) -> LocalPool:
        """The pool, started by the first call."""
        if self._pool is None:
            self._pool = LocalPool(self.count, self.patience)
        return self._pool

    @property
    def running(self) -> LocalPool | None:
        """The pool if its processes run already, else None."""
        return self._pool

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`map` by the worker processes, started if need be."""
        return self.pool().map(function, items)
