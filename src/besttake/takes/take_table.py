"""The table of takes: ``takes.sqlite`` (WAL), one row per take with a checksum.

Readers get a snapshot of the whole table, even from a read-only disk or while another process writes. A row is used
only if its checksum is right.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from besttake import files
from besttake.errors import RolloutError, RunError
from besttake.takes.key import Row, TakeKey

NAME = "takes.sqlite"
_FIELDS = (*(f.name for f in fields(TakeKey)), *(f.name for f in fields(Row)[1:]))
_COLUMNS = ", ".join((*_FIELDS, "checksum"))
_TABLES = (
    """create table takes (
    policy text, env text, task text, start integer, arm text, seed integer,
    status text not null check (status in ('done', 'error')),
    success integer, success_step integer, steps integer, calls integer,
    file text, size integer, sha256 text, error text, seconds real, checksum text,
    primary key (policy, env, task, start, arm, seed)
) without rowid""",
    "create table run (name text, checksum text)",
)
_MAYBE_TEXT = str | None
_KINDS = (
    str, str, str, int, str, int, str, int | None, int | None, int, int, _MAYBE_TEXT, int, _MAYBE_TEXT, _MAYBE_TEXT,
    float | int,
)  # fmt: skip
"""The types of `_FIELDS`."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}


class TakeTable:
    """The table of takes of ``run``, opened by the one process that writes it.

    `snapshot` explains ``rows`` and ``torn``. Raises sqlite3.DatabaseError if the table is damaged.
    """

    def __init__(self, directory: Path, run: str = "") -> None:
        self._db = _connect(directory / NAME)
        self._lock = threading.Lock()  # closing a database while another thread writes crashes Python
        try:
            with _text_of_errors():
                self._db.execute("pragma journal_mode = wal")
                self._db.execute("pragma synchronous = normal")
                new = not self._db.execute("select count(*) from sqlite_master").fetchone()[0]
            if new:
                with self._db:
                    self._db.execute("begin")
                    for table in _TABLES:
                        self._db.execute(table)
                    self._db.execute("insert into run values (?, ?)", (run, _checksum([run])))
            self.rows, self.torn, self.run = _content(self._db)
            files.check_run(directory / NAME, self.run)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the database, once no thread writes into it."""
        with self._lock:
            self._db.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, replacing those of the same takes."""
        marks = ", ".join("?" * (len(_FIELDS) + 1))
        with self._lock, self._db:
            self._db.executemany(f"insert or replace into takes ({_COLUMNS}) values ({marks})", map(_sealed, rows))

    def drop(self, keys: Sequence[TakeKey]) -> None:
        """Delete the rows of some takes."""
        where = " and ".join(f"{f.name} = ?" for f in fields(TakeKey))
        with self._lock, self._db:
            self._db.executemany(f"delete from takes where {where}", map(astuple, keys))

    def rewrite(self) -> None:
        """Replace all rows of the file by ``rows``."""
        with self._lock, self._db:
            self._db.execute("delete from takes")
        self.add(self.rows.values())


def has_log(directory: Path) -> bool:
    """Whether the write-ahead log holds rows: a process is writing, or was killed."""
    log = directory / f"{NAME}-wal"
    return log.exists() and log.stat().st_size > 0


def snapshot(directory: Path) -> tuple[dict[TakeKey, Row], int, str]:
    """Read the rows of a run's table, the number of damaged rows, and the name of the run.

    Raises sqlite3.Error if the table cannot be read. On a read-only disk a copy is read, because SQLite needs to write
    a file beside the table.
    """
    path = directory / NAME
    if path.exists() and not path.is_file():  # opening a pipe could block for ever
        raise sqlite3.DatabaseError("it is not a regular file")
    try:
        with closing(_connect(path, "mode=rw")) as db:
            return _content(db)
    except sqlite3.OperationalError as error:
        if is_damage(error):
            raise
    with tempfile.TemporaryDirectory() as scratch:
        for file in (path, path.with_name(f"{NAME}-wal")):
            if file.exists():
                shutil.copyfile(file, Path(scratch) / file.name)
        with closing(_connect(Path(scratch) / NAME)) as db:
            return _content(db)


def remove(directory: Path) -> None:
    """Remove a damaged table."""
    for suffix in ("-wal", "-shm", ""):  # the log first, or it could be replayed into the next table
        files.clear(directory / (NAME + suffix))


def _connect(path: Path, how: str = "mode=rwc") -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, check_same_thread=False)
    db.text_factory = lambda data: data.decode(errors="replace")  # the checksum reveals damaged text
    return db


def _content(db: sqlite3.Connection) -> tuple[dict[TakeKey, Row], int, str]:
    """What `snapshot` returns; empty if the table is not created yet."""
    with _text_of_errors():
        schema = [sql.lower() for (sql,) in db.execute("select sql from sqlite_master where sql is not null")]
        fault = db.execute("pragma quick_check").fetchone()[0]
    if fault != "ok":
        raise sqlite3.DatabaseError(" ".join(str(fault).split())[:80])
    if schema not in ([], [*_TABLES]):  # a view could be endless, a trigger could delete rows
        raise sqlite3.DatabaseError("it is not a table of takes")
    rows: dict[TakeKey, Row] = {}
    torn = 0
    for *values, checksum in db.execute(f"select {_COLUMNS} from takes") if schema else ():
        if checksum is not None and checksum == _checksum(values) and _is_row(values):
            success = None if values[7] is None else bool(values[7])
            row = Row(TakeKey(*values[:6]), values[6], success, *values[8:])
            rows[row.key] = row
        else:
            torn += 1
    run, checksum = db.execute("select name, checksum from run").fetchone() or (None, None) if schema else ("", "")
    if schema and checksum != _checksum([run]):
        raise sqlite3.DatabaseError("the name of its run is not what was written")
    return rows, torn, str(run)


@contextmanager
def _text_of_errors() -> Iterator[None]:
    """Raise a DatabaseError where SQLite's message about a damaged schema quotes bytes that are not text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError("its schema is damaged") from error


def _is_row(values: Sequence[Any]) -> bool:
    """Whether values have the types and ranges of a row; a checksum reveals damage, but not a forged row."""
    if not all(isinstance(value, kind) for value, kind in zip(values, _KINDS, strict=True)):
        return False
    row = dict(zip(_FIELDS, values, strict=True))
    counts = all(row[name] >= 0 for name in ("steps", "calls", "size"))
    outcome = row["success"] in ((0, 1) if row["status"] == "done" else (None, 0, 1))
    step = row["success_step"]
    won = step is None or (row["success"] == 1 and 0 <= step <= row["steps"])
    return counts and outcome and won and row["status"] in ("done", "error") and math.isfinite(row["seconds"])


def _sealed(row: Row) -> list[Any]:
    values = [*astuple(row.key), *astuple(row)[1:]]
    values[7] = None if row.success is None else int(row.success)
    values[-1] = float(row.seconds)
    return [*values, _checksum(values)]


def _checksum(values: Sequence[Any]) -> str | None:
    """A checksum of 16 digits; None for values of types that no row has."""
    try:
        return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:16]
    except (TypeError, ValueError):
        return None


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turn errors of files and of SQLite in a run directory into a clear RolloutError or RunError."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a bug in this code
        raise
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
            reason = f"no room left on the disk of {directory}"
        elif isinstance(error, sqlite3.Error) and is_damage(error):
            raise damaged(directory, " ".join(str(error).split())) from error
        else:
            place = directory / NAME if isinstance(error, sqlite3.Error) else error.filename or directory
            reason = f"cannot use {place} ({getattr(error, 'strerror', None) or error})"
        raise RolloutError(
            f"{reason}; finished takes are safe: mend that and run the same command again, or choose another directory"
            " with `out`"
        ) from error


def is_damage(error: sqlite3.Error) -> bool:
    """Whether ``error`` means that the database is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ


def damaged(directory: Path, reason: str) -> RunError:
    """The error for a table of takes that cannot be read."""
    return RunError(
        f"{directory}/{NAME} is damaged ({reason}); run the same diagnosis again: it makes the table anew and"
        " keeps every take whose file is whole"
    )
