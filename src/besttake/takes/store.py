"""The run directory: the unit of trust.

``run.json`` says what was planned and with which versions and fingerprints; ``takes.sqlite`` (WAL) has one row per
take; ``takes/ab/abcd….take`` holds its arrays. A file is written under a temporary name, fsynced, renamed, and only
then does its row appear, so that a row always stands for a whole file. One process writes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Self

from besttake.errors import RolloutError, RunError
from besttake.takes.key import Row as Row
from besttake.takes.key import TakeKey
from besttake.takes.take import Take

SCHEMA = 1
_TABLE = """
create table if not exists takes (
    policy text, env text, task text, start integer, arm text, seed integer,
    status text not null check (status in ('done', 'error')),
    success integer, success_step integer, steps integer, calls integer,
    file text, size integer, sha256 text, error text, seconds real,
    primary key (policy, env, task, start, arm, seed)
) without rowid
"""
_COLUMNS = (
    "policy, env, task, start, arm, seed, status, success, success_step, steps, calls,"
    " file, size, sha256, error, seconds"
)


class Store:
    """A run directory, opened to read (`open`) or, by one process at a time, to write (`write`)."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.path = path
        self._db = connection
        self._lock = lock

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open an existing run to read."""
        directory = Path(path)
        if not (directory / "run.json").is_file():
            raise RunError(
                f"{directory} is not a run (it has no run.json); make one with `besttake diagnose -o {directory}`"
            )
        _read_manifest(directory)
        return cls(directory, _connect(directory, read_only=True), None)

    @classmethod
    def write(cls, path: str | Path, manifest: Mapping[str, Any]) -> Self:
        """Open a run to write: a new one, or one that the new manifest goes on with (see `_check_same_plan`)."""
        directory = Path(path)
        new = not (directory / "run.json").exists()
        if new and directory.exists() and any(p.name != ".lock" for p in directory.iterdir()):
            raise RunError(f"{directory} holds something that is not a run; choose an empty directory with -o")
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {directory}: {error.strerror}; choose another directory with -o") from error
        lock = _acquire(directory)
        try:
            identity = dict(manifest["identity"])
            if not new:
                old = _read_manifest(directory)
                _check_same_plan(directory, old, manifest)
                identity = {**old["identity"], **identity}
            with _room(directory):
                _write_atomically(directory / "run.json", _dump({**manifest, "identity": identity, "schema": SCHEMA}))
            (directory / "takes").mkdir(exist_ok=True)
            store = cls(directory, _connect(directory, read_only=False), lock)
            store._sweep()
            return store
        except BaseException:
            os.close(lock)
            raise

    def close(self) -> None:
        """Close the database and let go of the lock."""
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def manifest(self) -> dict[str, Any]:
        """What ``run.json`` says."""
        return _read_manifest(self.path)

    def claim(self, name: str, value: Any) -> None:
        """Enter a fingerprint that is known only now into ``identity``; RunError when the run was made with another."""
        manifest = self.manifest
        identity = manifest["identity"]
        if identity.get(name, value) != value:
            raise _another_plan(self.path, f"its {name} is {_short(identity[name])}, yours is {_short(value)}")
        if name not in identity:
            identity[name] = value
            with _room(self.path):
                _write_atomically(self.path / "run.json", _dump(manifest))

    def remember(self, name: str, key: str, value: Any) -> None:
        """Keep something worth knowing in ``run.json``: ``manifest[name][key] = value``."""
        manifest = self.manifest
        manifest.setdefault(name, {})[key] = value
        with _room(self.path):
            _write_atomically(self.path / "run.json", _dump(manifest))

    def add(self, take: Take, seconds: float = 0.0) -> Row:
        """Keep a finished take: file first, row after."""
        data = take.to_bytes()
        name = f"takes/{take.key.id[:2]}/{take.key.id}.take"
        row = Row(
            take.key, "done", take.success, take.success_step, take.steps, take.calls,
            name, len(data), hashlib.sha256(data).hexdigest(), None, seconds,
        )  # fmt: skip
        with _room(self.path):
            (self.path / name).parent.mkdir(exist_ok=True)
            _write_atomically(self.path / name, data)
            self._insert(row)
        return row

    def add_error(self, key: TakeKey, reason: str, seconds: float = 0.0) -> Row:
        """Record that a take could not be made, and why."""
        row = Row(key, "error", None, None, 0, 0, None, 0, None, " ".join(reason.split()), seconds)
        with _room(self.path):
            self._insert(row)
        return row

    def rows(self) -> list[Row]:
        """All rows in canonical order."""
        try:
            found = self._db.execute(f"select {_COLUMNS} from takes").fetchall()
        except sqlite3.DatabaseError as error:
            raise _damaged(self.path, error) from error
        rows = [Row(TakeKey(*r[:6]), r[6], None if r[7] is None else bool(r[7]), *r[8:]) for r in found]
        return sorted(rows, key=lambda row: row.key)

    def load(self, row: Row) -> Take:
        """The take of ``row``; RunError when its file is missing or not what was written."""
        return Take.from_bytes(self._verified(row))

    def takes(self) -> Iterator[tuple[Row, Take]]:
        """All finished takes in canonical order, one at a time."""
        for row in self.rows():
            if row.status == "done":
                yield row, self.load(row)

    def forget(self, rows: Sequence[Row]) -> None:
        """Drop rows, so that their takes are made again."""
        with _room(self.path), self._db:
            self._db.executemany(
                "delete from takes where policy=? and env=? and task=? and start=? and arm=? and seed=?",
                [astuple(row.key) for row in rows],
            )

    def damaged(self) -> list[Row]:
        """Finished takes whose file is missing or is not what was written."""
        bad = []
        for row in self.rows():
            if row.status == "done":
                try:
                    self._verified(row)
                except RunError:
                    bad.append(row)
        return bad

    def digest(self) -> str:
        """Sha256 over all finished takes in canonical order; two runs of one plan have the same."""
        whole = hashlib.sha256()
        for row in self.rows():
            if row.status == "done":
                whole.update(f"{json.dumps(astuple(row.key))} {row.sha256}\n".encode())
        return whole.hexdigest()

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the run atomically."""
        with _room(self.path):
            _write_atomically(self.path / name, data)
        return self.path / name

    def _verified(self, row: Row) -> bytes:
        try:
            data = (self.path / str(row.file)).read_bytes()
        except OSError as error:
            raise RunError(f"{self.path}/{row.file} is missing; run the diagnosis again to redo it") from error
        if hashlib.sha256(data).hexdigest() != row.sha256:
            raise RunError(f"{self.path}/{row.file} is damaged; run the diagnosis again to redo it")
        return data

    def _insert(self, row: Row) -> None:
        values = (*astuple(row.key), row.status, row.success, row.success_step, row.steps, row.calls,
                  row.file, row.size, row.sha256, row.error, row.seconds)  # fmt: skip
        marks = ", ".join("?" * len(values))
        with self._db:
            self._db.execute(f"insert or replace into takes ({_COLUMNS}) values ({marks})", values)

    def _sweep(self) -> None:
        """Remove what a killed writer left behind under temporary names."""
        for leftover in self.path.glob("**/*.tmp"):
            leftover.unlink(missing_ok=True)


def _connect(directory: Path, *, read_only: bool) -> sqlite3.Connection:
    path = directory / "takes.sqlite"
    if read_only and not path.exists():
        raise _no_takes(directory)
    try:
        connection = sqlite3.connect(path, check_same_thread=False)
        if not read_only:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            connection.execute(_TABLE)
        if connection.execute("pragma quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("quick_check failed")
        connection.execute(f"select {_COLUMNS} from takes limit 1")
    except sqlite3.DatabaseError as error:
        if "full" in str(error) or "disk I/O" in str(error):
            raise _full(directory) from error
        if "no such table" in str(error):
            raise _no_takes(directory) from error
        raise _damaged(directory, error) from error
    return connection


def _no_takes(directory: Path) -> RunError:
    return RunError(f"{directory} has no takes yet: it was stopped before the first; run the same command to go on")


def _damaged(directory: Path, error: Exception) -> RunError:
    return RunError(
        f"{directory}/takes.sqlite is damaged ({error}); move it away and run the same command again"
        " (takes are then made anew), or restore it from a copy"
    )


def _full(directory: Path) -> RolloutError:
    return RolloutError(
        f"no room left on the disk of {directory}; finished takes are safe: make room and run the same command again"
    )


class _room:
    """Turns "no space left" of files and of SQLite into one clear line."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, OSError) and error.errno in (28, 122):
            raise _full(self.directory) from error
        if isinstance(error, sqlite3.OperationalError) and ("full" in str(error) or "disk I/O" in str(error)):
            raise _full(self.directory) from error
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.ProgrammingError):
            raise _damaged(self.directory, error) from error


def _acquire(directory: Path) -> int:
    try:
        lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"cannot write in {directory}: {error.strerror}; choose another directory with -o") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise RunError(f"{directory} is being written by process {holder}; wait for it, or end it first") from error
    with _room(directory):
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _read_manifest(directory: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((directory / "run.json").read_text())
        schema = int(manifest["schema"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{directory}/run.json is damaged ({error}); choose another directory with -o") from error
    if schema > SCHEMA:
        raise RunError(
            f"{directory} was written by a newer BestTake (schema {schema}, this one knows {SCHEMA}); upgrade besttake"
        )
    return dict(manifest)


def _check_same_plan(directory: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """A run goes on when ``identity`` is the same, and may grow: each list of ``extent`` must contain the old one."""
    before, after = old.get("identity", {}), new.get("identity", {})
    for name in sorted(set(before) & set(after)):
        if before[name] != after[name]:
            raise _another_plan(directory, f"its {name} is {_short(before[name])}, yours is {_short(after[name])}")
    for name, values in old.get("extent", {}).items():
        gone = [value for value in values if value not in new.get("extent", {}).get(name, ())]
        if gone:
            raise _another_plan(directory, f"its {name} include {_short(gone[0])}, yours do not")


def _another_plan(directory: Path, what: str) -> RunError:
    return RunError(f"{directory} holds another plan: {what}; choose another directory with -o")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _dump(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, sort_keys=True).encode()
