"""Reads a run directory again and again, and says what the live page shows of it. Nothing is written."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from besttake.errors import RunError, one_line
from besttake.measure.cells import CellData, Settings
from besttake.measure.scores import Scores, run_digest
from besttake.measure.sofar import ROUNDS, SoFar, fixed_cells, kept_cells, settings_of, so_far
from besttake.reporting.live import Failure, NewTake, State
from besttake.result import Result
from besttake.takes import heartbeat, table
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.store import digest_of

NEWEST = 6
"""Takes that play on the page."""
_REASONS = 20
_TABLE = (table.NAME, f"{table.NAME}-wal")
_SILENT = 15.0
"""After so many seconds without a beat a run is taken for dead."""

Stamp = tuple[object, ...]


class Observer:
    """What a run directory says. ``phase``: what the process that runs it says about itself; None: nobody says."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.directory, self.note = directory, ""
        self.phase: str | None = None
        self._clock = clock
        self._heard: tuple[int, float] | None = None
        self._known: dict[tuple[str, str, str], tuple[Stamp, SoFar]] = {}
        self.rows: Mapping[str, Row] = {}
        self._read: tuple[Stamp, Mapping[TakeKey, Row]] = ((), {})
        self._ids: dict[TakeKey, str] = {}

    def stamp(self) -> Stamp:
        """Changes when there may be something new to see."""
        beat = heartbeat.read_heartbeat(self.directory)
        names = (*_TABLE, "run.json", "result.json", ROUNDS)
        return (
            self.phase,
            self.note,
            beat,
            self._silence() > _SILENT,
            *(_stamp(self.directory / name) for name in names),
        )

    def finished(self) -> bool:
        """Whether the run has a result of all its takes, and nobody is at work on it."""
        if self.phase not in (None, "finished") or not (self.directory / "result.json").is_file():
            return False
        if self.phase is None and heartbeat.read_heartbeat(self.directory) is not None and self._silence() <= _SILENT:
            return False
        if not (self.directory / table.NAME).is_file():
            return True  # outcomes alone, such as `besttake ingest` keeps
        try:
            result, rows = Result.load(self.directory / "result.json"), self._rows()
        except (RunError, sqlite3.Error, OSError):
            return False
        done = [row for row in rows.values() if row.status == "done"]
        if result.cost.takes == len(done) and result.cost.errors == len(rows) - len(done):
            return True
        try:
            return result.digest == run_digest(digest_of(done), Scores.open(self.directory))
        except RunError:
            return False

    def state(self) -> State:
        """All that the page shows."""
        try:
            manifest = Manifest.read(self.directory)
        except RunError as error:
            there = os.path.lexists(self.directory / "run.json")  # whole or not at all, so it is damaged
            # Who only watches has seen a run there.
            phase = self.phase or ("setting up" if there else "gone")
            return State(phase, note=self.note or (str(error) if there else ""))
        rows, note = dict[TakeKey, Row](), self.note
        try:
            rows = dict(self._rows())
        except (sqlite3.Error, OSError) as error:
            if "no such table" not in str(error):  # it is being made
                note = note or f"{self.directory / table.NAME} cannot be read ({one_line(error, 100)})"
        beat, until = heartbeat.read_heartbeat(self.directory), manifest.plan.get("until") is not None
        settings, cells = self._cells(manifest, rows, until)
        failed = [row for row in rows.values() if row.status == "error"]
        done = len(rows) - len(failed)
        planned = _budget(manifest, len(rows), beat) if until else _planned(manifest)
        return State(
            phase=self._phase(), doing=beat.text if beat else "", done=done, failed=len(failed),
            planned=planned, left=beat.left if beat else None, silent=self._silence(), until=until, n=settings.n,
            worth=settings.worth, cells=cells, newest=self._newest(), failures=_failures(failed), note=note,
        )  # fmt: skip

    def _rows(self) -> Mapping[TakeKey, Row]:
        """The table of takes, read again only when it has changed."""
        stamp = tuple(_stamp(self.directory / name) for name in _TABLE)
        if stamp != self._read[0]:
            content = table.snapshot(self.directory) if stamp[0] is not None else table.Content()
            rows = content.rows
            self._ids |= {key: key.id for key in rows.keys() - self._ids.keys()}
            self.rows = {self._ids[key]: row for key, row in rows.items()}
            self._read = stamp, rows
        return self._read[1]

    def _phase(self) -> str:
        if self.phase is not None:
            return self.phase
        if heartbeat.read_heartbeat(self.directory) is None:
            return "stopped"
        return "lost" if self._silence() > _SILENT else "running"

    def _silence(self) -> float:
        """Seconds since the run was last heard of, as far as we have listened."""
        beat, now = heartbeat.read_heartbeat(self.directory), self._clock()
        if beat is None:
            self._heard = None
            return 0.0
        if self._heard is None or self._heard[0] != beat.number:
            self._heard = beat.number, now
        return now - self._heard[1]

    def _cells(self, manifest: Manifest, rows: Mapping[TakeKey, Row], until: bool) -> tuple[Settings, list[SoFar]]:
        settings, planned = settings_of(manifest), None
        if until:
            kept = kept_cells(self.directory)
            if kept is None:
                return settings, []
            settings, cells = kept
        else:
            cells, planned = fixed_cells(manifest, rows), len(manifest.extent.starts)
        begun = [data for data in cells if data.units]
        return settings, [self._so_far(data, settings, planned) for data in begun]

    def _so_far(self, data: CellData, settings: Settings, planned: int | None) -> SoFar:
        """Made anew only where the cell has more takes than before."""
        name = (data.policy, data.env, data.group)
        stamp = (data.units, tuple((arm, takes.takes) for arm, takes in data.arms.items()), data.errors, planned)
        if name not in self._known or self._known[name][0] != stamp:
            self._known[name] = stamp, so_far(data, settings, planned)
        return self._known[name][1]

    def _newest(self) -> list[NewTake]:
        """The takes whose files came last: they lie in the directories that changed last, and have a row already."""
        folders = sorted(_entries(self.directory / "takes"), key=_time_of, reverse=True)
        known = (
            [file for file in _entries(folder) if file.suffix == ".take" and file.stem in self.rows]
            for folder in folders
        )
        last = chain.from_iterable(islice(filter(None, known), NEWEST))
        rows = [self.rows[file.stem] for file in sorted(last, key=_time_of, reverse=True)]
        return [
            NewTake(row.key.id, *_named(row.key), success=bool(row.success), steps=row.steps) for row in rows[:NEWEST]
        ]


def _named(key: TakeKey) -> tuple[str, str, int, str, int]:
    return key.policy, key.task, key.start, key.arm, key.seed


def _planned(manifest: Manifest) -> int:
    extent = manifest.extent
    arms = sum(len([a for a in extent.arms if a not in manifest.skipped.get(p, ())]) for p in extent.policies)
    return arms * len(extent.tasks) * len(extent.starts) * len(extent.seeds)


def _budget(manifest: Manifest, made: int, beat: heartbeat.Beat | None) -> int:
    """The most takes that a run until decided makes; 0 where that is not known."""
    budget = manifest.plan.get("budget")
    if isinstance(budget, int) and budget > 0:
        return max(budget, made)
    return made + max(0, beat.total - beat.done) if beat and beat.total else 0


def _failures(rows: list[Row]) -> list[Failure]:
    reasons, first = Counter(row.error or "" for row in rows), dict[str, TakeKey]()
    for row in rows:
        first.setdefault(row.error or "", row.key)
    return [
        Failure(reason, takes, f"{key.policy}, {key.task}, start {key.start}, take {key.seed} of {key.arm}")
        for reason, takes in reasons.most_common(_REASONS)
        for key in [first[reason]]
    ]


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _time_of(path: Path) -> int:
    stamp = _stamp(path)
    return stamp[1] if stamp else 0


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
        return state.st_size, state.st_mtime_ns
    except OSError:
        return None
