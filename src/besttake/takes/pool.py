"""The workers of a run. A pool carries orders and answers; it knows nothing of takes."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Literal, Protocol, Self, TypeVar

from besttake.errors import RolloutError
from besttake.takes.orders import Answer, Order
from besttake.takes.process import WorkerProcess
from besttake.takes.ray import RayPool

_LIVES = 3

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class Pool(Protocol):
    """``size`` numbered workers. Lists of orders sent to one are obeyed and answered one after the other."""

    size: int

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
    """Workers as processes of this machine, which share other work between takes. One that dies is replaced."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._members = [WorkerProcess() for _ in range(size)]

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [member.pid for member in self._members]

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders. A dead worker is noticed by `receive`."""
        self._members[worker].send(list(orders))

    def receive(self) -> list[tuple[int, Any]]:
        """Answers of every worker that has some, waiting for the first."""
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
            for worker, answer in self.receive():
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


class Workers:
    """``count`` workers, local processes or on Ray: started when they are first needed, kept until the run's end."""

    def __init__(self, count: int, on: Literal["local", "ray"] = "local") -> None:
        self.count, self.on = count, on
        self._pool: Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def pool(self) -> Pool:
        """The pool, started by the first call."""
        if self._pool is None:
            self._pool = RayPool(self.count) if self.on == "ray" else LocalPool(self.count)
        return self._pool

    @property
    def running(self) -> LocalPool | None:
        """The pool if its processes run on this machine already, else None."""
        return self._pool if isinstance(self._pool, LocalPool) else None

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`map` by worker processes of this machine, started if need be; in this process where they are on Ray."""
        if self.on == "local":
            self.pool()
        return self.map_if_running(function, items)

    def map_if_running(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`map` by the worker processes if they run already, else in this process."""
        return self.running.map(function, items) if self.running is not None else map(function, items)
