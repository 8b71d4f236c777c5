"""Read files and directories of results, choosing a reader for each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from besttake.errors import one_line
from besttake.files import leads_out, sha256_of
from besttake.recordings import logs, tabular
from besttake.recordings.combine import few, given_name, once
from besttake.recordings.episodes import (
    IngestError,
    Recording,
    UnknownFormat,
    check_file,
    files_under,
    is_copy,
    kind_of,
    seed_in,
    start_in,
)
from besttake.recordings.harnesses import BY_ORDER, is_recording, read_recording, read_results
from besttake.recordings.logs import LIBERO, LogFormat

Columns = Mapping[str, str]
KNOWN = (
    "vla-eval's recording or export, lerobot-eval's eval_info.json, a log of OpenVLA, openpi or others (--pattern), "
    "videos of SimplerEnv, or a table (CSV, Parquet, JSON, JSON lines)"
)
_DATABASES = (".sqlite", ".sqlite3", ".db")


def read(
    paths: Sequence[str | Path],
    columns: Columns | None = None,
    policies: Mapping[str, str] | None = None,
    log: LogFormat = LIBERO,
) -> tuple[list[Recording], list[str]]:
    """Read all recordings under ``paths``, each episode once, with notes on how they were read.

    ``policies`` names the policy of some files or folders; equal files of different policies both count. ``log``
    describes the lines of logs.
    """
    reading = _Reading(columns or {}, policies or {}, log)
    where = ", ".join(map(str, paths))
    named: dict[Path, bool] = {}
    for path in map(Path, paths):
        if path.is_dir():
            for file in files_under(path):
                if leads_out(path, file.absolute()):
                    reading.passed.append(f"{file} is a link that leads out of {path}; name the file itself to read it")
                elif may_hold_outcomes(file):
                    named.setdefault(file, False)
        else:
            check_file(path)
            named[path] = True
    for path in sorted(named, key=str):
        reading.add(path, named=named[path])
    videos, left_out = logs.read_videos({video.resolve(): video for video in sorted(reading.videos)}.values())
    reading.recordings += videos
    reading.passed += left_out
    if not reading.recordings:
        why = f" ({'; '.join(reading.notes()[:2])})" if reading.notes() else ""
        near = min(reading.unknown.values(), key=lambda reason: "nearest" not in reason, default=f"give {KNOWN}")
        raise IngestError(f"{where}: holds no outcomes that BestTake knows{why}; {near}")
    recordings, notes = once(reading.recordings)
    if not any(recording.episodes for recording in recordings):
        raise IngestError(f"{where}: there is no episode in it")
    own = [note for one in recordings for note in one.notes if note != BY_ORDER or len(recordings) > 1]
    return recordings, list(dict.fromkeys([*notes, *own, *reading.notes()]))


@dataclass
class _Reading:
    """The recordings read so far, and the files left out. Only files that the user named must be readable."""

    columns: Columns
    policies: Mapping[str, str]
    log: LogFormat = LIBERO
    recordings: list[Recording] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    videos: list[Path] = field(default_factory=list)
    copies: dict[str, Path] = field(default_factory=dict)
    repeats: list[str] = field(default_factory=list)

    def add(self, path: Path, *, named: bool) -> None:
        """Read one file or one data set, unless an equal one was read."""
        if logs.names_outcome(path):
            self.videos.append(path)
            return
        try:
            recordings = read_file(path, self.columns, self.log)
        except IngestError as error:
            if named:
                raise
            if isinstance(error, UnknownFormat) and "damaged" not in str(error):
                self.unknown[path.name] = str(error)
            else:
                self.passed.append(str(error))
            return
        # Short files of two runs, seeds or starts may be equal to the letter.
        levels = self.columns.get("start", "").rpartition("/")[0]
        about = given_name(str(path), self.policies), seed_in(str(path)), start_in(str(path), levels)
        first = self.copies.setdefault(f"{sha256_of(path)} {about}", path)
        tables = [recording for recording in recordings if f".{recording.format}" in tabular.SUFFIXES]
        if first == path or (tables and not is_copy(path, first, tables)):  # other formats hold times and ids
            self.recordings += recordings
        else:
            self.repeats.append(f"{path.name} repeats {first.name} and was counted once")

    def notes(self) -> list[str]:
        """A few lines on what was left out."""
        lines = few(self.repeats, "more copies were counted once")
        lines += few((f"passed over: {reason}" for reason in self.passed), "more files were passed over")
        if self.unknown:
            lines.append(f"passed over, without outcomes: {', '.join(few(self.unknown, 'more'))}")
        return lines


def may_hold_outcomes(file: Path) -> bool:
    """Whether the name of a file in a directory suggests outcomes; what `ingest` itself wrote is left out."""
    suffix = kind_of(file)
    if suffix in tabular.SUFFIXES:
        return file.name != "outcomes.csv" or not (file.parent / "result.json").exists()
    if suffix in logs.VIDEO_SUFFIXES:
        return logs.names_outcome(file)
    return suffix in (*logs.SUFFIXES, *_DATABASES) or file.name.startswith("recording")


def read_file(path: Path, columns: Columns, log: LogFormat = LIBERO) -> list[Recording]:
    """Read the recordings of one file or data set; IngestError says what is wrong with it."""
    try:
        if not path.stat().st_size:
            raise UnknownFormat(f"{path}: the file is empty")
        return _read_known(path, columns, log)
    except IngestError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError,
            EOFError, zlib.error) as error:  # fmt: skip
        # Files come from anywhere: one of the wrong shape must not end the reading of all others.
        raise IngestError(f"{path}: not what its format says ({one_line(error, 160)})") from error
    except OSError as error:
        raise IngestError(f"{path}: cannot be read ({one_line(error, 160)})") from error


def _read_known(path: Path, columns: Columns, log: LogFormat) -> list[Recording]:
    suffix = kind_of(path)
    in_table = columns.get("start", "").rpartition("/")[2] not in ("", "start")
    if suffix == ".json" and "success" not in columns and not in_table:
        known = read_results(path)
        if known:
            return known
    if suffix in tabular.SUFFIXES:
        return tabular.read_table(path, columns)
    if is_recording(path):
        return read_recording(path)
    if suffix in logs.SUFFIXES:
        return logs.read_log(path, log)
    raise UnknownFormat(f"{path}: not a known file of outcomes; give {KNOWN}")
