"""Ctrl-C: once is enough, more do no harm, and nothing that is finished is lost."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

CODE = 130
_KEEP_TAKES = ("diagnose", "demo", "reproduce")
_LONG = 10.0


class _Once:
    """The first Ctrl-C raises KeyboardInterrupt; later ones are not heard, unless the command takes long to end."""

    def __init__(self) -> None:
        self.first: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() - self.first > _LONG:  # what is finished is on the disk already
            os.write(2, f"besttake: {text()}\n".encode())
            os._exit(CODE)


_once = _Once()


def listen() -> None:
    """End on the first Ctrl-C, in order. A server ends in its own way; where Ctrl-C is ignored it stays so."""
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None) and _command() != "serve":
        signal.signal(signal.SIGINT, _once)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # then only the interpreter is left to end


def end_at_once() -> None:
    """Until the command line is loaded there is nothing to end in order."""

    def end(number: int, frame: FrameType | None) -> None:
        os.write(2, b"besttake: interrupted\n")
        os._exit(CODE)

    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, end)


@contextmanager
def heeded() -> Iterator[None]:
    """Ctrl-C may break anything that is under way, so an error that comes after it is an interruption, too."""
    from typer import Exit

    from besttake.errors import Interrupted

    try:
        yield
    except (Exit, Interrupted):
        raise
    except Exception as error:
        if _once.first is None:
            raise
        raise KeyboardInterrupt from error


def leave(code: int | str | None) -> NoReturn:
    """End the process with ``code``.

    A policy that is still sampling in a thread is not waited for. Python ends such threads in the midst of C++ code
    while it takes the interpreter down, which crashes; so where there are any, the system ends the process.
    """
    if not isinstance(code, int) or not any(thread.daemon for thread in threading.enumerate()):
        sys.exit(code)
    atexit._run_exitfuncs()  # temporary files are removed, and Ctrl-C is heard no more
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def text() -> str:
    """What is true of the command that was interrupted."""
    kept = "; finished takes are kept, run the same command to go on"
    return f"interrupted{kept if _command() in _KEEP_TAKES else ''}"


def _command() -> str:
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "")
