"""A folder of recordings: ``video:DIRECTORY``. Each video, or folder of pictures, is one demonstration.

``DIRECTORY/pour/take1.mp4`` demonstrates the task ``pour``, and so does the folder ``DIRECTORY/pour/take2/`` with
``000.png``, ``001.png`` …; right under ``DIRECTORY`` the task is the option ``task``. A ``take1.csv`` beside it holds
a row per frame with columns ``action_0``, ``action_1`` … and ``state_0``, ``state_1`` …, either kind or both; without
one the demonstration can score takes and cannot be retrieved from.

Options: ``task``, ``camera`` (its name, ``video``), ``fps`` (of picture folders, 10), ``size`` (longest side, 320).
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from besttake.demos.base import UnreadableDemo
from besttake.demos.reading import LARGEST, Unreadable, check_links, picture, stacked, video_frames, video_rate
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8, Demo

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm")
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


@dataclass(frozen=True)
class VideoRecording:
    """A video file, or a folder of pictures, of a task."""

    path: Path
    task: str

    @property
    def table(self) -> Path:
        """Where its states and actions would be."""
        return self.path.with_name(self.path.stem + ".csv") if self.path.is_file() else self.path.with_suffix(".csv")


class VideoDemos:
    """Recordings of a folder, in the order of their names."""

    gripper_dim, gripper_open, eef_dims = None, None, None

    def __init__(self, root: Path, name: str, task: str, camera: str, fps: float, size: int) -> None:
        self.name, self.camera, self._root, self._size = name, camera, root, size
        self.recordings = _recordings(root, task)
        if not self.recordings:
            raise LibraryError(f"{name} holds no videos ({', '.join(VIDEOS)}) and no folders of pictures")
        self.notes = (f"{len(self.recordings)} recordings, videos or folders of pictures",)
        first = self.recordings[0].path
        self.fps = (video_rate(first) if first.is_file() else 0.0) or fps
        digest = hashlib.sha256(repr([task, camera, size]).encode())
        for recording in self.recordings:
            for path in _files(recording):
                digest.update(f"{path.relative_to(root)} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
        self.fingerprint = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.recordings)

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """States and actions of the tables."""
        for recording in self.recordings:
            try:
                yield _table(recording.table)
            except Unreadable:
                continue

    def __iter__(self) -> Iterator[Demo | UnreadableDemo]:
        return self.of_tasks(lambda _: True)

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo | UnreadableDemo]:
        """The recordings whose task is ``wanted``."""
        for recording in self.recordings:
            if not wanted(recording.task):
                continue
            identity = str(recording.path.relative_to(self._root))
            try:
                frames = read_frames(recording.path, self._size)
                states, actions = _table(recording.table, len(frames))
            except Unreadable as error:
                yield UnreadableDemo(identity, str(error))
                continue
            steps, instruction = np.arange(len(frames), dtype=np.int64), recording.task.replace("_", " ")
            yield Demo(identity, recording.task, frames, steps, states, actions, instruction, {"file": identity})


def make(
    rest: str, task: str = "", camera: str = "video", fps: float | str = 10.0, size: int | str = LARGEST
) -> VideoDemos:
    """The source ``video:rest``."""
    if not Path(rest).is_dir():
        raise LibraryError(f"video:{rest}: there is no such directory")
    check_links(Path(rest), f"video:{rest}")
    read = Reader(f"video:{rest}")
    return VideoDemos(Path(rest), read.uri, task, camera, read.number("fps", fps), read.whole("size", size))


def read_frames(path: Path, largest: int = LARGEST) -> U8:
    """The frames of a video file or of a folder of pictures, uint8 (F, h, w, 3); `Unreadable` says what is wrong."""
    if path.is_file():
        return video_frames(path, largest)
    if not path.is_dir():
        raise Unreadable(f"is neither a video nor a folder of pictures ({path.name})")
    frames = stacked([picture(file, largest) for file in _pictures(path)], path.name)
    if not len(frames):
        raise Unreadable(f"has no frames in {path.name}")
    return frames


def _recordings(root: Path, task: str) -> list[VideoRecording]:
    recordings: list[VideoRecording] = []
    for path in sorted(root.iterdir()):
        if _is_recording(path):
            recordings.append(VideoRecording(path, task))
        elif path.is_dir():
            recordings += [VideoRecording(inner, path.name) for inner in sorted(path.iterdir()) if _is_recording(inner)]
    return recordings


def _is_recording(path: Path) -> bool:
    return path.suffix.lower() in VIDEOS if path.is_file() else path.is_dir() and bool(_pictures(path))


def _pictures(folder: Path) -> list[Path]:
    """The pictures of a folder in the order of their numbers: ``9.png`` comes before ``10.png``."""
    pictures = [p for p in folder.iterdir() if p.suffix.lower() in PICTURES]
    return sorted(pictures, key=lambda p: ([int(n) for n in re.findall(r"\d+", p.stem)], p.name))


def _files(recording: VideoRecording) -> list[Path]:
    files = [recording.path] if recording.path.is_file() else _pictures(recording.path)
    return [*files, recording.table] if recording.table.is_file() else files


def _table(path: Path, frames: int | None = None) -> tuple[F32 | None, F32 | None]:
    """States (T, s) and actions (T, a) of a CSV file; None for what it does not have."""
    if not path.is_file():
        return None, None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head, *rows = list(csv.reader(file))
        values = np.array([[float(cell) for cell in row] for row in rows if row], np.float32).reshape(-1, len(head))
    except (ValueError, UnicodeDecodeError, csv.Error) as error:
        raise Unreadable(f"has a table {path.name} that is not numbers under one header ({error})") from error
    if frames is not None and len(values) != frames:
        raise Unreadable(f"has {frames} frames, but {path.name} has {len(values)} rows")
    columns = []
    for kind in ("state", "action"):
        places = [(int(m.group(1)), i) for i, n in enumerate(head) if (m := re.fullmatch(rf"\s*{kind}_(\d+)\s*", n))]
        columns.append(values[:, [i for _, i in sorted(places)]] if places else None)
    if columns[0] is None and columns[1] is None:
        raise Unreadable(f"has a table {path.name} without columns action_0 … or state_0 …")
    return columns[0], columns[1]
