"""Workers as processes of this machine. A pool carries orders and answers; it knows nothing of takes.

Between takes its processes may share other work, by `LocalPool.map`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeVar

from besttake.errors import RolloutError
from besttake.takes.orders import Answer, Order
from besttake.takes.process import WorkerProcess

_LIVES = 3

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class Pool(Protocol):
    """A set of numbered workers. Lists of orders sent to one are obeyed and answered one after the other."""

    @property
    def size(self) -> int:
        """How many workers."""
        ...

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders."""
        ...

    def receive(self) -> list[tuple[int, list[Answer] | None]]:
        """Wait for at least one worker: its answers, or None when it died (and was replaced by a new one)."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


class LocalPool:
    """Worker processes. One that dies is noticed and replaced."""

    def __init__(self, size: int) -> None:
        self._members = [WorkerProcess() for _ in range(size)]

    @property
    def size(self) -> int:
        """How many workers."""
        return len(self._members)

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [member.pid for member in self._members]

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders. A dead worker is noticed by `receive`."""
        self._members[worker].send(list(orders))

    def receive(self) -> list[tuple[int, list[Answer] | None]]:
        """Answers of every worker that has some, waiting for the first."""
        return self._receive()

    def _receive(self) -> list[tuple[int, Any]]:
        ready = wait([member.pipe for member in self._members])
        answers: list[tuple[int, Any]] = []
        for worker, member in enumerate(self._members):
            if member.pipe in ready:
                try:
                    answers.append((worker, member.pipe.recv()))
                except (EOFError, ConnectionResetError):
                    member.end()
                    _log.info("worker %d (process %d) died and is replaced", worker, member.pid)
                    self._members[worker] = WorkerProcess()
                    answers.append((worker, None))
        return answers

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
                    self._members[worker].send(partial(function, items[busy[worker]]))
            for worker, answer in self._receive():
                if worker not in busy:  # it died while it had nothing to do
                    continue
                index = busy.pop(worker)
                if answer is None:
                    deaths[index] += 1
                    if deaths[index] == _LIVES:
                        raise RolloutError(f"a worker process died {_LIVES} times over the same work; is memory short?")
                    waiting.appendleft(index)
                elif isinstance(answer, Exception):
                    raise answer
                else:
                    (results[index],) = answer
                    on_done(items[index])
        return [results[index] for index in range(len(items))]

    def close(self) -> None:
        """End all workers, politely first."""
        for member in self._members:
            member.hang_up()
        for member in self._members:
            member.end(patience=2)
