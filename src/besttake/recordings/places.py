"""The files under a path, and their text: regular files only, bounded in number, size and depth."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from besttake import files
from besttake.errors import one_line
from besttake.recordings.episodes import IngestError, UnknownFormat

LARGEST_JSON = 256 * 2**20
"""JSON is parsed as a whole, which takes about ten times its size; result files have some megabytes."""
LONGEST_LINE = 2**20
_MOST_FILES = 1_000_000


def files_under(root: Path) -> Iterator[Path]:
    """The regular files under a directory in the order of their names; links to directories are not followed.

    A LeRobot data set is given as its own directory, not as the files in it.
    """
    seen = 0
    stack = [root]
    while stack:
        directory = stack.pop()
        if is_data_set(directory):
            yield directory
            continue
        try:
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            if directory == root:
                raise IngestError(f"{root}: cannot be listed ({one_line(error)})") from error
            continue
        stack += [Path(entry.path) for entry in reversed(entries) if _safely(entry.is_dir, follow_symlinks=False)]
        for entry in entries:
            if _safely(entry.is_file):
                seen += 1
                if seen > _MOST_FILES:
                    raise IngestError(f"{root} holds over {_MOST_FILES} files; name the folder that has the results")
                yield Path(entry.path)


def is_data_set(directory: Path) -> bool:
    """Whether a directory is a LeRobot data set."""
    return _safely((directory / "meta" / "info.json").is_file)


def check_file(path: Path) -> None:
    """IngestError unless ``path`` is a file that can be read to its end (no pipe, no device)."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise IngestError(f"{path}: no such file or directory") from error
    if not stat.S_ISREG(mode):
        raise IngestError(f"{path}: not a regular file; give a file or a directory of results")


def read_json(path: Path) -> Any:
    """The JSON of a file; UnknownFormat where it is damaged, nested deeply or larger than `LARGEST_JSON`."""
    try:
        return files.read_json(path, LARGEST_JSON)
    except (OSError, ValueError) as error:
        reason = one_line(error, 160)
        raise UnknownFormat(f"{path}: damaged JSON ({reason}); write it again with the program that made it") from error


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines of a text file; a line that never ends is an UnknownFormat."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            for number in range(1, 1 << 60):
                line = file.readline(LONGEST_LINE)
                if not line:
                    return
                if len(line) == LONGEST_LINE:
                    raise UnknownFormat(f"{path}: line {number} is longer than any that a harness writes")
                yield number, line.rstrip("\n")
    except OSError as error:
        raise IngestError(f"{path}: cannot be read ({one_line(error)})") from error


def _safely(ask: Any, **options: Any) -> bool:
    try:
        return bool(ask(**options))
    except OSError:
        return False
