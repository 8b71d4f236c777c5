"""End a command on Ctrl-C: one is enough, more do no harm, and finished takes are kept."""

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


class FirstInterrupt:
    """A signal handler: the first Ctrl-C is a KeyboardInterrupt, later ones count only if the command takes long."""

    def __init__(self) -> None:
        self.first: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        if self.first is None:
            self.first = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() - self.first > _LONG:  # finished takes are already on the disk
            os.write(2, f"besttake: {message()}\n".encode())
            os._exit(CODE)


_once = FirstInterrupt()


def listen() -> None:
    """End the command in order at the first Ctrl-C; `serve` handles it itself, and an ignored Ctrl-C stays ignored."""
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None) and _command() != "serve":
        signal.signal(signal.SIGINT, _once)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # by then, only the interpreter has to end


def end_at_once() -> None:
    """End the process at Ctrl-C while the command line is still being loaded."""

    def end(number: int, frame: FrameType | None) -> None:
        os.write(2, b"besttake: interrupted\n")
        os._exit(CODE)

    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, end)


@contextmanager
def errors_as_interruption() -> Iterator[None]:
    """Turn an error after Ctrl-C into an interruption, because Ctrl-C may break anything that is under way."""
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
    """End the process with ``code``, without waiting for a policy that is still sampling in a thread.

    If there are such threads, the process ends without taking the interpreter down: that would stop them in the middle
    of C++ code, and crash.
    """
    if not isinstance(code, int) or not any(thread.daemon for thread in threading.enumerate()):
        sys.exit(code)
    atexit._run_exitfuncs()  # removes temporary files, and lets Ctrl-C be ignored
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def message() -> str:
    """Say that the command was interrupted, and whether its takes are kept."""
    kept = "; finished takes are kept, run the same command to go on"
    return f"interrupted{kept if _command() in _KEEP_TAKES else ''}"


def _command() -> str:
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "")
