"""What goes wrong with a disk, in one clear line: no room, no permission, a read error, a damaged database."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from besttake.errors import BestTakeError, RolloutError, RunError

_NO_ROOM = 64 * 1024
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turn errors of files and of SQLite in a run directory into errors of ours."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a mistake in this code
        raise
    except sqlite3.Error as error:
        raise _of_sqlite(directory, error) from error
    except OSError as error:
        raise _of_file(directory, error) from error


def is_damage(error: sqlite3.Error) -> bool:
    """Whether a database is not what SQLite wrote, as far as ``error`` tells."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ


def _of_sqlite(directory: Path, error: sqlite3.Error) -> BestTakeError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    refused = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    if code == sqlite3.SQLITE_FULL or (refused and _no_room(directory)):
        return _full(directory)
    if is_damage(error):
        return damaged(directory, " ".join(str(error).split()))
    return RolloutError(
        f"{directory}/takes.sqlite cannot be used ({error}); finished takes are safe: look after the disk and run the"
        " same command again"
    )


def damaged(directory: Path, reason: str) -> RunError:
    """The table of takes cannot be read."""
    return RunError(
        f"{directory}/takes.sqlite is damaged ({reason}); run the same diagnosis again: it makes the table anew and"
        " keeps every take whose file is whole"
    )


def _of_file(directory: Path, error: OSError) -> BestTakeError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(directory)
    where = error.filename or directory
    return RolloutError(
        f"cannot use {where}: {error.strerror or error}; finished takes are safe: mend that and run the same command"
        " again, or choose another directory with `out`"
    )


def _full(directory: Path) -> RolloutError:
    return RolloutError(
        f"no room left on the disk of {directory}; finished takes are safe: make room and run the same command again"
    )


def _no_room(directory: Path) -> bool:
    try:
        return shutil.disk_usage(directory).free < _NO_ROOM
    except OSError:
        return False
