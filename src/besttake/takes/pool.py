"""Workers as processes of this machine. A pool carries orders and answers; it knows nothing of takes.

Between takes its processes may share other work, by `LocalPool.map`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol, TypeVar

from besttake.errors import RolloutError
from besttake.takes.orders import Answer, Order
from besttake.takes.worker import Worker

# As many simulators run as there are cores: threads of their own would only get into each other's way.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


_LIVES = 3

T = TypeVar("T")
R = TypeVar("R")


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
    """Worker processes, started afresh (spawn) so that no lock or thread of the parent is copied into them."""

    def __init__(self, size: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._members = [self._start() for _ in range(size)]

    @property
    def size(self) -> int:
        """How many workers."""
        return len(self._members)

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [int(process.pid or 0) for process, _ in self._members]

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders. A dead worker is noticed by `receive`."""
        self._tell(worker, list(orders))

    def receive(self) -> list[tuple[int, list[Answer] | None]]:
        """Answers of every worker that has some, waiting for the first."""
        return self._hear()

    def _tell(self, worker: int, message: Any) -> None:
        try:
            self._members[worker][1].send(message)
        except (BrokenPipeError, ConnectionResetError):
            return

    def _hear(self) -> list[tuple[int, Any]]:
        pipes = {id(pipe): worker for worker, (_, pipe) in enumerate(self._members)}
        ready = wait([pipe for _, pipe in self._members])
        found: list[tuple[int, Any]] = []
        for pipe in ready:
            worker = pipes[id(pipe)]
            try:
                found.append((worker, self._members[worker][1].recv()))
            except (EOFError, ConnectionResetError):
                self._replace(worker)
                found.append((worker, None))
        return sorted(found, key=lambda pair: pair[0])

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
                    self._tell(worker, partial(function, items[busy[worker]]))
            for worker, answer in self._hear():
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
        for _, pipe in self._members:
            pipe.close()
        for process, _ in self._members:
            process.join(timeout=2)
            if process.is_alive():
                process.kill()
                process.join()

    def _start(self) -> tuple[SpawnProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        with _environment(_ONE_THREAD):
            process.start()
        theirs.close()
        return process, ours

    def _replace(self, worker: int) -> None:
        process, pipe = self._members[worker]
        pipe.close()
        process.kill()
        process.join()
        self._members[worker] = self._start()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that a process started within inherits, unless the user has set them."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _serve(pipe: Connection) -> None:
    """Obey orders until the parent hangs up. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker()
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            break
        answers = worker.obey(message) if isinstance(message, list) else _called(message)
        try:
            pipe.send(answers)
        except (BrokenPipeError, OSError):
            break
    worker.close()


def _called(work: Callable[[], Any]) -> tuple[Any] | Exception:
    """The result of ``work`` in a tuple of one, or what it raised."""
    try:
        return (work(),)
    except Exception as error:
        return error
