"""LeRobotDataset v2.0, v2.1 and v3.0, read with pyarrow and av: ``lerobot:DIRECTORY`` or ``lerobot:org/name``.

Options: ``camera``, ``state`` and ``action`` (features), ``episodes`` (``0:50``), ``size`` (longest side of a frame,
320), ``revision`` (of a hub data set), ``map`` (``agentview:observation.images.image``). The gripper and the end
effector are known if the features name them: one action called ``…gripper…``, states called ``x``, ``y``, ``z``.

Version 3 has several episodes in each file and lists them in ``meta/episodes/*.parquet``; version 2 has a file per
episode and lists them in ``meta/episodes.jsonl``. Both have ``meta/info.json``, which describes features, rate and
file names.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from besttake.demos.base import Episodes, missing_notes, uri_again
from besttake.demos.cameras import choose_camera, match_cameras
from besttake.demos.reading import (
    FULL_SIZE,
    LARGEST,
    Unreadable,
    check_count,
    check_links,
    filled,
    inside,
    picture,
    read_json,
    read_json_lines,
    stacked,
    video_slice,
)
from besttake.errors import BestTakeError, LibraryError, need, one_line
from besttake.options import Reader
from besttake.types import F32, U8

_STATES = ("observation.state", "state", "observation.states")
_ACTIONS = ("action", "actions")


class _Feature(BaseModel):
    dtype: str
    names: Any = None
    shape: Any = None


class _Info(BaseModel):
    """``meta/info.json``."""

    model_config = ConfigDict(strict=True)

    codebase_version: str
    fps: float = Field(gt=0, lt=1e6)
    features: dict[str, _Feature]
    data_path: str
    video_path: str | None = None
    chunks_size: int = Field(1000, ge=1)
    total_episodes: int | None = None


@dataclass(frozen=True)
class EpisodeEntry:
    """An episode of a data set; ``row`` is its metadata, including the files that hold it."""

    number: int
    task: str
    length: int
    row: Mapping[str, Any]

    def number_at(self, column: str) -> float:
        """The number in ``column`` of the metadata; `Unreadable` if there is none."""
        try:
            number = float(self.row[column])
        except (KeyError, TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise Unreadable(f"has no number {column} in the metadata")
        return number


@dataclass(frozen=True)
class Meta:
    """The metadata of a data set. ``version`` is 2 or 3."""

    root: Path
    name: str
    version: int
    info: _Info

    @classmethod
    def read(cls, root: Path, name: str) -> Meta:
        """Read the metadata of the data set in ``root``; LibraryError if it is missing or damaged."""
        check_links(root, name)
        path = root / "meta" / "info.json"
        if not path.is_file():
            raise LibraryError(f"{name} is not a LeRobotDataset (it has no meta/info.json)")
        try:
            info = _Info.model_validate(read_json(path, name))
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise LibraryError(f"{name}: meta/info.json is damaged ({why:.200})") from error
        if not info.codebase_version.startswith(("v2.", "v3.")):
            raise LibraryError(
                f"{name} is a LeRobotDataset {info.codebase_version[:20]}; v2.0, v2.1 and v3.0 can be read"
            )
        return cls(root, name, int(info.codebase_version[1]), info)

    @property
    def cameras(self) -> list[str]:
        """The names of the features that are pictures."""
        cameras = [key for key, feature in self.info.features.items() if feature.dtype in ("video", "image")]
        if not cameras:
            raise LibraryError(f"{self.name} has no camera among its features")
        return cameras

    def is_video(self, camera: str) -> bool:
        """Whether the pictures of ``camera`` are in video files (else they are in the tables)."""
        return self.info.features[camera].dtype == "video"

    def dims(self, key: str | None) -> list[str]:
        """The names of a feature's components; empty unless every component has one."""
        if key is None:
            return []
        names, shape = self.info.features[key].names, self.info.features[key].shape
        if isinstance(names, dict):
            names = next(iter(names.values()), None)
        return [str(each) for each in names] if isinstance(names, list) and [len(names)] == shape else []

    def episodes(self) -> list[EpisodeEntry]:
        """All episodes, by number."""
        try:
            episodes = [
                EpisodeEntry(int(row["episode_index"]), _first(row.get("tasks")), int(row["length"]), row)
                for row in self._rows()
            ]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LibraryError(
                f"{self.name}: its list of episodes is damaged ({type(error).__name__}: {error})"
            ) from error
        if not episodes or any(episode.length < 0 for episode in episodes):
            raise LibraryError(f"{self.name}: its list of episodes under meta/ is empty or damaged")
        try:
            check_count(len({each.number for each in episodes}), self.info.total_episodes, "episodes", "meta/info.json")
        except Unreadable as error:
            raise LibraryError(f"{self.name} {error}") from None
        return sorted(episodes, key=lambda episode: episode.number)

    def data_file(self, episode: EpisodeEntry) -> Path:
        """The table that holds ``episode``."""
        return self._file(self.info.data_path, episode, "data", {})

    def video_file(self, episode: EpisodeEntry, camera: str) -> Path:
        """The video that holds the pictures of ``camera`` in ``episode``."""
        if self.info.video_path is None:
            raise Unreadable("has no video_path in meta/info.json")
        return self._file(self.info.video_path, episode, f"videos/{camera}", {"video_key": camera})

    def video_start(self, episode: EpisodeEntry, camera: str) -> float:
        """The time at which ``episode`` begins in its video file, in seconds."""
        return 0.0 if self.version == 2 else episode.number_at(f"videos/{camera}/from_timestamp")

    def _rows(self) -> list[dict[str, Any]]:
        if self.version == 2:
            return read_json_lines(self.root / "meta" / "episodes.jsonl", self.name)
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = []
        for path in sorted((self.root / "meta" / "episodes").rglob("*.parquet")):
            try:
                inside(self.root, path)
                with path.open("rb") as file:
                    columns = [c for c in pq.read_schema(file).names if not c.startswith("stats/")]
                    rows += pq.read_table(file, columns=columns).to_pylist()
            except (OSError, pa.ArrowException, Unreadable) as error:
                raise LibraryError(f"{self.name}: meta/episodes/{path.name} is damaged ({one_line(error)})") from error
        return rows

    def _file(self, pattern: str, episode: EpisodeEntry, columns: str, more: Mapping[str, str]) -> Path:
        values: dict[str, int | str] = {**more, "episode_index": episode.number}
        if self.version == 2:
            values["episode_chunk"] = episode.number // self.info.chunks_size
        else:
            values |= {name: int(episode.number_at(f"{columns}/{name}")) for name in ("chunk_index", "file_index")}
        return inside(self.root, filled(pattern, values))


@dataclass(frozen=True)
class _LeRobotReader:
    """Reads the ``episodes`` of a data set by their keys ``episode N``; each demonstrates its (first) task."""

    root: Path
    meta: Meta
    episodes: Mapping[str, EpisodeEntry]
    camera: str
    state: str | None
    action: str | None
    size: int

    def ids(self) -> Iterable[str]:
        return self.episodes

    def task(self, key: str) -> tuple[str, str]:
        return self.episodes[key].task, self.episodes[key].task

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        table = self._table(self.episodes[key], [c for c in (self.state, self.action) if c is not None])
        return self._rows(table, self.state), self._rows(table, self.action)

    def frames(self, key: str) -> U8:
        episode = self.episodes[key]
        if self.meta.is_video(self.camera):
            return self._video(episode, self.camera, 0, episode.length, self.size)
        cells = self._table(episode, [self.camera]).column(self.camera)
        return stacked([self._picture(cell.as_py(), self.size) for cell in cells], self.camera)

    def picture(self, key: str, step: int, camera: str) -> U8:
        episode = self.episodes[key]
        if self.meta.is_video(camera):
            frame: U8 = self._video(episode, camera, step, 1, FULL_SIZE)[0]
            return frame
        rows = self._read(episode, [camera], [("frame_index", "=", step)]).column(camera)
        if len(rows) != 1:
            raise Unreadable(f"has {len(rows)} rows of step {step}")
        return self._picture(rows[0].as_py(), FULL_SIZE)

    def has(self, camera: str) -> bool:
        """Whether the videos of ``camera`` were downloaded, judging by the first episode."""
        if not self.meta.is_video(camera):
            return True
        first = next(iter(self.episodes.values()), None)
        try:
            return first is not None and self.meta.video_file(first, camera).is_file()
        except Unreadable:
            return False

    def _table(self, episode: EpisodeEntry, columns: Sequence[str]) -> Any:
        table, name = self._read(episode, columns, []), self.meta.data_file(episode).name
        check_count(table.num_rows, episode.length, "rows", name)
        steps = numbers_of(table, "frame_index")
        order = np.argsort(steps, axis=None, kind="stable")
        if not np.array_equal(steps.ravel()[order], np.arange(episode.length)):
            raise Unreadable(f"has rows in {name} that are not its steps 0 to {episode.length - 1}")
        return table.take(order)

    def _rows(self, table: Any, key: str | None) -> F32 | None:
        if key is None:
            return None
        rows, shape = numbers_of(table, key), self.meta.info.features[key].shape
        known = isinstance(shape, list) and all(isinstance(size, int) for size in shape)
        check_count(rows.shape[1], int(np.prod(shape)) if known else None, f"numbers of {key}", "meta/info.json")
        return rows

    def _read(self, episode: EpisodeEntry, columns: Sequence[str], only: list[tuple[str, str, int]]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.meta.data_file(episode)
        only = [*only, ("episode_index", "=", episode.number)] if self.meta.version == 3 else only
        try:
            with path.open("rb") as file:  # pyarrow takes no name that is not UTF-8
                table = pq.read_table(file, columns=["frame_index", *columns], filters=only or None)
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise Unreadable(f"has data that cannot be read in {path.name} ({type(error).__name__})") from error
        if missing := [column for column in ("frame_index", *columns) if column not in table.column_names]:
            raise Unreadable(f"has no column {missing[0]} in {path.name}")
        return table

    def _video(self, episode: EpisodeEntry, camera: str, step: int, count: int, largest: int) -> U8:
        start = self.meta.video_start(episode, camera) + step / self.meta.info.fps
        return video_slice(self.meta.video_file(episode, camera), start, count, self.meta.info.fps, largest)

    def _picture(self, value: Any, largest: int) -> U8:
        if isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes):
            return picture(value["bytes"], largest)
        if isinstance(value, Mapping) and isinstance(value.get("path"), str):
            return picture(inside(self.root, value["path"]), largest)
        raise Unreadable("has an empty row of pictures")

    def fingerprint(self) -> str:
        """A hash of metadata, columns and episodes, and of names and sizes of data files and this camera's videos."""
        sha256 = hashlib.sha256(repr((self.camera, self.state, self.action, self.size)).encode())
        for pattern in ("info.json", "*.parquet", "*.jsonl"):
            for path in sorted((self.root / "meta").rglob(pattern)):
                if path.is_file() and "stats" not in path.name:
                    sha256.update(path.read_bytes())
        for path in sorted([*(self.root / "data").rglob("*"), *(self.root / "videos").rglob("*")]):
            if path.is_file() and ("videos" not in path.parts or self.camera in path.parts):
                sha256.update(f"{path.relative_to(self.root)} {path.stat().st_size}\n".encode())
        sha256.update(repr([e.number for e in self.episodes.values()]).encode())
        return sha256.hexdigest()[:16]


@dataclass(frozen=True)
class LeRobotDemos(Episodes):
    """The episodes of a LeRobotDataset, which has the cameras whose videos were downloaded."""

    reader: _LeRobotReader

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of all episodes."""
        return tuple(dict.fromkeys(episode.task for episode in self.reader.episodes.values()))

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether the data set has these cameras and their videos."""
        matched = match_cameras(cameras, self.cameras, self.named)
        return matched is not None and all(self.reader.has(camera) for camera in matched.values())


def make(
    rest: str, camera: str | None = None, state: str | None = None, action: str | None = None, episodes: str = ":",
    size: int | str = LARGEST, revision: str | None = None, map: str = "",
) -> LeRobotDemos:  # fmt: skip
    """The source ``lerobot:rest``: a local directory, or a data set on the hub."""
    read, root = Reader(f"lerobot:{rest}"), Path(rest)
    named = read.mapping("map", map)
    if not root.is_dir():
        root = _download(rest, camera, named, revision)
    first, colon, last = episodes.partition(":")
    try:
        chosen = slice(int(first or 0), int(last) if last else None) if colon else slice(int(first), int(first) + 1)
    except ValueError:
        raise LibraryError(f"lerobot:{rest}: episodes is a range such as 0:50, not {episodes}") from None
    meta = Meta.read(root, read.uri)
    stored, called = choose_camera(meta.cameras, camera, named, read.uri)
    states, actions = _feature(meta, state, _STATES), _feature(meta, action, _ACTIONS)
    entries = {f"episode {entry.number}": entry for entry in meta.episodes()[chosen]}
    reader = _LeRobotReader(root, meta, entries, stored, states, actions, read.whole("size", size))
    notes = [f"a LeRobotDataset {meta.info.codebase_version} of {len(entries)} episodes"]
    notes += missing_notes(meta.info.features, state=states, action=actions)
    axes = [meta.dims(states).index(axis) for axis in "xyz" if meta.dims(states).count(axis) == 1]
    grippers = [i for i, dim in enumerate(meta.dims(actions)) if "gripper" in dim.lower()]
    return LeRobotDemos(
        reader, meta.cameras, named, read.uri,
        uri_again("lerobot", root, camera=camera, state=state, action=action, episodes=episodes, size=size, map=map),
        called, meta.info.fps, reader.fingerprint(), tuple(notes),
        gripper_dim=grippers[0] if len(grippers) == 1 else None,
        eef_dims=(axes[0], axes[1], axes[2]) if len(axes) == 3 else None,
    )  # fmt: skip


def _download(repo: str, camera: str | None, cameras: Mapping[str, str], revision: str | None) -> Path:
    """Download a data set from the hub: first its metadata, which names the video files that are needed.

    These are the videos of the camera to score by, and of the ``cameras`` that a policy reads.
    """
    name = f"lerobot:{repo}"
    if repo.count("/") != 1 or repo.startswith((".", "/")):
        raise LibraryError(f"{name}: there is no such directory, and it is not a hub name such as org/name")
    snapshot_download = need("huggingface_hub", f"{name} from the hub").snapshot_download
    try:
        options = {"repo_type": "dataset", "revision": revision}
        stored = Meta.read(Path(snapshot_download(repo, allow_patterns=["meta/**"], **options)), name).cameras
        wanted = [camera, *cameras.values()]
        # Version 3 has videos/CAMERA/chunk-000, version 2 videos/chunk-000/CAMERA: `*` also matches slashes.
        videos = [f"videos/*{choose_camera(stored, each, cameras, name)[0]}/*" for each in wanted]
        return Path(snapshot_download(repo, allow_patterns=["meta/**", "data/**", *videos], **options))
    except BestTakeError:
        raise
    except Exception as error:
        raise LibraryError(f"{name} cannot be downloaded from the hub ({one_line(error, 200)})") from error


def _feature(meta: Meta, wanted: str | None, usual: Sequence[str]) -> str | None:
    """The feature ``wanted``, else the first of the ``usual`` ones that exists; None if there is none."""
    if wanted is None:
        return next((key for key in usual if key in meta.info.features), None)
    if wanted not in meta.info.features:
        raise LibraryError(f"{meta.name} has no feature {wanted}; it has {', '.join(meta.info.features)}")
    return wanted


def numbers_of(table: Any, key: str) -> F32:
    """The column ``key`` as float32 (T, n)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(key).combine_chunks()
    if column.null_count:
        raise Unreadable(f"has empty rows of {key}")
    try:
        if pa.types.is_list(column.type) and len(pc.unique(pc.list_value_length(column))) > 1:
            raise Unreadable(f"has rows of different length in {key}")
        flat = column.flatten() if hasattr(column, "flatten") else column
        values = np.asarray(flat.to_numpy(zero_copy_only=False), np.float32)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise Unreadable(f"has {key} that are not numbers") from error
    rows: F32 = values.reshape(len(column), -1) if len(column) else np.zeros((0, 1), np.float32)
    return rows


def _first(tasks: Any) -> str:
    if isinstance(tasks, str):
        return tasks
    return str(tasks[0]) if isinstance(tasks, Sequence) and len(tasks) else ""
