"""The run directory.

``run.json`` holds the plan, versions and fingerprints; ``takes.sqlite`` (WAL) has one row per take; and
``takes/ab/abcd….take`` holds the arrays of a take. A file is written under a temporary name, flushed to the disk and
renamed before its row is added, so every row has a whole file. One process writes.

Everything has a checksum. A take's file also holds its name and outcome, from which lost rows are restored.
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
from besttake.takes.manifest import Manifest, check_same_identity
from besttake.takes.take import Take
from besttake.takes.take_table import TakeTable, damaged, explained, is_damage

_OWNER = "takes/run.json"  # the run that these takes belong to, in case the table is lost


class Store:
    """A run directory, opened to read (`open`) or, by one process at a time, to write (`write`).

    The table of takes is read once and kept up to date with what is added here. ``mended`` has a line for each damage
    that was repaired when the run was opened to write.
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
        """Open an existing run to read; RunError if it, or its table of takes, is damaged."""
        directory = Path(path)
        if not (directory / "run.json").exists():
            raise RunError(f"{directory} is not a run (it has no run.json); `besttake diagnose` makes one")
        writing, take_files = table.has_log(directory), _files_of_takes(directory)
        manifest = Manifest.read(directory)
        if not (directory / table.NAME).exists():
            if take_files:
                raise damaged(directory, "it is missing")
            raise RunError(f"{directory} has no takes yet: it was stopped before the first; run the same command again")
        with explained(directory):
            rows, torn, run = table.snapshot(directory)
        if run:  # a table that is being created has no name yet
            files.check_run(directory / table.NAME, run)
        # A writer, also one that was killed, has at most one file without a row. Any other such file has lost its row.
        lost = len(take_files - {directory / key.file for key in rows})
        if lost > (writing or table.has_log(directory)):
            torn = max(torn, lost)
        if torn:
            raise damaged(directory, f"{torn} rows are not what was written")
        return cls(directory, manifest, rows)

    @classmethod
    def write(cls, path: str | Path, manifest: Manifest) -> Self:
        """Open a run to write, a new one or one that the manifest continues, and repair what is damaged."""
        directory = Path(path)
        if os.fsdecode(directory).encode(errors="replace") != os.fsencode(directory):
            raise RunError(f"{directory}: its name is not UTF-8 and cannot be stored; choose another directory")
        exists = (directory / "run.json").exists()
        if not exists:
            _refuse_other_directory(directory)
        lock = _acquire(directory)
        try:
            old = Manifest.read(directory) if exists else manifest.named()
            with explained(directory):
                takes, mended = _table_to_write(directory, old.run)
            try:
                begun = any(row.status == "done" for row in takes.rows.values())
                manifest = old.continued_by(manifest, directory, begun=begun)
                with explained(directory):
                    for leftover in directory.glob("**/*.tmp"):  # of a writer that was killed
                        if not leftover.is_dir():
                            leftover.unlink(missing_ok=True)
                store = cls(directory, manifest, takes.rows)
                store._table, store.mended, store._lock = takes, mended, lock
                store._write_manifest()
                store.write_bytes(_OWNER, files.sealed_json({"run": manifest.run}))
            except BaseException:
                takes.close()
                raise
        except BaseException:
            lock.release()
            raise
        return store

    def close(self) -> None:
        """Close the database and release the lock."""
        if self._table is not None:
            self._table.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(self, name: str, value: Any) -> None:
        """Add an entry to ``identity``; RunError if the run was made with another value of it."""
        identity = self.manifest.identity
        check_same_identity(self.path, name, identity.get(name, value), value)
        self._change(identity={**identity, name: value})

    def skip(self, policy: str, arms: Sequence[str]) -> None:
        """Record which planned arms a policy cannot run."""
        self._change(skipped={**self.manifest.skipped, policy: list(arms)})

    def _change(self, **entries: Any) -> None:
        changed = self.manifest.model_copy(update=entries)
        if changed != self.manifest:
            self.manifest = changed
            self._write_manifest()

    def _write_manifest(self) -> None:
        self.write_bytes("run.json", self.manifest.to_bytes())

    def add(self, take: Take, seconds: float = 0.0) -> Row:
        """Store a finished take: first its file, then its row."""
        return self.stage(take, seconds)()

    def stage(self, take: Take, seconds: float = 0.0) -> Callable[[], Row]:
        """Do the first half of `add`, from any thread: write the take to the disk under a temporary name.

        The function that this returns adds the take to the run; call only one of these at a time.
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
                    path.unlink(missing_ok=True)  # a file without a row looks like damage
                raise

        return keep

    def add_error(self, key: TakeKey, reason: str, seconds: float = 0.0) -> Row:
        """Record that a take failed, and why."""
        self._check_there()
        return self._insert(Row(key, "error", None, None, 0, 0, None, 0, None, " ".join(reason.split()), seconds))

    def replace(self, take: Take, seconds: float = 0.0) -> Row:
        """Replace the take of the same name; a killed writer leaves one of the two."""
        with explained(self.path):
            self._writer.drop([take.key])
        return self.add(take, seconds)

    def rows(self) -> list[Row]:
        """All rows in canonical order."""
        if self._ordered is None:
            self._ordered = [self._rows[key] for key in sorted(self._rows)]
        return list(self._ordered)

    def load(self, row: Row) -> Take:
        """Read the take of ``row``; RunError if its file is missing or damaged."""
        data, fault = _read_take(self.path, row)
        if fault:
            raise RunError(f"{self.path}/{row.key.file} is {fault}; run the diagnosis again to redo it")
        return Take.from_bytes(data)

    def takes(self) -> Iterator[tuple[Row, Take]]:
        """Read all finished takes in canonical order, one at a time."""
        for row in self._done():
            yield row, self.load(row)

    def forget(self, rows: Sequence[Row]) -> None:
        """Delete rows and their files, so that the takes are played again."""
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
        """The finished takes whose file is missing or damaged."""
        return [row for row in self._done() if _read_take(self.path, row)[1]]

    def digest(self) -> str:
        """The sha256 over all finished takes and their outcomes, in canonical order."""
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
        """RunError if the run was removed. SQLite would go on accepting rows, and the takes would be lost."""
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
    """The digest of finished takes in any order."""
    whole = hashlib.sha256()
    for row in sorted(rows, key=lambda row: row.key):
        whole.update(f"{row.identity}\n".encode())
    return whole.hexdigest()


def _read_take(directory: Path, row: Row) -> tuple[bytes, str]:
    """The content of a take's file, and what is wrong with it; empty if nothing is."""
    try:
        data = files.read_regular(directory / row.key.file)
    except (OSError, ValueError):
        return b"", "missing"
    return data, "" if hashlib.sha256(data).hexdigest() == row.sha256 else "damaged"


def _row_of(take: Take, data: bytes, seconds: float = 0.0) -> Row:
    return Row(
        take.key, "done", take.success, take.success_step, take.steps, take.calls, take.key.file, len(data),
        hashlib.sha256(data).hexdigest(), None, seconds,
    )  # fmt: skip


def _adopted(path: Path) -> Row | None:
    """The row for a take's file; None if the file is not whole, in which case it is moved aside."""
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
    """Open the table of takes, repaired if necessary, with rows for all files of takes; and list the repairs."""
    folder = directory / "takes"
    if not folder.is_dir():
        files.clear(folder)
        folder.mkdir()
    with suppress(OSError, ValueError):  # if missing or damaged, it is written again
        files.check_run(folder, files.read_sealed_json(directory / _OWNER)["run"])
    mended = []
    try:
        takes = TakeTable(directory, run)
    except sqlite3.Error as error:
        if (directory / table.NAME).is_file() and not is_damage(error):
            raise
        table.remove(directory)
        takes = TakeTable(directory, run)
        mended.append("takes.sqlite was damaged and is made anew")
    strays = sorted(_files_of_takes(directory) - {directory / key.file for key in takes.rows})
    adopted = [row for path in strays if (row := _adopted(path)) is not None]
    if takes.torn:
        mended.append(f"{takes.torn} rows of takes.sqlite were damaged and are left out")
    if adopted:
        mended.append(f"{len(adopted)} takes that had a file but no row are kept")
    if mended:
        takes.rows |= {row.key: row for row in adopted}
        takes.rewrite()
    return takes, mended


def _refuse_other_directory(directory: Path) -> None:
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
    """Lock a run for this process, whose id goes into the lock file; the system releases the lock if it is killed."""
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
