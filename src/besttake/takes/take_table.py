"""The table of takes: ``takes.sqlite`` (WAL), a row per take with a checksum, and copies of small files of the run.

Whoever reads it gets a snapshot of the whole table and writes nothing, also on a disk that is read-only and while
another process writes. What a row says is believed only if its checksum is right.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

from besttake import files
from besttake.errors import BestTakeError, RolloutError, RunError
from besttake.takes.key import Row, TakeKey

NAME = "takes.sqlite"
_FIELDS = (*(f.name for f in fields(TakeKey)), *(f.name for f in fields(Row)[1:]))
_COLUMNS = ", ".join((*_FIELDS, "checksum"))
_TABLES = """
create table if not exists takes (
    policy text, env text, task text, start integer, arm text, seed integer,
    status text not null check (status in ('done', 'error')),
    success integer, success_step integer, steps integer, calls integer,
    file text, size integer, sha256 text, error text, seconds real, checksum text,
    primary key (policy, env, task, start, arm, seed)
) without rowid;
create table if not exists copies (name text primary key, content text, checksum text) without rowid;
"""
_TRIES = 5
_MAYBE_TEXT = str | None
_KINDS = (
    str, str, str, int, str, int, str, int | None, int | None, int, int, _MAYBE_TEXT, int, _MAYBE_TEXT, _MAYBE_TEXT,
    float | int,
)  # fmt: skip
"""The types of `_FIELDS`."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}


@dataclass
class Content:
    """What a table holds. ``torn``: rows that are not what was written. ``manifest``: the copy of ``run.json``."""

    rows: dict[TakeKey, Row] = field(default_factory=dict)
    torn: int = 0
    manifest: bytes | None = None


class TakeTable:
    """The table, opened by the one process that writes it; ``content`` is what it held then.

    sqlite3.DatabaseError when it is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._db = _connect(directory / NAME)
        self._lock = threading.Lock()  # to close a database while another thread writes into it crashes Python
        try:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            _check_schema(self._db)
            self._db.executescript(_TABLES)
            self.content = _content(self._db)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the database, once nobody writes into it."""
        with self._lock:
            self._db.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, or put them in the place of others of the same take."""
        marks = ", ".join("?" * (len(_FIELDS) + 1))
        with self._lock, self._db:
            self._db.executemany(f"insert or replace into takes ({_COLUMNS}) values ({marks})", map(_sealed, rows))

    def drop(self, keys: Sequence[TakeKey]) -> None:
        """Drop the rows of some takes."""
        where = " and ".join(f"{f.name} = ?" for f in fields(TakeKey))
        with self._lock, self._db:
            self._db.executemany(f"delete from takes where {where}", map(astuple, keys))

    def clear(self) -> None:
        """Drop all rows."""
        with self._lock, self._db:
            self._db.execute("delete from takes")

    def keep_copy(self, name: str, data: bytes) -> None:
        """Keep a copy of a file of the run."""
        text = data.decode()
        with self._lock, self._db:
            self._db.execute("insert or replace into copies values (?, ?, ?)", (name, text, _checksum([text])))

    def copy_of(self, name: str) -> bytes | None:
        """The copy of a file; None where there is none that is whole."""
        return _copy_of(self._db, name)


def has_log(directory: Path) -> bool:
    """Whether rows stand in a write-ahead log: the writer is at work, or was killed."""
    state = _state(directory / f"{NAME}-wal")
    return state is not None and state[0] > 0


def snapshot(directory: Path) -> Content:
    """What the table of a run holds now; nothing is written. Raises sqlite3.Error where it cannot be read."""
    path = directory / NAME
    wal = path.with_name(f"{NAME}-wal")
    if path.exists() and not path.is_file():  # to open a pipe could take for ever
        raise sqlite3.DatabaseError("it is not a regular file")
    for attempt in range(_TRIES):
        before = _state(path), _state(wal)
        try:
            if before[1] and before[1][0]:
                return _with_wal(path, wal)
            # Nobody writes. An immutable database needs no lock and no file beside it, so a read-only disk will do.
            with closing(_connect(path, "immutable=1")) as db:
                content = _content(db)
        except sqlite3.Error:
            if attempt == _TRIES - 1 or before == (_state(path), _state(wal)):
                raise
            continue
        if before == (_state(path), _state(wal)):
            return content
    return _with_wal(path, wal)


def remove(directory: Path) -> None:
    """Remove a damaged table."""
    for suffix in ("-wal", "-shm", ""):  # the log first: it must not be replayed into the next table
        files.clear(directory / (NAME + suffix))


def _with_wal(path: Path, wal: Path) -> Content:
    """Read a table whose writer is at work, or was killed."""
    try:
        with closing(_connect(path, "mode=ro")) as db:
            return _content(db)
    except sqlite3.OperationalError as error:
        if is_damage(error):
            raise
    # No permission for the file by which readers and writers agree: read a copy.
    with tempfile.TemporaryDirectory() as scratch:
        for file in (path, wal):
            if file.exists():
                shutil.copyfile(file, Path(scratch) / file.name)
        with closing(_connect(Path(scratch) / NAME)) as db:
            return _content(db)


def _connect(path: Path, how: str = "mode=rwc") -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, check_same_thread=False)
    # Conditions of a foreign table are not worked out: one can ask for a gigabyte, or for years.
    db.execute("pragma ignore_check_constraints = on")
    db.execute("pragma trusted_schema = off")
    db.text_factory = lambda data: data.decode(errors="replace")  # damaged text is told by its checksum
    return db


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
        return stat.st_size, stat.st_mtime_ns, stat.st_ino
    except OSError:
        return None


def _content(db: sqlite3.Connection) -> Content:
    _check_schema(db)
    fault = db.execute("pragma quick_check").fetchone()[0]
    if fault != "ok":
        raise sqlite3.DatabaseError(" ".join(str(fault).split())[:80])
    content = Content()
    for *values, checksum in db.execute(f"select {_COLUMNS} from takes"):
        if checksum is not None and checksum == _checksum(values) and _is_row(values):
            success = None if values[7] is None else bool(values[7])
            row = Row(TakeKey(*values[:6]), values[6], success, *values[8:])
            content.rows[row.key] = row
        else:
            content.torn += 1
    with suppress(sqlite3.OperationalError):  # the writer was killed before it made the table of copies
        content.manifest = _copy_of(db, "run.json")
    return content


def _check_schema(db: sqlite3.Connection) -> None:
    """Refuse what no run has: a view under the table's name could have no end, a trigger could drop what is added."""
    own = "type in ('view', 'trigger') or (type = 'index' and sql is not null)"
    try:
        odd = db.execute(f"select type from sqlite_master where {own}").fetchone()
    except UnicodeDecodeError as error:  # what sqlite3 says of a damaged schema may quote bytes that are no text
        raise sqlite3.DatabaseError("its schema is damaged") from error
    if odd:
        raise sqlite3.DatabaseError(f"it has a {odd[0]}, which no run has")


def _is_row(values: Sequence[Any]) -> bool:
    """Whether values have the types and ranges of a row: a checksum tells damage, not who wrote it."""
    if not all(isinstance(value, kind) for value, kind in zip(values, _KINDS, strict=True)):
        return False
    row = dict(zip(_FIELDS, values, strict=True))
    counts = all(row[name] >= 0 for name in ("steps", "calls", "size"))
    outcome = row["success"] in ((0, 1) if row["status"] == "done" else (None, 0, 1))
    step = row["success_step"]
    won = step is None or (row["success"] == 1 and 0 <= step <= row["steps"])
    return counts and outcome and won and row["status"] in ("done", "error") and math.isfinite(row["seconds"])


def _copy_of(db: sqlite3.Connection, name: str) -> bytes | None:
    line = db.execute("select content, checksum from copies where name = ?", (name,)).fetchone()
    whole = line is not None and line[1] is not None and line[1] == _checksum([line[0]])
    return str(line[0]).encode() if whole else None


def _sealed(row: Row) -> list[Any]:
    values = [*astuple(row.key), *astuple(row)[1:]]
    values[7] = None if row.success is None else int(row.success)
    values[-1] = float(row.seconds)
    return [*values, _checksum(values)]


def _checksum(values: Sequence[Any]) -> str | None:
    """Sixteen digits that no accident leaves right; None for values of types that no row has."""
    try:
        return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:16]
    except (TypeError, ValueError):
        return None


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turn errors of files and of SQLite in a run directory into errors of ours, of one clear line."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a mistake in this code
        raise
    except sqlite3.Error as error:
        raise _of_sqlite(directory, error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(directory) from error
        raise RolloutError(
            f"cannot use {error.filename or directory}: {error.strerror or error}; finished takes are safe: mend that"
            " and run the same command again, or choose another directory with `out`"
        ) from error


def is_damage(error: sqlite3.Error) -> bool:
    """Whether a database is not what SQLite wrote, as far as ``error`` tells."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ


def damaged(directory: Path, reason: str) -> RunError:
    """The table of takes cannot be read."""
    return RunError(
        f"{directory}/{NAME} is damaged ({reason}); run the same diagnosis again: it makes the table anew and"
        " keeps every take whose file is whole"
    )


def _of_sqlite(directory: Path, error: sqlite3.Error) -> BestTakeError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return _full(directory)
    if is_damage(error):
        return damaged(directory, " ".join(str(error).split()))
    return RolloutError(
        f"{directory}/{NAME} cannot be used ({error}); finished takes are safe: look after the disk and run the"
        " same command again"
    )


def _full(directory: Path) -> RolloutError:
    return RolloutError(
        f"no room left on the disk of {directory}; finished takes are safe: make room and run the same command again"
    )
