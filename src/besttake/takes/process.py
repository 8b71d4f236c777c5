"""A worker as a process of this machine, and the pipe to it.

A worker is a fresh interpreter: no lock or thread of the parent is copied into it, and the user's script is not run
again in it, so a script needs no ``if __name__ == "__main__"``. It ends when its parent hangs up or dies, whatever it
is doing.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection, Pipe
from typing import Any

from besttake.errors import one_line
from besttake.log import show_if_parent_does
from besttake.takes.worker import Worker
from besttake.threads import outcome

# As many simulators run as there are cores: threads of their own would only get into each other's way.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# Ctrl-C is the parent's business, from the first moment on.
_CODE = """\
import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
import json, sys; sys.path[:] = json.loads(sys.argv[1])
from besttake.takes.process import serve; serve(*map(int, sys.argv[2:]))
"""

READY = "ready"
"""The first message of a worker: it has loaded what it needs."""

_STALLED = 60
"""A message that has begun and does not come to its end within so many seconds never will."""
_SET_PARENT_DEATH_SIGNAL = 1


class WorkerProcess:
    """The parent's side: a process that finds the same modules as this one, and its pipe."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        _limit(self.pipe.fileno(), _STALLED)
        path = json.dumps([os.path.abspath(place) for place in sys.path])
        command = [sys.executable, "-c", _CODE, path, str(os.getpid()), str(theirs.fileno())]
        try:
            self._process = _started(command, theirs.fileno())
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

    def receive(self) -> Any:
        """The next message; raises where the worker died, at the latest in the middle of it."""
        return self.pipe.recv()

    def hang_up(self) -> None:
        """Ask it to end, also where another thread waits for its answers."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)
        self.pipe.close()

    def end(self, patience: float = 0.0) -> None:
        """Wait ``patience`` seconds for it to end by itself, and kill it if it has not."""
        self.hang_up()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@lru_cache(maxsize=1)
def _starter(process: int) -> ThreadPoolExecutor:
    # A child inherits that Ctrl-C is blocked here, so it does not hear it before it ignores it by itself.
    return ThreadPoolExecutor(1, "starter", signal.pthread_sigmask, (signal.SIG_BLOCK, {signal.SIGINT}))


def _started(command: Sequence[str], passed: int) -> subprocess.Popen[bytes]:
    """A process that is started by a thread that lasts as long as we do.

    Linux ends a child when the *thread* that started it ends, and some of ours end before the run does.
    """

    def start() -> subprocess.Popen[bytes]:
        # A user's own numbers of threads stay.
        return subprocess.Popen(command, pass_fds=[passed], stdin=subprocess.DEVNULL, env={**_ONE_THREAD, **os.environ})

    return _starter(os.getpid()).submit(start).result()


def _limit(descriptor: int, seconds: int) -> None:
    """Let no read or write of a part of a message wait longer than ``seconds``."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as own:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            own.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, 0))


def serve(parent: int, descriptor: int) -> None:
    """The worker's side: obey orders until the parent hangs up or ends."""
    end_with_parent(parent)
    os.set_inheritable(descriptor, False)
    show_if_parent_does()
    logging.captureWarnings(True)  # the parent has opened the same env and policy, and shown their warnings once
    pipe, worker = Connection(descriptor), Worker()
    with suppress(OSError):
        pipe.send(READY)
    while True:
        try:
            message = pipe.recv()
            if isinstance(message, list):
                pipe.send(worker.obey(message))
            else:
                answer = outcome(message)
                _send(pipe, answer if isinstance(answer, Exception) else (answer,))
        except (EOFError, OSError):
            break
    worker.close()


def _send(pipe: Connection, answer: tuple[Any] | Exception) -> None:
    """Send an answer; where it cannot be pickled, which is done before anything is sent, send why."""
    try:
        pipe.send(answer)
    except OSError:
        raise
    except Exception as error:
        what, why = ("error", answer) if isinstance(answer, Exception) else ("answer", error)
        pipe.send(TypeError(f"its {what} cannot be sent to another process ({one_line(why)})"))


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
        time.sleep(1.0)
        _end_if_orphaned(parent)


def _end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)
