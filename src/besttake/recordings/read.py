"""Files and directories of results, each handed to the reader that knows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from besttake.files import sha256_of
from besttake.recordings.episodes import IngestError, Recording
from besttake.recordings.lerobot_eval import is_info, read_info
from besttake.recordings.table import SUFFIXES, read_table
from besttake.recordings.vla_eval import is_export, is_recording, read_export, read_recording

Columns = Mapping[str, str]


def read(paths: Sequence[str | Path], columns: Columns | None = None) -> tuple[list[Recording], list[str]]:
    """All recordings that ``paths`` hold, each evaluation once, and notes on how they were read."""
    recordings: list[Recording] = []
    notes: list[str] = []
    seen: dict[str, str] = {}
    for path, recording in _recordings(paths, columns or {}, notes):
        name = f"evaluation {recording.evaluation}" if recording.evaluation else sha256_of(path)
        if name in seen:
            notes.append(f"{path.name} repeats {seen[name]} and was counted once")
            continue
        seen[name] = path.name
        recordings.append(recording)
        notes += recording.notes
    if not any(recording.episodes for recording in recordings):
        raise IngestError(f"{', '.join(map(str, paths))}: there is no episode in it")
    return recordings, list(dict.fromkeys(notes))


def _recordings(paths: Sequence[str | Path], columns: Columns, notes: list[str]) -> Iterator[tuple[Path, Recording]]:
    for path in map(Path, paths):
        if path.is_dir():
            files = list(_directory(path, columns, notes))
        elif path.is_file():
            files = [(path, _read(path, columns))]
        else:
            raise IngestError(f"{path}: no such file or directory")
        yield from ((file, recording) for file, recordings in files for recording in recordings)


def _directory(path: Path, columns: Columns, notes: list[str]) -> Iterator[tuple[Path, list[Recording]]]:
    """The files of a directory that a reader knows. Tables of other things are passed over with a note."""
    known = False
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        if not _may_hold_outcomes(file):
            continue
        try:
            recordings = _read(file, columns)
        except _UnknownFormat:
            continue
        except IngestError as error:
            notes.append(f"passed over: {error}")
            continue
        known = True
        yield file, recordings
    if not known:
        why = f" ({notes[-1]})" if notes else ""
        raise IngestError(
            f"{path}: no recording-*.sqlite, vla-eval export, eval_info.json, CSV or Parquet of outcomes{why}"
        )


class _UnknownFormat(IngestError):
    """No reader knows the file."""


def _may_hold_outcomes(file: Path) -> bool:
    """Whether a file of a directory is read: not what `ingest` itself wrote, nor other programs' databases."""
    if file.suffix.lower() in SUFFIXES:
        return file.name != "outcomes.csv"
    return file.suffix == ".json" or file.name.startswith("recording")


def _read(path: Path, columns: Columns) -> list[Recording]:
    if path.suffix.lower() in SUFFIXES:
        return read_table(path, columns)
    if path.suffix == ".json":
        data = _json(path)
        if is_export(data):
            return read_export(path, data)
        if is_info(data):
            return read_info(path, data)
    elif is_recording(path):
        return read_recording(path)
    raise _UnknownFormat(
        f"{path}: not a known file of outcomes; give vla-eval's recording or export, lerobot-eval's eval_info.json,"
        " or a CSV or Parquet table"
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _UnknownFormat(f"{path}: damaged JSON ({error}); write it again with the program that made it") from error
