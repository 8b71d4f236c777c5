"""LeRobotDataset v2.0, v2.1 and v3.0, read with pyarrow and av: ``lerobot:DIRECTORY`` or ``lerobot:org/name``.

Options: ``camera`` (a feature such as ``observation.images.wrist``, or its last word; by default the wrist camera, as
in the paper, else the first), ``state`` and ``action`` (features; by default ``observation.state`` or ``state`` and
``action`` or ``actions``), ``episodes`` (``0:50``), ``size`` (longest side of a frame, 320), ``revision`` (of a hub
data set), ``map`` (``agentview:observation.images.image``, where the names do not say which camera is which). The
gripper and the end effector are known where the features name them: one action called ``…gripper…``, states called
``x``, ``y``, ``z``; else `besttake.demos.layout` looks at the numbers, and says what it took them for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np

from besttake.demos.base import Bad, choose_camera, match_cameras, uri_again
from besttake.demos.frames import LARGEST, Unreadable, picture, video_slice
from besttake.demos.lerobot_meta import Episode, Meta
from besttake.demos.paths import inside
from besttake.errors import BestTakeError, LibraryError, need, one_line
from besttake.options import Reader
from besttake.types import F32, U8, Demo

_FULL = 1 << 20
_STATES = ("observation.state", "state", "observation.states")
_ACTIONS = ("action", "actions")


@dataclass(frozen=True)
class Choice:
    """What to read of a data set. ``cameras`` maps the names a policy uses to stored ones."""

    camera: str | None
    state: str | None
    action: str | None
    episodes: slice
    size: int
    cameras: Mapping[str, str]


class LeRobotDemos:
    """The episodes of a LeRobotDataset, each a demonstration of its (first) task."""

    gripper_open = None

    def __init__(self, root: Path, name: str, choice: Choice, uri: str = "") -> None:
        self.name, self._root, self._size, self._map, self.uri = name, root, choice.size, choice.cameras, uri
        self._meta = meta = Meta.read(root, name)
        chosen = choose_camera(meta.cameras, choice.camera, choice.cameras, name)
        self._camera, self.camera, self.fps = chosen.stored, chosen.name, meta.fps
        self._state = _feature(meta, choice.state, _STATES)
        self._action = _feature(meta, choice.action, _ACTIONS)
        self.gripper_dim = _only(meta.dims(self._action), lambda dim: "gripper" in dim.lower())
        axes = [_only(meta.dims(self._state), partial(eq, axis)) for axis in "xyz"]
        self.eef_dims = None if None in axes else tuple(axis for axis in axes if axis is not None)
        self._episodes = meta.episodes()[choice.episodes]
        self.tasks = tuple(dict.fromkeys(episode.task for episode in self._episodes))
        self.fingerprint = self._fingerprint()
        self.notes = self._notes()

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Demo | Bad]:
        return self.of_tasks(lambda _: True)

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo | Bad]:
        """The episodes whose task is ``wanted`` when their turn comes."""
        for episode in self._episodes:
            try:
                if wanted(episode.task):
                    yield self._demo(episode)
            except Unreadable as error:
                yield Bad(f"episode {episode.number}", str(error))

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """States and actions, episode by episode."""
        for episode in self._episodes:
            try:
                table = self._table(episode, [c for c in (self._state, self._action) if c is not None])
                yield _rows(table, self._state), _rows(table, self._action)
            except Unreadable:
                continue

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether it has these cameras."""
        matched = match_cameras(cameras, self._meta.cameras, self._map)
        return matched is not None and all(self._has(camera) for camera in matched.values())

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration ``demo``, full size."""
        episode = next(e for e in self._episodes if f"episode {e.number}" == demo)
        matched = match_cameras(cameras, self._meta.cameras, self._map) or {}
        try:
            return {wanted: self._one(episode, step, stored) for wanted, stored in matched.items()}
        except Unreadable as error:
            raise LibraryError(f"{self.name}: {demo} {error}") from error

    def _has(self, camera: str) -> bool:
        """Whether the videos of ``camera`` were downloaded, by the first episode's."""
        if not self._meta.is_video(camera):
            return True
        try:
            return bool(self._episodes) and self._meta.video_file(self._episodes[0], camera).is_file()
        except Unreadable:
            return False

    def _one(self, episode: Episode, step: int, camera: str) -> U8:
        if self._meta.is_video(camera):
            frame: U8 = self._video(episode, camera, step, 1, _FULL)[0]
            return frame
        rows = self._read(episode, [camera], [("frame_index", "=", step)]).column(camera)
        if len(rows) != 1:
            raise Unreadable(f"has {len(rows)} rows of step {step}")
        return self._picture(rows[0].as_py(), _FULL)

    def _table(self, episode: Episode, columns: Sequence[str]) -> Any:
        table = self._read(episode, columns, []).sort_by("frame_index")
        if table.num_rows != episode.length:
            path = self._meta.data_file(episode)
            raise Unreadable(f"has {table.num_rows} rows instead of {episode.length} in {path.name}")
        return table

    def _read(self, episode: Episode, columns: Sequence[str], only: list[tuple[str, str, int]]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._meta.data_file(episode)
        only = [*only, ("episode_index", "=", episode.number)] if self._meta.version == 3 else only
        try:
            table = pq.read_table(path, columns=["frame_index", *columns], filters=only or None)
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise Unreadable(f"has data that cannot be read in {path.name} ({type(error).__name__})") from error
        if missing := [column for column in ("frame_index", *columns) if column not in table.column_names]:
            raise Unreadable(f"has no column {missing[0]} in {path.name}")
        return table

    def _demo(self, episode: Episode) -> Demo:
        is_video = self._meta.is_video(self._camera)
        columns = [c for c in (self._state, self._action, None if is_video else self._camera) if c is not None]
        table = self._table(episode, columns)
        if episode.length == 0:
            frames = np.zeros((0, 1, 1, 3), np.uint8)
        elif is_video:
            frames = self._video(episode, self._camera, 0, episode.length, self._size)
        else:
            pictures = [self._picture(cell.as_py(), self._size) for cell in table.column(self._camera)]
            if len({each.shape for each in pictures}) > 1:
                raise Unreadable(f"has pictures of different size in {self._camera}")
            frames = np.stack(pictures)
        steps, task = np.arange(episode.length, dtype=np.int64), episode.task
        states, actions = _rows(table, self._state), _rows(table, self._action)
        path = self._meta.data_file(episode).relative_to(self._root.resolve())
        origin = {"episode": episode.number, "file": str(path)}
        return Demo(f"episode {episode.number}", task, frames, steps, states, actions, task, origin)

    def _video(self, episode: Episode, camera: str, step: int, count: int, largest: int) -> U8:
        start = self._meta.video_start(episode, camera) + step / self.fps
        return video_slice(self._meta.video_file(episode, camera), start, count, self.fps, largest)

    def _picture(self, value: Any, largest: int) -> U8:
        if isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes):
            return picture(value["bytes"], largest)
        if isinstance(value, Mapping) and isinstance(value.get("path"), str):
            return picture(inside(self._root, value["path"]), largest)
        raise Unreadable("has an empty row of pictures")

    def _notes(self) -> tuple[str, ...]:
        features = ", ".join(self._meta.features)
        notes = [f"a LeRobotDataset {self._meta.info['codebase_version']} of {len(self._episodes)} episodes"]
        for chosen, option, usual in ((self._state, "state", _STATES), (self._action, "action", _ACTIONS)):
            if chosen is None:
                notes.append(
                    f"it has no {option}s ({' or '.join(usual[:2])}): it can score takes but not be retrieved from; if"
                    f" one of its features is the {option}, name it with ?{option}=… (features: {features})"
                )
        return tuple(notes)

    def _fingerprint(self) -> str:
        """Over the metadata, and the names and sizes of data and videos: to read those takes as long as to use them."""
        parts = [dict(self._meta.info), self._camera, self._state, self._action, self._size]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
        for pattern in ("*.parquet", "*.jsonl"):
            for path in sorted((self._root / "meta").rglob(pattern)):
                if path.is_file() and "stats" not in path.name:
                    digest.update(path.read_bytes())
        for path in sorted([*(self._root / "data").rglob("*"), *(self._root / "videos").rglob("*")]):
            if path.is_file() and ("videos" not in path.parts or self._camera in path.parts):
                digest.update(f"{path.relative_to(self._root)} {path.stat().st_size}\n".encode())
        digest.update(repr([e.number for e in self._episodes]).encode())
        return digest.hexdigest()[:16]


def make(
    rest: str,
    camera: str | None = None,
    state: str | None = None,
    action: str | None = None,
    episodes: str = ":",
    size: int | str = LARGEST,
    revision: str | None = None,
    map: str = "",
) -> LeRobotDemos:
    """The source ``lerobot:rest``: a local directory, or a data set on the hub."""
    read = Reader(f"lerobot:{rest}")
    cameras = read.mapping("map", map)
    root = Path(rest)
    if not root.is_dir():
        root = _download(rest, camera, cameras, revision)
    first, colon, last = episodes.partition(":")
    try:
        chosen = slice(int(first or 0), int(last) if last else None) if colon else slice(int(first), int(first) + 1)
    except ValueError:
        raise LibraryError(f"lerobot:{rest}: episodes is a range such as 0:50, not {episodes}") from None
    again = uri_again("lerobot", root, camera=camera, state=state, action=action, episodes=episodes, size=size, map=map)
    choice = Choice(camera, state, action, chosen, read.whole("size", size), cameras)
    return LeRobotDemos(root, f"lerobot:{rest}", choice, again)


def _download(repo: str, camera: str | None, cameras: Mapping[str, str], revision: str | None) -> Path:
    """The data set from the hub: metadata first, because it says which video files are needed.

    Those are the videos of the camera to score by, and of the ``cameras`` that a policy is to be shown.
    """
    name = f"lerobot:{repo}"
    if repo.count("/") != 1 or repo.startswith((".", "/")):
        raise LibraryError(f"{name}: there is no such directory, and it is not a hub name such as org/name")
    snapshot_download = need("huggingface_hub", f"{name} from the hub").snapshot_download
    try:
        options = {"repo_type": "dataset", "revision": revision}
        known = Meta.read(Path(snapshot_download(repo, allow_patterns=["meta/**"], **options)), name).cameras
        wanted = [camera, *cameras.values()]
        # Version 3 has videos/CAMERA/chunk-000, version 2 videos/chunk-000/CAMERA: `*` stands for slashes, too.
        videos = [f"videos/*{choose_camera(known, each, cameras, name).stored}/*" for each in wanted]
        return Path(snapshot_download(repo, allow_patterns=["meta/**", "data/**", *videos], **options))
    except BestTakeError:
        raise
    except Exception as error:
        raise LibraryError(f"{name} cannot be downloaded from the hub ({one_line(error, 200)})") from error


def _feature(meta: Meta, wanted: str | None, usual: Sequence[str]) -> str | None:
    """The feature ``wanted``, else the first of the ``usual`` ones that there is; None where there is none."""
    if wanted is None:
        return next((key for key in usual if key in meta.features), None)
    if wanted not in meta.features:
        raise LibraryError(f"{meta.name} has no feature {wanted}; it has {', '.join(meta.features)}")
    return wanted


def _only(names: Sequence[str], fits: Callable[[str], bool]) -> int | None:
    """The one of ``names`` that ``fits``; None when none or several do."""
    places = [i for i, name in enumerate(names) if fits(name)]
    return places[0] if len(places) == 1 else None


def _rows(table: Any, key: str | None) -> F32 | None:
    if key is None:
        return None
    column = table.column(key).combine_chunks()
    if column.null_count:
        raise Unreadable(f"has empty rows of {key}")
    flat = column.flatten() if hasattr(column, "flatten") else column
    try:
        values = np.asarray(flat.to_numpy(zero_copy_only=False), np.float32)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"has {key} that are not numbers") from error
    if len(column) and len(values) % len(column):
        raise Unreadable(f"has rows of different length in {key}")
    rows: F32 = values.reshape(len(column), -1) if len(column) else np.zeros((0, 1), np.float32)
    return rows
