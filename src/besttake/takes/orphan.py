"""A worker never outlives its parent, however the parent ends and whatever the worker is doing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress

_SET_PARENT_DEATH_SIGNAL = 1
_EVERY = 1.0


def end_with_parent(parent: int) -> None:
    """End this process when process ``parent`` has ended.

    On Linux the kernel does it, also when this process is stuck in foreign code. Elsewhere a thread looks every second.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    _end_if_orphaned(parent)
    threading.Thread(target=_look, args=(parent,), name="parent", daemon=True).start()


def _look(parent: int) -> None:
    while True:
        time.sleep(_EVERY)
        _end_if_orphaned(parent)


def _end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)
