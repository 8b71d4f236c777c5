"""The run directory: the unit of trust.

``run.json`` says what was planned and with which versions and fingerprints; ``takes.sqlite`` (WAL) has one row per
take; ``takes/ab/abcd….take`` holds its arrays. A file is written under a temporary name, flushed to the disk, renamed,
and only then does its row appear, so that a row always stands for a whole file. One process writes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from besttake import files
from besttake.errors import RolloutError, RunError
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest, check_same
from besttake.takes.take import Take

_TABLE = """
create table if not exists takes (
    policy text, env text, task text, start integer, arm text, seed integer,
    status text not null check (status in ('done', 'error')),
    success integer, success_step integer, steps integer, calls integer,
    file text, size integer, sha256 text, error text, seconds real,
    primary key (policy, env, task, start, arm, seed)
) without rowid
"""
_COLUMNS = ", ".join(column.name for column in (*fields(TakeKey), *fields(Row)[1:]))


class Store:
    """A run directory, opened to read (`open`) or, by one process at a time, to write (`write`).

    The table of takes is read once, when it is first needed, and kept up to date by what is added here.
    """

    def __init__(self, path: Path, manifest: Manifest, connection: sqlite3.Connection, lock: FileLock | None) -> None:
        self.path, self.manifest = path, manifest
        self._db, self._lock = connection, lock
        self._rows: dict[TakeKey, Row] | None = None
        self._ordered: list[Row] | None = None

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open an existing run to read."""
        directory = Path(path)
        if not (directory / "run.json").is_file():
            raise RunError(f"{directory} is not a run (it has no run.json); `besttake diagnose` makes one")
        return cls(directory, Manifest.read(directory), _connect(directory, read_only=True), None)

    @classmethod
    def write(cls, path: str | Path, manifest: Manifest) -> Self:
        """Open a run to write: a new one, or one that the new manifest goes on with."""
        directory = Path(path)
        new = not (directory / "run.json").exists()
        if new and directory.exists() and any(p.name != ".lock" for p in directory.iterdir()):
            raise RunError(f"{directory} holds something that is not a run; choose an empty directory with `out`")
        lock = _acquire(directory)
        try:
            if not new:
                manifest = Manifest.read(directory).continued_by(manifest, directory)
            (directory / "takes").mkdir(exist_ok=True)
            for leftover in directory.glob("**/*.tmp"):  # of a writer that was killed
                leftover.unlink(missing_ok=True)
            with _disk_errors_explained(directory):
                files.write_bytes(directory / "run.json", manifest.to_bytes())
            return cls(directory, manifest, _connect(directory, read_only=False), lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Close the database and let go of the lock."""
        self._db.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(self, name: str, value: Any) -> None:
        """Enter a fingerprint that is known only now into ``identity``; RunError when the run was made with another."""
        identity = self.manifest.identity
        check_same(self.path, name, identity.get(name, value), value)
        self._change(identity={**identity, name: value})

    def skip(self, policy: str, arms: Sequence[str]) -> None:
        """Note which planned arms a policy cannot run."""
        self._change(skipped={**self.manifest.skipped, policy: list(arms)})

    def _change(self, **entries: Any) -> None:
        changed = self.manifest.model_copy(update=entries)
        if changed != self.manifest:
            self.manifest = changed
            self.write_bytes("run.json", changed.to_bytes())

    def add(self, take: Take, seconds: float = 0.0) -> Row:
        """Keep a finished take: file first, row after."""
        data = take.to_bytes()
        name = f"takes/{take.key.id[:2]}/{take.key.id}.take"
        self.write_bytes(name, data)
        return self._insert(
            Row(
                take.key, "done", take.success, take.success_step, take.steps, take.calls,
                name, len(data), hashlib.sha256(data).hexdigest(), None, seconds,
            )
        )  # fmt: skip

    def add_error(self, key: TakeKey, reason: str, seconds: float = 0.0) -> Row:
        """Record that a take could not be made, and why."""
        return self._insert(Row(key, "error", None, None, 0, 0, None, 0, None, " ".join(reason.split()), seconds))

    def rows(self) -> list[Row]:
        """All rows in canonical order."""
        if self._ordered is None:
            table = self._table()
            self._ordered = [table[key] for key in sorted(table)]
        return list(self._ordered)

    def load(self, row: Row) -> Take:
        """The take of ``row``; RunError when its file is missing or not what was written."""
        data, fault = self._read(row)
        if fault:
            raise RunError(f"{self.path}/{row.file} is {fault}; run the diagnosis again to redo it")
        return Take.from_bytes(data)

    def takes(self) -> Iterator[tuple[Row, Take]]:
        """All finished takes in canonical order, one at a time."""
        for row in self._done():
            yield row, self.load(row)

    def forget(self, rows: Sequence[Row]) -> None:
        """Drop rows, so that their takes are made again."""
        table = self._table()
        with _disk_errors_explained(self.path), self._db:
            self._db.executemany(
                "delete from takes where policy=? and env=? and task=? and start=? and arm=? and seed=?",
                [astuple(row.key) for row in rows],
            )
        for row in rows:
            table.pop(row.key, None)
        self._ordered = None

    def damaged(self) -> list[Row]:
        """Finished takes whose file is missing or is not what was written."""
        return [row for row in self._done() if self._read(row)[1]]

    def digest(self) -> str:
        """Sha256 over all finished takes in canonical order; two runs of one plan have the same."""
        whole = hashlib.sha256()
        for row in self._done():
            whole.update(f"{json.dumps(astuple(row.key))} {row.sha256}\n".encode())
        return whole.hexdigest()

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the run atomically."""
        with _disk_errors_explained(self.path):
            return files.write_bytes(self.path / name, data, parents=True)

    def _done(self) -> list[Row]:
        return [row for row in self.rows() if row.status == "done"]

    def _table(self) -> dict[TakeKey, Row]:
        if self._rows is None:
            with _disk_errors_explained(self.path):
                lines = self._db.execute(f"select {_COLUMNS} from takes").fetchall()
            rows = (Row(TakeKey(*x[:6]), x[6], None if x[7] is None else bool(x[7]), *x[8:]) for x in lines)
            self._rows = {row.key: row for row in rows}
        return self._rows

    def _insert(self, row: Row) -> Row:
        table, (_, *values) = self._table(), astuple(row)
        marks = ", ".join("?" * (6 + len(values)))
        with _disk_errors_explained(self.path), self._db:
            self._db.execute(
                f"insert or replace into takes ({_COLUMNS}) values ({marks})", (*astuple(row.key), *values)
            )
        table[row.key], self._ordered = row, None
        return row

    def _read(self, row: Row) -> tuple[bytes, str]:
        """The content of a take's file, and what is wrong with it: "" where nothing is."""
        try:
            data = (self.path / str(row.file)).read_bytes()
        except OSError:
            return b"", "missing"
        return data, "" if hashlib.sha256(data).hexdigest() == row.sha256 else "damaged"


def _connect(directory: Path, *, read_only: bool) -> sqlite3.Connection:
    path = directory / "takes.sqlite"
    if read_only and not path.exists():
        raise _no_takes(directory)
    with _disk_errors_explained(directory), ExitStack() as on_error:
        connection = sqlite3.connect(path, check_same_thread=False)
        on_error.callback(connection.close)
        if not read_only:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            connection.execute(_TABLE)
        if connection.execute("pragma quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("quick_check failed")
        connection.execute(f"select {_COLUMNS} from takes limit 1")
        on_error.pop_all()
    return connection


def _no_takes(directory: Path) -> RunError:
    return RunError(f"{directory} has no takes yet: it was stopped before the first; run the same command to go on")


@contextmanager
def _disk_errors_explained(directory: Path) -> Iterator[None]:
    """Turn "no space left", of files and of SQLite, and a damaged database into one clear line."""
    try:
        yield
    except (OSError, sqlite3.DatabaseError) as error:
        text = str(error)
        if "no such table" in text:
            raise _no_takes(directory) from error
        full = isinstance(error, sqlite3.OperationalError) and ("full" in text or "disk I/O" in text)
        if full or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise RolloutError(
                f"no room left on the disk of {directory}; finished takes are safe:"
                " make room and run the same command again"
            ) from error
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.ProgrammingError):
            raise RunError(
                f"{directory}/takes.sqlite is damaged ({error}); move it away and run the same command again"
                " (takes are then made anew), or restore it from a copy"
            ) from error
        raise


def _acquire(directory: Path) -> FileLock:
    """The lock of a run, which a killed process lets go of. Its file names the process that holds it."""
    lock = FileLock(directory / ".lock", timeout=0, mode=0o644, is_singleton=False)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        holder = Path(lock.lock_file).read_text(errors="replace").strip() or "unknown"
        raise RunError(f"{directory} is being written by process {holder}; wait for it, or end it first") from error
    except OSError as error:
        raise RunError(f"cannot write in {directory}: {error.strerror}; choose another directory with `out`") from error
    with _disk_errors_explained(directory):
        Path(lock.lock_file).write_text(str(os.getpid()))
    return lock
