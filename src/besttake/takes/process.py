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

# There are as many simulators as cores: more threads would only slow each other down.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# The parent alone handles Ctrl-C, from the first moment on.
_CODE = """\
import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
import json, sys; sys.path[:] = json.loads(sys.argv[1])
from besttake.takes.process import serve; serve(*map(int, sys.argv[2:]))
"""

READY = "ready"
"""The first message of a worker, once it has loaded what it needs."""

_STALLED = 60
"""Seconds after which the rest of a message is given up."""
_SET_PARENT_DEATH_SIGNAL = 1


class WorkerProcess:
    """The parent's side of a worker: its process, which finds the same modules as this one, and its pipe."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        _limit(self.pipe.fileno(), _STALLED)
        path = json.dumps([os.path.abspath(place) for place in sys.path])
        command = [sys.executable, "-c", _CODE, path, str(os.getpid()), str(theirs.fileno())]
        try:
            self._process = _start(command, theirs.fileno())
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid

    def send(self, message: Any) -> None:
        """Send a message. A worker that is dead or does not read is noticed later, by its missing answer."""
        with suppress(OSError):
            self.pipe.send(message)

    def receive(self) -> Any:
        """The next message; raises if the worker died before the end of it."""
        return self.pipe.recv()

    def hang_up(self) -> None:
        """Ask the worker to end, even while another thread waits for its answers."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        self.pipe.close()

    def end(self, patience: float = 0.0) -> None:
        """Wait ``patience`` seconds for the worker to end by itself, and kill it if it has not."""
        self.hang_up()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@lru_cache(maxsize=1)
def _starter(process: int) -> ThreadPoolExecutor:
    # Ctrl-C is blocked in this thread. A child inherits that, until its own code ignores Ctrl-C.
    return ThreadPoolExecutor(1, "starter", signal.pthread_sigmask, (signal.SIG_BLOCK, {signal.SIGINT}))


def _start(command: Sequence[str], passed: int) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lasts as long as this process.

    Linux ends a child when the *thread* that started it ends, and some of our threads end before the run does.
    """
    env = {**_ONE_THREAD, **os.environ}  # the user's own numbers of threads count
    start = lambda: subprocess.Popen(command, pass_fds=[passed], stdin=subprocess.DEVNULL, env=env)  # noqa: E731
    return _starter(os.getpid()).submit(start).result()


def _limit(descriptor: int, seconds: int) -> None:
    """Limit how long a read or write of a part of a message may wait."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, 0))


def serve(parent: int, descriptor: int) -> None:
    """The worker's main loop: obey orders until the parent hangs up or ends."""
    end_with_parent(parent)
    os.set_inheritable(descriptor, False)
    show_if_parent_does()
    logging.captureWarnings(True)  # the parent has shown the warnings of env and policy once
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
    """Send an answer, or the reason why it cannot be pickled (which is found out before anything is sent)."""
    try:
        pipe.send(answer)
    except OSError:
        raise
    except Exception as error:
        what, why = ("error", answer) if isinstance(answer, Exception) else ("answer", error)
        pipe.send(TypeError(f"its {what} cannot be sent to another process ({one_line(why)})"))


def end_with_parent(parent: int) -> None:
    """End this process when process ``parent`` has ended.

    On Linux the kernel does so, even if this process is stuck in foreign code. Elsewhere a thread looks every second.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=watch, name="parent", daemon=True).start()
