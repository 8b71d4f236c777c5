"""One tree of errors. Each message says what is wrong, where, and what to do; the CLI prints it as one line."""

from __future__ import annotations

import errno
import importlib
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from besttake.sanitize import printable

LIMITS = {
    errno.EMFILE: "use fewer workers, or allow more open files (ulimit -n)",
    **dict.fromkeys((errno.ENFILE, errno.ENOMEM, errno.EAGAIN), "use fewer workers or a smaller batch"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room and run the same command again"),
}
"""What to do where this machine has no more of something, whoever asked for it."""
_LISTED = 8
T = TypeVar("T")
_LONGEST = 2000
"""Characters of a message: one that quotes a name of a damaged file loses its middle."""


class BestTakeError(Exception):
    """Base of every error that a user can cause and mend. ``exit_code`` is what the CLI exits with."""

    exit_code = 2

    def __str__(self) -> str:
        """One line that a terminal only shows, whatever names from a user's files it holds."""
        line = printable(" ".join(super().__str__().splitlines()))
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"


class PlanError(BestTakeError):
    """The plan, a flag or a YAML key is wrong."""


class ComponentError(BestTakeError):
    """A policy, env or encoder cannot be found, built or used with its partner."""


class MissingExtra(ComponentError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs {library}, which is not installed: pip install 'besttake[{extra}]'")


class ContractError(ComponentError):
    """An adapter breaks its contract (``besttake.testing``)."""


class LibraryError(BestTakeError):
    """A demonstration library, or the data it is built from, is damaged or does not fit."""


class RunError(BestTakeError):
    """A run directory is locked, damaged, of another plan or of a newer version."""


class RolloutError(BestTakeError):
    """The engine could not go on (workers keep dying, the disk is full)."""

    exit_code = 1


class Interrupted(BestTakeError):
    """The user stopped it; the message says what is kept."""

    exit_code = 130


class EndedByCode(Exception):
    """Code of others raised what would have ended a process, a thread or a task; the message names it."""


def one_line(error: BaseException, most: int = 500) -> str:
    """An error as one line of at most ``most`` characters; errors that are not ours come with the name of their type.

    >>> one_line(ValueError("bad\\n  value"))
    'ValueError: bad value'
    """
    try:
        message = " ".join(str(error).split())
    except BaseException:  # an error of someone else's may not even be able to say what it is
        message = ""
    if not isinstance(error, BestTakeError | EndedByCode) or not message:
        message = f"{type(error).__name__}: {message}".removesuffix(": ")
    return message[:most]


def failure(error: BaseException) -> Exception:
    """``error`` as the failure of the component that raised it, also where it would end a process, a thread or a task.

    Ctrl-C, which only the main thread hears, is raised again.
    """
    if isinstance(error, Exception):
        return error
    heard = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    if isinstance(error, KeyboardInterrupt) and heard:
        raise error
    return EndedByCode(one_line(error))


@contextmanager
def blaming(whom: str) -> Iterator[None]:
    """Tell an error of a user's own code in one line, with the place in that code; our own, and limits, go on as is."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, BestTakeError | MemoryError) or getattr(error, "errno", None) in LIMITS:
            raise
        raise ComponentError(f"{whom} failed: {one_line(failure(error))}{place_in_code(error)}") from error


def blaming_each(items: Iterable[T], whom: str) -> Iterator[T]:
    """``items``, whose making is code of a user's own, as `blaming` has it."""
    with blaming(whom):
        left = iter(items)
    while True:
        with blaming(whom):
            item = list(islice(left, 1))
        if not item:
            return
        yield item[0]


def place_in_code(error: BaseException) -> str:
    """`` (policy.py:16)``: the innermost line that is neither ours nor of an installed package."""
    ours = str(Path(__file__).parent)
    frames = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(("<", ours))]
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def need(library: str, needed_for: str, extra: str = "vision") -> Any:
    """Import ``library`` or raise `MissingExtra`."""
    try:
        return importlib.import_module(library)
    except ImportError:
        raise MissingExtra(library.partition(".")[0], extra, needed_for) from None


@contextmanager
def one_clear_error(message: str) -> Iterator[None]:
    """Let our own errors pass and turn any other into a ComponentError: ``message`` with ``{}`` for the reason.

    For code of others (a checkpoint, a pickle, safetensors), which can raise anything.
    """
    try:
        yield
    except BestTakeError:
        raise
    except BaseException as error:
        raise ComponentError(message.replace("{}", one_line(failure(error)))) from error


def suggestion(word: str, known: Sequence[str]) -> str:
    """A hint for an unknown ``word``: the most similar known one, else a list of the known ones."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"it has {listed(known, _LISTED)}"


def listed(names: Sequence[object], most: int) -> str:
    """The first ``most`` of ``names``, and how many more there are."""
    shown = ", ".join(f"{name!s:.120}" for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
