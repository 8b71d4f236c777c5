"""The table of takes: ``takes.sqlite`` (WAL), a row per take with a checksum, and a copy of the run's manifest.

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


@dataclass
class Content:
    """What a table holds. ``torn``: rows that are not what was written. ``manifest``: the copy of ``run.json``."""

    rows: dict[TakeKey, Row] = field(default_factory=dict)
    torn: int = 0
    manifest: bytes | None = None


class Table:
    """The table, opened by the one process that writes it."""

    def __init__(self, directory: Path) -> None:
        self._db = _connect(directory / NAME)
        self._lock = threading.Lock()  # to close a database while another thread writes into it crashes Python
        try:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            _check_schema(self._db)
            self._db.executescript(_TABLES)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the database, once nobody writes into it."""
        with self._lock:
            self._db.close()

    def content(self) -> Content:
        """All of it; sqlite3.DatabaseError when it is damaged."""
        return _content(self._db)

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

    def replace(self, rows: Iterable[Row]) -> None:
        """Hold ``rows`` and nothing else."""
        marks = ", ".join("?" * (len(_FIELDS) + 1))
        with self._lock, self._db:
            self._db.execute("delete from takes")
            self._db.executemany(f"insert into takes ({_COLUMNS}) values ({marks})", map(_sealed, rows))

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


def rebuild(directory: Path) -> Content:
    """Put an empty table in the place of a damaged one, and return what could be read of the old."""
    path = directory / NAME
    content = _salvage(path) if path.is_file() else Content()
    for suffix in ("-wal", "-shm", ""):  # the log first: it must not be replayed into the new table
        files.clear(path.with_name(NAME + suffix))
    return content


def _salvage(path: Path) -> Content:
    """The rows that can still be read and have the right checksum."""
    content = Content()
    with suppress(sqlite3.Error), closing(_connect(path)) as db:
        with suppress(sqlite3.Error):
            content.manifest = _copy_of(db, "run.json")
        with suppress(sqlite3.Error):
            for line in _lines(db):
                _take_in(content, line)
    return content


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


class _Connection(sqlite3.Connection):
    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """As ever; what sqlite3 says of a damaged table may quote bytes of it that are no text."""
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("its schema is damaged") from error


def _connect(path: Path, how: str = "mode=rwc") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{how}"
    db = sqlite3.connect(uri, uri=True, check_same_thread=False, factory=_Connection)
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


def _columns(db: sqlite3.Connection) -> list[str]:
    return [str(line[1]) for line in db.execute("pragma table_info(takes)")]


def _content(db: sqlite3.Connection) -> Content:
    fault = db.execute("pragma quick_check").fetchone()[0]
    if fault != "ok":
        raise sqlite3.DatabaseError(" ".join(str(fault).split())[:80])
    content, names = Content(), _columns(db)
    if names and (gone := {*_FIELDS, "checksum"} - set(names)):
        raise sqlite3.DatabaseError(f"it has no column {min(gone)}")
    for line in _lines(db):
        _take_in(content, line)
    with suppress(sqlite3.OperationalError):  # the writer was killed before it made the table of copies
        content.manifest = _copy_of(db, "run.json")
    return content


def _check_schema(db: sqlite3.Connection) -> None:
    """Refuse what no run has: a view under the table's name could have no end, a trigger could drop what is added."""
    own = "type in ('view', 'trigger') or (type = 'index' and sql is not null)"
    odd = db.execute(f"select type from sqlite_master where {own}").fetchone()
    if odd:
        raise sqlite3.DatabaseError(f"it has a {odd[0]}, which no run has")


def _lines(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """The lines of the table, by the names of columns that we know."""
    _check_schema(db)
    names = [name for name in _columns(db) if name in (*_FIELDS, "checksum")]
    for line in db.execute(f"select {', '.join(names) or '*'} from takes"):
        yield dict(zip(names, line, strict=True))


def _take_in(content: Content, line: dict[str, Any]) -> None:
    """Sort a line of the table by whether it is what was written."""
    values: list[Any] = [line.get(name) for name in _FIELDS]
    if line.get("checksum") is None or line["checksum"] != _checksum(values) or not _is_row(values):
        content.torn += 1
        return
    success = None if values[7] is None else bool(values[7])
    row = Row(TakeKey(*values[:6]), str(values[6]), success, *values[8:])
    content.rows[row.key] = row


def _is_row(values: Sequence[Any]) -> bool:
    """Whether values have the types of a row: a checksum tells damage, not who wrote it."""
    kinds = zip(values, _KINDS, strict=True)
    return all(isinstance(value, kind) for value, kind in kinds) and _is_told(dict(zip(_FIELDS, values, strict=True)))


def _is_told(row: dict[str, Any]) -> bool:
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
