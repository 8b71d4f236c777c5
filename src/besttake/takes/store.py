"""The run directory: the unit of trust.

``run.json`` says what was planned and with which versions and fingerprints; ``takes.sqlite`` (WAL) has one row per
take; ``takes/ab/abcd….take`` holds its arrays. A file is written under a temporary name, flushed to the disk, renamed,
and only then does its row appear, so that a row always stands for a whole file. One process writes.

Everything has a checksum. A take's file holds its name and outcome, so rows that are damaged or gone are made again
from files.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from besttake import files
from besttake.errors import RunError
from besttake.takes import take_table as table
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest, check_same
from besttake.takes.take import Take
from besttake.takes.take_table import TakeTable, damaged, explained, is_damage

_OWNER = "takes/run.json"  # whose takes these are, for when the table that says so is gone


class Store:
    """A run directory, opened to read (`open`) or, by one process at a time, to write (`write`).

    The table of takes is read once and kept up to date by what is added here. ``mended`` says, a line each, what was
    damaged when the run was opened to write, and is right again.
    """

    def __init__(self, path: Path, manifest: Manifest, rows: dict[TakeKey, Row]) -> None:
        self.path, self.manifest = path, manifest
        self.mended: list[str] = []
        self._rows = rows
        self._ordered: list[Row] | None = None
        self._table: TakeTable | None = None
        self._lock: FileLock | None = None

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open an existing run to read; RunError when it, or its table of takes, is damaged."""
        directory = Path(path)
        if not (directory / "run.json").exists():
            raise RunError(f"{directory} is not a run (it has no run.json); `besttake diagnose` makes one")
        at_work, files_there = table.has_log(directory), _files_of_takes(directory)
        manifest = Manifest.read(directory)
        if not (directory / table.NAME).exists():
            if files_there:
                raise damaged(directory, "it is missing")
            raise RunError(f"{directory} has no takes yet: it was stopped before the first; run the same command again")
        with explained(directory):
            rows, torn, run = table.snapshot(directory)
        if run:  # a table that is being made has no name yet
            files.check_run(directory / table.NAME, run)
        # A writer that is at work, or was killed at it, has at most one file without a row. Any other file without a
        # row had one, which is torn or gone.
        lost = len(files_there - {directory / key.file for key in rows})
        if lost > (at_work or table.has_log(directory)):
            torn = max(torn, lost)
        if torn:
            raise damaged(directory, f"{torn} rows are not what was written")
        return cls(directory, manifest, rows)

    @classmethod
    def write(cls, path: str | Path, manifest: Manifest) -> Self:
        """Open a run to write: a new one, or one that the new manifest goes on with. What is damaged is mended."""
        directory = Path(path)
        if os.fsdecode(directory).encode(errors="replace") != os.fsencode(directory):
            raise RunError(f"{directory}: its name is not UTF-8 and cannot be stored; choose another directory")
        known = (directory / "run.json").exists()
        if not known:
            _refuse_what_is_no_run(directory)
        lock = _acquire(directory)
        try:
            old = Manifest.read(directory) if known else manifest.begun()
            with explained(directory):
                rows, mended = _table_to_write(directory, old.run)
            try:
                manifest = old.continued_by(
                    manifest, directory, begun=any(row.status == "done" for row in rows.rows.values())
                )
                with explained(directory):
                    for leftover in directory.glob("**/*.tmp"):  # of a writer that was killed
                        if not leftover.is_dir():
                            leftover.unlink(missing_ok=True)
                store = cls(directory, manifest, rows.rows)
                store._table, store.mended, store._lock = rows, mended, lock
                store._keep_manifest()
                store.write_bytes(_OWNER, files.sealed_json({"run": manifest.run}))
            except BaseException:
                rows.close()
                raise
        except BaseException:
            lock.release()
            raise
        return store

    def close(self) -> None:
        """Close the database and let go of the lock."""
        if self._table is not None:
            self._table.close()
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
            self._keep_manifest()

    def _keep_manifest(self) -> None:
        self.write_bytes("run.json", self.manifest.to_bytes())

    def add(self, take: Take, seconds: float = 0.0) -> Row:
        """Keep a finished take: file first, row after."""
        return self.stage(take, seconds)()

    def stage(self, take: Take, seconds: float = 0.0) -> Callable[[], Row]:
        """The first half of `add`, from any thread: the take is on the disk, under a temporary name.

        The function that it returns makes it part of the run; of these, call one at a time.
        """
        data = take.to_bytes()
        self._check_there()
        with explained(self.path):
            rename = files.stage_bytes(self.path / take.key.file, data, parents=True)

        def keep() -> Row:
            with explained(self.path):
                path = rename()
            try:
                return self._insert(_row_of(take, data, seconds))
            except BaseException:
                with suppress(OSError):
                    path.unlink(missing_ok=True)  # a file without a row would be a sign of damage
                raise

        return keep

    def add_error(self, key: TakeKey, reason: str, seconds: float = 0.0) -> Row:
        """Record that a take could not be made, and why."""
        self._check_there()
        return self._insert(Row(key, "error", None, None, 0, 0, None, 0, None, " ".join(reason.split()), seconds))

    def replace(self, take: Take, seconds: float = 0.0) -> Row:
        """Keep ``take`` in the place of one of the same name; a killed writer leaves one of the two."""
        with explained(self.path):
            self._writer.drop([take.key])
        return self.add(take, seconds)

    def rows(self) -> list[Row]:
        """All rows in canonical order."""
        if self._ordered is None:
            self._ordered = [self._rows[key] for key in sorted(self._rows)]
        return list(self._ordered)

    def load(self, row: Row) -> Take:
        """The take of ``row``; RunError when its file is missing or not what was written."""
        data, fault = _read_take(self.path, row)
        if fault:
            raise RunError(f"{self.path}/{row.key.file} is {fault}; run the diagnosis again to redo it")
        return Take.from_bytes(data)

    def takes(self) -> Iterator[tuple[Row, Take]]:
        """All finished takes in canonical order, one at a time."""
        for row in self._done():
            yield row, self.load(row)

    def forget(self, rows: Sequence[Row]) -> None:
        """Drop rows and their files, so that their takes are made again."""
        with explained(self.path):
            self._writer.drop([row.key for row in rows])
            for path in (self.path / row.key.file for row in rows):
                if path.parent.exists() and not path.parent.is_dir():
                    files.clear(path.parent)
                files.clear(path)
        for row in rows:
            self._rows.pop(row.key, None)
        self._ordered = None

    def damaged(self) -> list[Row]:
        """Finished takes whose file is missing or is not what was written."""
        return [row for row in self._done() if _read_take(self.path, row)[1]]

    def digest(self) -> str:
        """Sha256 over all finished takes and their outcomes in canonical order; two runs of one plan have the same."""
        return digest_of(self._done())

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the run atomically."""
        with explained(self.path):
            return files.write_bytes(self.path / name, data, parents=True)

    @property
    def _writer(self) -> TakeTable:
        if self._table is None:
            raise RunError(f"{self.path} is open to read only")
        return self._table

    def _done(self) -> list[Row]:
        return [row for row in self.rows() if row.status == "done"]

    def _check_there(self) -> None:
        """A table that was removed takes rows until it is closed: the run would go on to its end and keep nothing."""
        if not (self.path / table.NAME).is_file():
            raise RunError(
                f"{self.path} was removed or moved while the run went on, so takes can no longer be kept; move it back,"
                " or remove what is left of it, and run the same command again"
            )

    def _insert(self, row: Row) -> Row:
        with explained(self.path):
            self._writer.add([row])
        self._rows[row.key], self._ordered = row, None
        return row


def _files_of_takes(directory: Path) -> set[Path]:
    return set((directory / "takes").glob("*/*.take"))


def digest_of(rows: Iterable[Row]) -> str:
    """The digest of finished takes; their order is no matter."""
    whole = hashlib.sha256()
    for row in sorted(rows, key=lambda row: row.key):
        whole.update(f"{row.identity}\n".encode())
    return whole.hexdigest()


def _read_take(directory: Path, row: Row) -> tuple[bytes, str]:
    """The content of a take's file, and what is wrong with it: "" where nothing is."""
    try:
        data = files.read_regular(directory / row.key.file)
    except (OSError, ValueError):
        return b"", "missing"
    return data, "" if _sha256(data) == row.sha256 else "damaged"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _row_of(take: Take, data: bytes, seconds: float = 0.0) -> Row:
    return Row(
        take.key, "done", take.success, take.success_step, take.steps, take.calls, take.key.file, len(data),
        _sha256(data), None, seconds,
    )  # fmt: skip


def _adopted(path: Path) -> Row | None:
    """The row of a take whose file is whole; where it is not, None, and the file is moved aside."""
    try:
        data = files.read_regular(path)
        take = Take.from_sealed(data)
        if take.key.id == path.stem:
            return _row_of(take, data)
    except (OSError, ValueError, RunError):
        pass
    path.rename(path.with_name(f"{path.name}.aside"))
    return None


def _table_to_write(directory: Path, run: str) -> tuple[TakeTable, list[str]]:
    """The table of takes, made anew where it is damaged, with rows for all files of takes; and what was damaged."""
    folder = directory / "takes"
    if not folder.is_dir():
        files.clear(folder)
        folder.mkdir()
    with suppress(OSError, ValueError):  # missing or damaged: it is written again
        files.check_run(folder, files.read_sealed_json(directory / _OWNER)["run"])
    mended = []
    try:
        own = TakeTable(directory, run)
    except sqlite3.Error as error:
        if (directory / table.NAME).is_file() and not is_damage(error):
            raise
        table.remove(directory)
        own = TakeTable(directory, run)
        mended.append("takes.sqlite was damaged and is made anew")
    strays = sorted(_files_of_takes(directory) - {directory / key.file for key in own.rows})
    adopted = [row for path in strays if (row := _adopted(path)) is not None]
    if own.torn:
        mended.append(f"{own.torn} rows of takes.sqlite were damaged and are left out")
    if adopted:
        mended.append(f"{len(adopted)} takes that had a file but no row are kept")
    if mended:
        own.rows |= {row.key: row for row in adopted}
        own.clear()
        own.add(own.rows.values())
    return own, mended


def _refuse_what_is_no_run(directory: Path) -> None:
    """RunError for a directory without a ``run.json`` that holds more than a killed writer can have left."""
    if _files_of_takes(directory):
        raise RunError(f"{directory} has takes but no run.json; restore it, or choose another directory with `out`")
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        half_written = path.name.startswith("run.json.") and path.suffix == ".tmp"
        empty = path.name == "takes" and path.is_dir() and not any(path.iterdir())
        if path.name != ".lock" and not path.name.startswith(table.NAME) and not half_written and not empty:
            raise RunError(f"{directory} holds something that is not a run; choose an empty directory with `out`")


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
        raise RunError(f"cannot write in {directory}: {error.strerror}; choose another directory") from error
    with explained(directory):
        Path(lock.lock_file).write_text(str(os.getpid()))
    return lock
