"""The workers of a run, as processes of this machine. A pool exchanges messages and knows nothing of takes.

A worker that dies is replaced, and so is one that does not answer in time: within the user's ``patience``, or within
five minutes, doubled (up to two hours) each time a worker was given up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Pipe, wait
from typing import Any, Self, TypeVar

from besttake.errors import RolloutError
from besttake.takes.jobs import Order
from besttake.takes.process import READY, WorkerProcess
from besttake.threads import OTHER_WORK, PATIENCE, call_limit

_LIVES = 3
_STILLBORN = 5
_WAIT, _LONGEST_WAIT = 0.25, 8.0
_POLITE = 2.0
LOOK = 1.0
"""Seconds between looks at the clock. A look counts no more, so that sleep or Ctrl-Z do not cost a worker."""
_LONGEST_LIMIT = 7200.0

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


@dataclass
class _Member:
    """A worker, the messages that it has not answered (True: orders), and for how many seconds it has been silent."""

    process: WorkerProcess = field(default_factory=WorkerProcess)
    ready: bool = False
    owed: deque[bool] = field(default_factory=deque)
    silent: float = 0.0


class WorkerPool:
    """``size`` numbered workers, started with the first message, which can also do other work (`map`).

    A worker obeys and answers lists of orders one after the other. ``stalled`` counts the workers that were replaced
    because they did not answer in time.
    """

    def __init__(self, size: int, patience: float | None = None) -> None:
        self.size, self.stalled = size, 0
        self.patience, self._limit = patience, PATIENCE
        self._members: list[_Member] = []
        self._stillborn, self._closed, self._last_look = 0, False, time.monotonic()
        self._woken, self._waker = Pipe(duplex=False)
        self._awake = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers; empty before the first message."""
        return [member.process.pid for member in self._members]

    def send(self, worker: int, message: list[Order] | Callable[[], Any]) -> None:
        """Send a list of orders, or a function to call, to ``worker``. `receive` notices a dead worker."""
        try:
            while len(self._members) < self.size:
                self._members.append(_Member())
        except OSError as error:
            self.close()
            raise _cannot_start(self.size, error) from error
        member = self._members[worker]
        if not member.owed:
            member.silent = 0.0
        member.owed.append(isinstance(message, list))
        member.process.send(message)

    def receive(self) -> list[tuple[int, Any]]:
        """Wait up to a second, or until `wake`, for answers; None stands for a worker that was replaced."""
        answers: list[tuple[int, Any]] = []
        ready = wait([self._woken, *(member.process.pipe for member in self._members)], LOOK)
        if self._woken in ready:
            self._woken.recv_bytes()
            self._awake.release()
        heard = [worker for worker, member in enumerate(self._members) if member.process.pipe in ready]
        for worker in heard:
            member = self._members[worker]
            member.silent = 0.0
            try:
                message = member.process.receive()
            except Exception:  # it may have died in the middle of a message
                self._replace(worker, "died")
                answers.append((worker, None))
                continue
            if isinstance(message, str) and message == READY:
                member.ready, self._stillborn = True, 0
            else:
                member.owed.popleft()
                answers.append((worker, message))
        for worker in self._overdue(heard):
            self.stalled += 1
            self._limit = min(2 * self._limit, _LONGEST_LIMIT)
            self._replace(worker, f"gave no answer for {self._members[worker].silent:.0f} s")
            answers.append((worker, None))
        return answers

    def wake(self) -> None:
        """Let the present or next call of `receive` return; from any thread."""
        if self._awake.acquire(blocking=False):  # held until `receive` has noticed
            with suppress(OSError):  # closed already
                self._waker.send_bytes(b"!")

    def _overdue(self, heard: Sequence[int]) -> list[int]:
        """The workers that have been silent for too long, except those just ``heard``."""
        now = time.monotonic()
        passed, self._last_look = min(now - self._last_look, LOOK), now
        late = []
        for worker, member in enumerate(self._members):
            if member.owed and worker not in heard:
                member.silent += passed
                if member.silent > self._time_limit(member):
                    late.append(worker)
        return late

    def _time_limit(self, member: _Member) -> float:
        if self.patience is None:
            return self._limit
        if not member.ready:
            return call_limit(self.patience, first=True)
        return self.patience if member.owed[0] else OTHER_WORK * self.patience

    def _replace(self, worker: int, why: str) -> None:
        """Replace a worker's process; RolloutError if too many in a row died before they were ready."""
        if self._closed:
            raise RolloutError("the workers were ended")
        old = self._members[worker]
        old.process.end()
        _log.warning("worker %d (process %d) %s and is replaced", worker, old.process.pid, why)
        if not old.ready:
            self._stillborn += 1
            if self._stillborn >= _STILLBORN:
                raise RolloutError(
                    f"{_STILLBORN} workers in a row died as they started; is memory short? Use fewer `workers`, and run"
                    " the same command again: finished takes are safe"
                )
            time.sleep(min(_WAIT * 2**self._stillborn, _LONGEST_WAIT))
        try:
            self._members[worker] = _Member()
        except OSError as error:
            raise _cannot_start(self.size, error) from error

    def map(
        self, function: Callable[[T], R], items: Sequence[T], on_done: Callable[[T], None] = lambda item: None
    ) -> list[R]:
        """Apply ``function`` to each item, in the workers; return the results in order, or raise its first error."""
        results: dict[int, R] = {}
        deaths: Counter[int] = Counter()
        waiting = deque(range(len(items)))
        busy: dict[int, int] = {}
        while len(results) < len(items):
            for worker in range(self.size):
                if waiting and worker not in busy:
                    busy[worker] = waiting.popleft()
                    self.send(worker, partial(function, items[busy[worker]]))
            for worker, answer in self.receive():
                if worker not in busy:  # it died while it was idle
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
        """Hang up on all workers, and kill those that do not end by themselves soon."""
        self._closed = True
        for member in self._members:
            member.process.hang_up()
        until = time.monotonic() + _POLITE
        for member in self._members:
            member.process.end(patience=max(0.0, until - time.monotonic()))
        self._woken.close()
        self._waker.close()


def _cannot_start(size: int, error: OSError) -> RolloutError:
    return RolloutError(
        f"cannot start {size} workers: {error.strerror}; use fewer `workers`, or raise this shell's limits (ulimit)"
    )
