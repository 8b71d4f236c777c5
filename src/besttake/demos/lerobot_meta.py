"""What a LeRobotDataset says about itself: versions 2.0, 2.1 and 3.0, one form for all.

Version 3 has several episodes in each file and lists them in ``meta/episodes/*.parquet``; version 2 has a file per
episode and lists them in ``meta/episodes.jsonl``. Both describe features, rate and the names of their files in
``meta/info.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from besttake.demos.frames import Unreadable
from besttake.demos.paths import check_links, filled, inside, read_json, read_json_lines
from besttake.errors import LibraryError

_OLD_CHUNK = 1000


@dataclass(frozen=True)
class Episode:
    """An episode and where it lies: ``row`` is what the data set says of it."""

    number: int
    task: str
    length: int
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Meta:
    """The metadata of a data set. ``version`` is 2 or 3; ``features`` have a ``dtype`` each."""

    root: Path
    name: str
    version: int
    fps: float
    features: Mapping[str, Mapping[str, Any]]
    info: Mapping[str, Any]

    @classmethod
    def read(cls, root: Path, name: str) -> Meta:
        """The metadata of the data set in ``root``; LibraryError, one line, where it is none or damaged."""
        check_links(root, name)
        path = root / "meta" / "info.json"
        if not path.is_file():
            raise LibraryError(f"{name} is not a LeRobotDataset (it has no meta/info.json)")
        info = read_json(path, name)
        version = info.get("codebase_version")
        if not isinstance(version, str):
            raise LibraryError(f"{name}: meta/info.json is damaged (it has no codebase_version)")
        if not version.startswith(("v2.", "v3.")):
            raise LibraryError(f"{name} is a LeRobotDataset {version[:20]}; v2.0, v2.1 and v3.0 can be read")
        fps, features = info.get("fps"), info.get("features")
        if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < 1e6:
            raise LibraryError(f"{name}: meta/info.json is damaged (fps is {str(fps)[:40]})")
        if not isinstance(info.get("data_path"), str):
            raise LibraryError(f"{name}: meta/info.json is damaged (data_path is not a text)")
        if not isinstance(features, dict) or not all(
            isinstance(value, dict) and isinstance(value.get("dtype"), str) for value in features.values()
        ):
            raise LibraryError(f"{name}: meta/info.json is damaged (features have no dtype)")
        return cls(root, name, int(version[1]), float(fps), features, info)

    @property
    def cameras(self) -> list[str]:
        """The features that are pictures."""
        cameras = [key for key, value in self.features.items() if value["dtype"] in ("video", "image")]
        if not cameras:
            raise LibraryError(f"{self.name} has no camera among its features")
        return cameras

    def is_video(self, camera: str) -> bool:
        """Whether the pictures of ``camera`` are in video files, not in the table."""
        return bool(self.features[camera]["dtype"] == "video")

    def dims(self, key: str | None) -> list[str]:
        """The names of a feature's numbers; empty where it has none, or not one for each number."""
        names = None if key is None else self.features[key].get("names")
        if isinstance(names, dict):
            names = next(iter(names.values()), None)
        if key is None or not isinstance(names, list):
            return []
        shape = self.features[key].get("shape")
        size = shape[0] if isinstance(shape, list) and len(shape) == 1 else None
        return [str(each) for each in names] if len(names) == size else []

    def episodes(self) -> list[Episode]:
        """All episodes, by number."""
        try:
            rows = self._rows()
            episodes = [
                Episode(int(row["episode_index"]), _first(row.get("tasks")), int(row["length"]), row) for row in rows
            ]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LibraryError(
                f"{self.name}: its list of episodes is damaged ({type(error).__name__}: {error})"
            ) from error
        if not episodes:
            raise LibraryError(f"{self.name} lists no episodes under meta/")
        if any(episode.length < 0 for episode in episodes):
            raise LibraryError(f"{self.name}: its list of episodes is damaged (a length below 0)")
        return sorted(episodes, key=lambda episode: episode.number)

    def data_file(self, episode: Episode) -> Path:
        """The table that holds ``episode``."""
        return self._file("data_path", episode, "data", {})

    def video_file(self, episode: Episode, camera: str) -> Path:
        """The video that holds what ``camera`` saw in ``episode``."""
        return self._file("video_path", episode, f"videos/{camera}", {"video_key": camera})

    def video_start(self, episode: Episode, camera: str) -> float:
        """Where ``episode`` begins in its video file, in seconds."""
        if self.version == 2:
            return 0.0
        try:
            return float(episode.row[f"videos/{camera}/from_timestamp"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Unreadable(f"does not say where its video of {camera} begins") from None

    def _rows(self) -> list[dict[str, Any]]:
        if self.version == 2:
            return read_json_lines(self.root / "meta" / "episodes.jsonl", self.name)
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = []
        for path in sorted((self.root / "meta" / "episodes").rglob("*.parquet")):
            try:
                inside(self.root, path)
                columns = [c for c in pq.read_schema(path).names if not c.startswith("stats/")]
                rows += pq.read_table(path, columns=columns).to_pylist()
            except (OSError, pa.ArrowException) as error:
                raise LibraryError(
                    f"{self.name}: meta/episodes/{path.name} is damaged ({type(error).__name__})"
                ) from error
            except Unreadable as error:
                raise LibraryError(f"{self.name}: meta/episodes/{path.name} {error}") from error
        return rows

    def _file(self, pattern: str, episode: Episode, columns: str, more: Mapping[str, str]) -> Path:
        named = self.info.get(pattern)
        if not isinstance(named, str):
            raise Unreadable(f"has no {pattern} in meta/info.json")
        values: dict[str, int | str] = {**more, "episode_index": episode.number}
        try:
            if self.version == 2:
                values["episode_chunk"] = episode.number // int(self.info.get("chunks_size") or _OLD_CHUNK)
            else:
                values["chunk_index"] = int(episode.row[f"{columns}/chunk_index"])
                values["file_index"] = int(episode.row[f"{columns}/file_index"])
        except (KeyError, TypeError, ValueError, ArithmeticError):
            raise Unreadable(f"does not say which file of {columns} it is in") from None
        return inside(self.root, filled(named, values))


def _first(tasks: Any) -> str:
    if isinstance(tasks, str):
        return tasks
    return str(tasks[0]) if isinstance(tasks, Sequence) and len(tasks) else ""
