"""All errors. Each message says what is wrong, where, and what to do; the CLI prints it as one line."""

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
"""What to do when this machine runs out of something."""
_LISTED = 8
T = TypeVar("T")
_LONGEST = 2000
"""The most characters of a message; a longer one, such as with a name from a damaged file, loses its middle."""


class BestTakeError(Exception):
    """Base of every error that a user can cause and fix. ``exit_code`` is that of the command line."""

    exit_code = 2

    def __str__(self) -> str:
        """One line without control codes, even if it has names from a user's files."""
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
    """A run cannot be read, written or combined: it is missing, locked, damaged, or of another plan or version."""


class RolloutError(BestTakeError):
    """The run cannot go on (workers keep dying, the disk is full)."""

    exit_code = 1


class Interrupted(BestTakeError):
    """The user interrupted; the message says what is saved."""

    exit_code = 130


class EndedByCode(Exception):
    """Foreign code raised an exception that would have ended a process, a thread or a task; the message names it."""


def one_line(error: BaseException, most: int = 500) -> str:
    """An error as one line of at most ``most`` characters; errors that are not ours come with the name of their type.

    >>> one_line(ValueError("bad\\n  value"))
    'ValueError: bad value'
    """
    try:
        message = " ".join(str(error).split())
    except BaseException:  # even the text of a foreign error can fail
        message = ""
    if not isinstance(error, BestTakeError | EndedByCode) or not message:
        message = f"{type(error).__name__}: {message}".removesuffix(": ")
    return message[:most]


def failure(error: BaseException) -> Exception:
    """Convert whatever a component raised, such as SystemExit, to an Exception. Ctrl-C is raised again."""
    if isinstance(error, Exception):
        return error
    main = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    if isinstance(error, KeyboardInterrupt) and main:  # in another thread it can only come from the component
        raise error
    return EndedByCode(one_line(error))


@contextmanager
def blaming(whom: str) -> Iterator[None]:
    """Turn an error in a user's own code into a ComponentError that says where; our errors and LIMITS pass."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, BestTakeError | MemoryError) or getattr(error, "errno", None) in LIMITS:
            raise
        raise ComponentError(f"{whom} failed: {one_line(failure(error))}{place_in_code(error)}") from error


def blaming_each(items: Iterable[T], whom: str) -> Iterator[T]:
    """Iterate over ``items``, which a user's own code makes, under `blaming`."""
    with blaming(whom):
        remaining = iter(items)
    while True:
        with blaming(whom):
            item = list(islice(remaining, 1))
        if not item:
            return
        yield item[0]


def place_in_code(error: BaseException) -> str:
    """`` (policy.py:16)``: the innermost line that is neither in BestTake nor in an installed package."""
    ours = str(Path(__file__).parent)
    frames = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(("<", ours))]
    frames = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def need(library: str, needed_for: str, extra: str = "vision") -> Any:
    """Import ``library`` or raise `MissingExtra`."""
    try:
        return importlib.import_module(library)
    except ImportError:
        raise MissingExtra(library.partition(".")[0], extra, needed_for) from None


@contextmanager
def one_clear_error(message: str) -> Iterator[None]:
    """Turn any foreign error into a ComponentError with this ``message``, in which ``{}`` stands for the reason."""
    try:
        yield
    except BestTakeError:
        raise
    except BaseException as error:
        raise ComponentError(message.replace("{}", one_line(failure(error)))) from error


def suggestion(word: str, known: Sequence[str]) -> str:
    """A hint for an unknown ``word``: the most similar known one, or a list of the known ones."""
    if close := get_close_matches(word, known, n=1):
        return f"did you mean {close[0]!r}?"
    return f"it has {listed(known, _LISTED)}"


def listed(names: Sequence[object], most: int) -> str:
    """The first ``most`` of ``names``, and how many more there are."""
    shown = ", ".join(f"{name!s:.120}" for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
