"""A diagnosis with its live page: starts the server, and does what the page orders."""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self, TypeVar

from besttake.errors import ComponentError
from besttake.takes.process import WorkerProcess

_PATIENCE = 60.0
"""The server ends by itself; making the final page of a large run takes a while."""
_STOP = signal.SIGURG
"""Nobody else sends it, and without our handler it does nothing."""
T = TypeVar("T")


class Attached:
    """The live page of the run in ``directory``, served by a process of its own.

    ``token``: what a page must show to give orders; a new one unless given.
    """

    def __init__(self, directory: Path, port: int = 0, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(16)
        self._process = WorkerProcess("besttake.live.child")
        self._lock = threading.Lock()
        self._running = self._stopped = False
        self._orders = threading.Semaphore(0)
        self._ends = False
        self._process.send((str(directory.resolve()), str(directory), port, self.token))
        try:
            kind, self.url = self._process.pipe.recv()
        except (EOFError, OSError):
            kind, self.url = "error", "the live page could not be started"
        if kind == "error":
            self._process.end()
            raise ComponentError(self.url)
        self._thread = threading.Thread(target=self._listen, name="live-orders", daemon=True)
        self._thread.start()

    @property
    def with_token(self) -> str:
        """The address whose page may stop and continue the run; browsers do not send what comes after the #."""
        return f"{self.url}#token={self.token}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within this, an order to stop interrupts the main thread as Ctrl-C does, also where Ctrl-C is ignored."""
        before = signal.signal(_STOP, self._interrupt)
        self._tell("running")
        with self._lock:
            self._running, self._stopped = True, False
            while self._orders.acquire(blocking=False):  # who pressed twice did not mean the next stop
                pass
        try:
            yield
        finally:
            with self._lock:
                self._running = False
            signal.signal(_STOP, before)

    def was_stopped(self) -> bool:
        """Whether it was the page that interrupted."""
        with self._lock:
            return self._stopped

    def wait_to_go_on(self) -> bool:
        """Wait for an order: True to continue, False to end."""
        self._tell("stopped")
        while not self._orders.acquire(timeout=0.2):
            if not self._thread.is_alive():  # nobody is left to give one
                return False
        return not self._ends

    def close(self, error: str = "") -> None:
        """Give open pages the final report, or say why there is none, and end the server."""
        self._tell("ended" if error else "finished", error)
        self._process.wait(_PATIENCE)
        self._process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        self.close("" if error is None else str(error) or "interrupted; finished takes are kept")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._stopped:
            raise KeyboardInterrupt

    def _tell(self, phase: str, note: str = "") -> None:
        self._process.send((phase, note))

    def _listen(self) -> None:
        while True:
            try:
                self._process.pipe.poll(None)  # `recv` alone gives up after a while
                _, order = self._process.pipe.recv()
            except (EOFError, OSError, ValueError, TypeError):  # the pipe is closed
                return
            self._obey(order)

    def _obey(self, order: str) -> None:
        with self._lock:
            if order == "stop" and self._running and not self._stopped:
                self._stopped = True
                signal.pthread_kill(_main(), _STOP)
            elif order in ("continue", "end") and self._stopped:
                self._ends = order == "end"
                self._orders.release()


def _main() -> int:
    ident = threading.main_thread().ident
    assert ident is not None
    return ident


def with_stops(live: Attached, work: Callable[[], T], say: Callable[[str], None]) -> T:
    """What ``work`` gives, which is done again after each stop and continue of the page.

    KeyboardInterrupt where the page, or the user, ends it.
    """
    while True:
        try:
            with live.running():
                return work()
        except KeyboardInterrupt:
            if not live.was_stopped():
                raise
        say("stopped from the page; finished takes are kept. Continue there, or press Ctrl-C to end")
        if not live.wait_to_go_on():
            raise KeyboardInterrupt
        say("going on")
