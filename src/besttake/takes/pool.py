"""Workers as processes of this machine. A pool carries orders and answers; it knows nothing of takes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol

from besttake.takes.worker import Answer, Order, Worker

# As many simulators run as there are cores: threads of their own would only get into each other's way.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


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
        try:
            self._members[worker][1].send(list(orders))
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self) -> list[tuple[int, list[Answer] | None]]:
        """Answers of every worker that has some, waiting for the first."""
        pipes = {id(pipe): worker for worker, (_, pipe) in enumerate(self._members)}
        ready = wait([pipe for _, pipe in self._members])
        found: list[tuple[int, list[Answer] | None]] = []
        for pipe in ready:
            worker = pipes[id(pipe)]
            try:
                found.append((worker, self._members[worker][1].recv()))
            except (EOFError, ConnectionResetError):
                self._replace(worker)
                found.append((worker, None))
        return sorted(found, key=lambda pair: pair[0])

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
            orders = pipe.recv()
        except (EOFError, OSError):
            break
        answers = worker.obey(orders)
        try:
            pipe.send(answers)
        except (BrokenPipeError, OSError):
            break
    worker.close()
