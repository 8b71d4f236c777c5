"""A worker as a process of this machine, and the pipe to it.

A worker is a fresh interpreter: no lock or thread of the parent is copied into it, and the user's script is not run
again in it, so a script needs no ``if __name__ == "__main__"``. It ends when its parent hangs up or dies, whatever it
is doing.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from besttake.log import show_if_parent_does
from besttake.takes.worker import Worker

# As many simulators run as there are cores: threads of their own would only get into each other's way.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# Ctrl-C is the parent's business, from the first moment on, and its end is the worker's.
_CODE = """\
import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
import json, sys; sys.path[:] = json.loads(sys.argv[1])
from besttake.takes.orphan import end_with_parent; end_with_parent(int(sys.argv[3]))
from besttake.takes.process import serve; serve(int(sys.argv[2]))
"""

READY = "ready"
"""The first message of a worker: it has loaded what it needs."""

_STALLED = 60
"""A message that has begun and does not come to its end within so many seconds never will."""


class WorkerProcess:
    """The parent's side: a process that finds the same modules as this one, and its pipe."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        _limit(self.pipe.fileno(), _STALLED)
        path = json.dumps([os.path.abspath(place) for place in sys.path])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, path, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={**_ONE_THREAD, **os.environ},
            )  # fmt: skip
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message. A dead worker, or one that reads nothing, is noticed when its answer is waited for."""
        with suppress(OSError):
            self.pipe.send(message)

    def hang_up(self) -> None:
        """Ask it to end."""
        self.pipe.close()

    def end(self, patience: float = 0.0) -> None:
        """Wait ``patience`` seconds for it to end by itself, and kill it if it has not."""
        self.pipe.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _limit(descriptor: int, seconds: int) -> None:
    """Let no read or write of a part of a message wait longer than ``seconds``."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as own:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            own.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, 0))


def serve(descriptor: int) -> None:
    """The worker's side: obey orders until the parent hangs up."""
    os.set_inheritable(descriptor, False)
    show_if_parent_does()
    pipe, worker = Connection(descriptor), Worker()
    with suppress(OSError):
        pipe.send(READY)
    while True:
        try:
            message = pipe.recv()
            pipe.send(worker.obey(message) if isinstance(message, list) else _called(message))
        except (EOFError, OSError):
            break
    worker.close()


def _called(work: Callable[[], Any]) -> tuple[Any] | Exception:
    """The result of ``work`` in a tuple of one, or what it raised."""
    try:
        return (work(),)
    except Exception as error:
        return error
