"""The one writer of a run, in threads of its own, so that nobody waits for the disk.

A disk can flush several files at once, and waiting for it is most of the work: a few threads write files, and one at a
time enters its take into the table.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial

from besttake.takes.key import Row
from besttake.takes.messages import End, Failed
from besttake.takes.store import Store

_THREADS = 4


class Writer:
    """Writes takes into ``store``; ``done`` and ``failed`` count them."""

    def __init__(self, store: Store, on_take: Callable[[Row], None]) -> None:
        self.store, self.on_take = store, on_take
        self.done = self.failed = 0
        self._queue: queue.Queue[End | Failed | None] = queue.Queue(maxsize=256)
        self._error: BaseException | None = None
        self._turn = threading.Lock()
        self._threads = [threading.Thread(target=self._work, name="writer", daemon=True) for _ in range(_THREADS)]

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
