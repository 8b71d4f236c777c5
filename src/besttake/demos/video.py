"""A folder of recordings: ``video:DIRECTORY``. Each video, or folder of pictures, is one demonstration.

``DIRECTORY/pour/take1.mp4`` demonstrates the task ``pour``, and so does the folder ``DIRECTORY/pour/take2/`` with
``000.png``, ``001.png`` …; the task of recordings directly in ``DIRECTORY`` is the option ``task``. A ``take1.csv``
beside a recording holds a row per frame with columns ``action_0``, ``action_1`` … or ``state_0``, ``state_1`` … or
both; without it the demonstration can score takes but not be retrieved from.

Options: ``task``, ``camera`` (its name, ``video``), ``fps`` (of picture folders, 10), ``size`` (longest side, 320).
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from besttake.demos.base import Episodes, uri_again
from besttake.demos.reading import LARGEST, Unreadable, check_links, picture, stacked, video_frames, video_rate
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm")
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


@dataclass(frozen=True)
class _VideoReader:
    """Reads recordings by their path below ``root``; ``tasks`` has the task of each."""

    root: Path
    tasks: Mapping[str, str]
    size: int

    def ids(self) -> Iterable[str]:
        return self.tasks

    def task(self, key: str) -> tuple[str, str]:
        return self.tasks[key], self.tasks[key].replace("_", " ")

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        return _numbers(_table(self.root / key))

    def frames(self, key: str) -> U8:
        return read_frames(self.root / key, self.size)

    def picture(self, key: str, step: int, camera: str) -> U8:
        raise Unreadable("has no cameras for a policy")

    def fingerprint(self, *choices: object) -> str:
        """A hash of the names, sizes and times of all files, and of the options."""
        sha256 = hashlib.sha256(repr(choices).encode())
        for path in (self.root / key for key in self.tasks):
            files = [path] if path.is_file() else _pictures(path)
            for file in [*files, _table(path)] if _table(path).is_file() else files:
                stat = file.stat()
                sha256.update(f"{file.relative_to(self.root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        return sha256.hexdigest()[:16]


def make(
    rest: str, task: str = "", camera: str = "video", fps: float | str = 10.0, size: int | str = LARGEST
) -> Episodes:
    """The source ``video:rest``."""
    root, read = Path(rest), Reader(f"video:{rest}")
    if not root.is_dir():
        raise LibraryError(f"{read.uri}: there is no such directory")
    check_links(root, read.uri)
    tasks = {}
    for path in sorted(root.iterdir()):
        if _is_recording(path):
            tasks[path.name] = task
        elif path.is_dir():
            tasks |= {f"{path.name}/{p.name}": path.name for p in sorted(path.iterdir()) if _is_recording(p)}
    if not tasks:
        raise LibraryError(f"{read.uri} holds no videos ({', '.join(VIDEOS)}) and no folders of pictures")
    reader, first = _VideoReader(root, tasks, read.whole("size", size)), root / next(iter(tasks))
    rate = (video_rate(first) if first.is_file() else 0.0) or read.number("fps", fps)
    return Episodes(
        reader, (), {}, read.uri, uri_again("video", root, task=task, camera=camera, fps=fps, size=size), camera, rate,
        reader.fingerprint(task, camera, reader.size), (f"{len(tasks)} recordings, videos or folders of pictures",),
    )  # fmt: skip


def read_frames(path: Path, largest: int = LARGEST) -> U8:
    """The frames of a video file or of a folder of pictures, uint8 (F, h, w, 3)."""
    if path.is_file():
        return video_frames(path, largest)
    if not path.is_dir():
        raise Unreadable(f"is neither a video nor a folder of pictures ({path.name})")
    frames = stacked([picture(file, largest) for file in _pictures(path)], path.name)
    if not len(frames):
        raise Unreadable(f"has no frames in {path.name}")
    return frames


def _is_recording(path: Path) -> bool:
    return path.suffix.lower() in VIDEOS if path.is_file() else path.is_dir() and bool(_pictures(path))


def _pictures(folder: Path) -> list[Path]:
    """The pictures of a folder, sorted by the numbers in their names: ``9.png`` comes before ``10.png``."""
    pictures = [p for p in folder.iterdir() if p.suffix.lower() in PICTURES]
    return sorted(pictures, key=lambda p: ([int(n) for n in re.findall(r"\d+", p.stem)], p.name))


def _table(recording: Path) -> Path:
    """The path of the CSV file with the states and actions of a recording, if it has one."""
    return recording.with_name(f"{recording.stem if recording.is_file() else recording.name}.csv")


def _numbers(path: Path) -> tuple[F32 | None, F32 | None]:
    """The states (T, s) and actions (T, a) in a CSV file; None for those that it does not have."""
    if not path.is_file():
        return None, None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file))
        values = np.array([[float(cell) for cell in row] for row in rows if row], np.float32).reshape(-1, len(header))
    except (ValueError, UnicodeDecodeError, csv.Error) as error:
        raise Unreadable(f"has a table {path.name} that is not numbers under one header ({error})") from error

    def columns(kind: str) -> F32 | None:
        matches = [(re.fullmatch(rf"\s*{kind}_(\d+)\s*", name), i) for i, name in enumerate(header)]
        numbered = sorted((int(match.group(1)), i) for match, i in matches if match)
        return values[:, [i for _, i in numbered]] if numbered else None

    states, actions = columns("state"), columns("action")
    if states is None and actions is None:
        raise Unreadable(f"has a table {path.name} without columns action_0 … or state_0 …")
    return states, actions
