"""The workers of a run, as processes of this machine. A pool carries orders and answers; it knows nothing of takes.

A worker that dies is replaced, and so is one that gives no answer in time: within the user's ``patience``, or within
five minutes, which double (up to two hours) each time a worker was given up.
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
"""Seconds between looks. No more than that counts per look, so that a laptop that slept, or Ctrl-Z, costs no worker."""
_LONGEST_LIMIT = 7200.0

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


@dataclass
class _Member:
    """A worker, which messages it owes an answer to (True: orders), and for how many seconds it has been silent."""

    process: WorkerProcess = field(default_factory=WorkerProcess)
    ready: bool = False
    owed: deque[bool] = field(default_factory=deque)
    silent: float = 0.0


class WorkerPool:
    """``size`` numbered workers, started when they are first needed, which also share other work between takes.

    Lists of orders sent to one worker are obeyed and answered one after the other. ``stalled`` counts the workers that
    gave no answer in time and were replaced.
    """

    def __init__(self, size: int, patience: float | None = None) -> None:
        self.size, self.stalled = size, 0
        self.patience, self._limit = patience, PATIENCE
        self._members: list[_Member] = []
        self._stillborn, self._closed, self._looked = 0, False, time.monotonic()
        self._woken, self._waker = Pipe(duplex=False)
        self._awake = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers; none before the first message."""
        return [member.process.pid for member in self._members]

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders. A dead worker is noticed by `receive`."""
        self._post(worker, list(orders))

    def receive(self) -> list[tuple[int, Any]]:
        """The answers of workers, after a wait; None for one that died or stalled (and was replaced).

        Empty where nobody answered for a second, or `wake` was called meanwhile.
        """
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
        """Let `receive` return, or the next one; from any thread."""
        if self._awake.acquire(blocking=False):  # held from here until `receive` has noticed
            with suppress(OSError):  # closed already
                self._waker.send_bytes(b"!")

    def _overdue(self, heard: Sequence[int]) -> list[int]:
        """The workers that have been silent for too long, without those just ``heard``."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, LOOK), now
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

    def _post(self, worker: int, message: Any) -> None:
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

    def _replace(self, worker: int, why: str) -> None:
        """Put a new process in the place of one. Those that die before they are ready are not replaced for ever."""
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
