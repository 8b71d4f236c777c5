"""What was played is kept, also where Ctrl-C comes while it is."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.messages import Failed
from besttake.takes.store import Store
from besttake.takes.writer import Writer


def test_takes_that_are_being_kept_when_ctrl_c_comes_are_kept_before_the_store_is_closed(tmp_path: Path) -> None:
    seen: list[Row] = []

    def slowly(row: Row) -> None:
        time.sleep(0.05)
        seen.append(row)

    store = Store.write(tmp_path / "run", Manifest())
    writer = Writer(store, slowly)
    with pytest.raises(KeyboardInterrupt), store, writer:
        for start in range(8):
            writer.put(Failed(0, TakeKey("p", "e", "t", start, "base", 0), "boom", 0.0))
        writer._threads[0] = _Interrupted(writer._threads[0])
    assert not any(thread.is_alive() for thread in writer._threads)
    assert (writer.failed, len(seen), writer._error) == (8, 8, None)
    with Store.open(tmp_path / "run") as store:
        assert len(store.rows()) == 8


class _Interrupted(threading.Thread):
    """A thread; the first who waits for its end is interrupted."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self._thread, self._waited = thread, False

    def join(self, timeout: float | None = None) -> None:
        if not self._waited:
            self._waited = True
            raise KeyboardInterrupt
        self._thread.join(timeout)

    def is_alive(self) -> bool:
        return self._thread.is_alive()
