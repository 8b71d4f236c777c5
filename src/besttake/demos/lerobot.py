"""LeRobotDataset v3, read with pyarrow and av: ``lerobot:DIRECTORY`` or ``lerobot:org/name`` (through the hub).

Options: ``camera`` (a feature such as ``observation.images.wrist``, or its last word; by default the wrist camera, as
in the paper, else the first), ``state`` and ``action`` (features), ``episodes`` (``0:50``), ``size`` (longest side of a
frame, 320), ``revision`` (of a hub data set), ``map`` (for a policy that looks: ``agentview:observation.images.image``,
where the names do not say which camera is which). The gripper and the end effector are known where the features name
them: one action called ``…gripper…``, states called ``x``, ``y``, ``z``; else they are unknown and the user says.
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
from besttake.errors import LibraryError, need, one_line
from besttake.options import Reader
from besttake.types import F32, U8, Demo

_FULL = 1 << 20


@dataclass(frozen=True)
class Choice:
    """What to read of a data set. ``cameras`` maps the names a policy uses to stored ones."""

    camera: str | None
    state: str
    action: str
    episodes: slice
    size: int
    cameras: Mapping[str, str]


class LeRobotDemos:
    """The episodes of a LeRobotDataset v3, each a demonstration of its (first) task."""

    def __init__(self, root: Path, name: str, choice: Choice, uri: str = "") -> None:
        self.name, self._root, self._size, self._map, self.uri = name, root, choice.size, choice.cameras, uri
        self._info = _info(root, name)
        features: Mapping[str, Any] = self._info["features"]
        self._cameras = _cameras(features, name)
        self.camera = choose_camera(self._cameras, choice.camera, name)
        self._state = _feature(features, choice.state, "observation.state", name)
        self._action = _feature(features, choice.action, "action", name)
        self.fps = float(self._info["fps"])
        self.gripper_dim = _named(features, self._action, lambda dim: "gripper" in dim.lower())
        self.gripper_open = -1
        axes = [_named(features, self._state, partial(eq, axis)) for axis in "xyz"]
        self.eef_dims = None if None in axes else tuple(axis for axis in axes if axis is not None)
        self._episodes = _episodes(root, name)[choice.episodes]
        self.fingerprint = self._fingerprint()

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Demo | Bad]:
        for episode in self._episodes:
            number = int(episode["episode_index"])
            try:
                yield self._demo(number, episode)
            except Unreadable as error:
                yield Bad(f"episode {number}", str(error))

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether it has these cameras."""
        matched = match_cameras(cameras, self._cameras, self._map)
        return matched is not None and all(
            not self._is_video(camera) or (self._root / "videos" / camera).is_dir() for camera in matched.values()
        )

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration ``demo``, full size."""
        episode = next(e for e in self._episodes if f"episode {e['episode_index']}" == demo)
        matched = match_cameras(cameras, self._cameras, self._map) or {}
        try:
            return {wanted: self._one(episode, step, stored) for wanted, stored in matched.items()}
        except Unreadable as error:
            raise LibraryError(f"{self.name}: {demo} {error}") from error

    def _is_video(self, camera: str) -> bool:
        return bool(self._info["features"][camera]["dtype"] == "video")

    def _one(self, episode: Mapping[str, Any], step: int, camera: str) -> U8:
        if self._is_video(camera):
            frame: U8 = self._video(episode, camera, step, 1, _FULL)[0]
            return frame
        import pyarrow.parquet as pq

        filters = [("episode_index", "=", int(episode["episode_index"])), ("frame_index", "=", step)]
        path = self._root / self._path("data_path", episode, "data", camera)
        return self._picture(pq.read_table(path, columns=[camera], filters=filters).to_pylist()[0][camera], _FULL)

    def _demo(self, number: int, episode: Mapping[str, Any]) -> Demo:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._root / self._path("data_path", episode, "data", self.camera)
        is_video = self._is_video(self.camera)
        columns = [c for c in (self._state, self._action, None if is_video else self.camera) if c is not None]
        try:
            table = pq.read_table(path, columns=["frame_index", *columns], filters=[("episode_index", "=", number)])
        except (OSError, pa.ArrowException, KeyError) as error:
            raise Unreadable(f"has data that cannot be read in {path.name} ({type(error).__name__})") from error
        table = table.sort_by("frame_index")
        length = int(episode["length"])
        if table.num_rows != length:
            raise Unreadable(f"has {table.num_rows} rows instead of {length} in {path.name}")
        if length == 0:
            frames = np.zeros((0, 1, 1, 3), np.uint8)
        elif is_video:
            frames = self._video(episode, self.camera, 0, length, self._size)
        else:
            frames = np.stack([self._picture(value, self._size) for value in table.column(self.camera).to_pylist()])
        task, steps = str((episode.get("tasks") or ("",))[0]), np.arange(length, dtype=np.int64)
        states, actions = _rows(table, self._state), _rows(table, self._action)
        origin = {"episode": number, "file": str(path.relative_to(self._root))}
        return Demo(f"episode {number}", task, frames, steps, states, actions, task, origin)

    def _video(self, episode: Mapping[str, Any], camera: str, step: int, count: int, largest: int) -> U8:
        path = self._root / self._path("video_path", episode, f"videos/{camera}", camera)
        start = float(episode[f"videos/{camera}/from_timestamp"]) + step / self.fps
        return video_slice(path, start, count, self.fps, largest)

    def _picture(self, value: Mapping[str, Any], largest: int) -> U8:
        if value.get("bytes") is not None:
            return picture(value["bytes"], largest)
        return picture(self._root / str(value.get("path")), largest)

    def _path(self, key: str, episode: Mapping[str, Any], columns: str, camera: str) -> str:
        pattern = str(self._info[key])
        chunk, file = int(episode[f"{columns}/chunk_index"]), int(episode[f"{columns}/file_index"])
        return pattern.format(video_key=camera, chunk_index=chunk, file_index=file)

    def _fingerprint(self) -> str:
        """Over the metadata, and the names and sizes of data and videos: to read those takes as long as to use them."""
        digest = hashlib.sha256(json.dumps([self._info, self.camera, self._state, self._action, self._size]).encode())
        for path in sorted((self._root / "meta").rglob("*.parquet")):
            digest.update(path.read_bytes())
        for path in sorted([*(self._root / "data").rglob("*"), *(self._root / "videos" / self.camera).rglob("*")]):
            if path.is_file():
                digest.update(f"{path.relative_to(self._root)} {path.stat().st_size}\n".encode())
        digest.update(repr([e["episode_index"] for e in self._episodes]).encode())
        return digest.hexdigest()[:16]


def make(
    rest: str,
    camera: str | None = None,
    state: str = "observation.state",
    action: str = "action",
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
        root = _download(rest, [camera, *cameras.values()], revision)
    first, colon, last = episodes.partition(":")
    try:
        chosen = slice(int(first or 0), int(last) if last else None) if colon else slice(int(first), int(first) + 1)
    except ValueError:
        raise LibraryError(f"lerobot:{rest}: episodes is a range such as 0:50, not {episodes}") from None
    again = uri_again("lerobot", root, camera=camera, state=state, action=action, episodes=episodes, size=size, map=map)
    choice = Choice(camera, state, action, chosen, read.whole("size", size), cameras)
    return LeRobotDemos(root, f"lerobot:{rest}", choice, again)


def _download(repo: str, cameras: Sequence[str | None], revision: str | None) -> Path:
    """The data set from the hub: metadata first, because it says which video files are needed.

    The first camera is the one to score by; others are those that a policy is to be shown.
    """
    if repo.count("/") != 1 or repo.startswith((".", "/")):
        raise LibraryError(f"lerobot:{repo}: there is no such directory, and it is not a hub name such as org/name")
    snapshot_download = need("huggingface_hub", f"lerobot:{repo} from the hub").snapshot_download
    try:
        options = {"repo_type": "dataset", "revision": revision}
        root = Path(snapshot_download(repo, allow_patterns=["meta/**"], **options))
        known = _cameras(_info(root, f"lerobot:{repo}")["features"], f"lerobot:{repo}")
        videos = [f"videos/{choose_camera(known, camera, f'lerobot:{repo}')}/**" for camera in cameras]
        return Path(snapshot_download(repo, allow_patterns=["meta/**", "data/**", *videos], **options))
    except LibraryError:
        raise
    except Exception as error:
        raise LibraryError(f"lerobot:{repo} cannot be downloaded from the hub ({one_line(error, 200)})") from error


def _info(root: Path, name: str) -> dict[str, Any]:
    try:
        info: dict[str, Any] = json.loads((root / "meta" / "info.json").read_text(encoding="utf-8"))
        version = str(info["codebase_version"])
        float(info["fps"]), dict(info["features"]), str(info["data_path"])
    except FileNotFoundError:
        raise LibraryError(f"{name} is not a LeRobotDataset (it has no meta/info.json)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LibraryError(f"{name}: meta/info.json is damaged ({error})") from error
    if not version.startswith("v3"):
        raise LibraryError(f"{name} is a LeRobotDataset {version}; convert it to v3.0 with lerobot's own converter")
    return info


def _episodes(root: Path, name: str) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    episodes: list[dict[str, Any]] = []
    for path in sorted((root / "meta" / "episodes").rglob("*.parquet")):
        try:
            columns = [c for c in pq.read_schema(path).names if not c.startswith("stats/")]
            episodes += pq.read_table(path, columns=columns).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise LibraryError(f"{name}: meta/episodes/{path.name} is damaged ({type(error).__name__})") from error
    if not episodes:
        raise LibraryError(f"{name} lists no episodes under meta/episodes")
    return sorted(episodes, key=lambda episode: int(episode["episode_index"]))


def _cameras(features: Mapping[str, Any], name: str) -> list[str]:
    cameras = [key for key, value in features.items() if value["dtype"] in ("video", "image")]
    if not cameras:
        raise LibraryError(f"{name} has no camera among its features")
    return cameras


def _feature(features: Mapping[str, Any], key: str, usual: str, name: str) -> str | None:
    """``key``; None where it is the ``usual`` one and the data set does without."""
    if key in features:
        return key
    if key == usual:
        return None
    raise LibraryError(f"{name} has no feature {key}; it has {', '.join(features)}")


def _named(features: Mapping[str, Any], key: str | None, fits: Callable[[str], bool]) -> int | None:
    """The one dimension of a feature whose name ``fits``; None when none or several do."""
    names = None if key is None else features[key].get("names")
    if isinstance(names, dict):
        names = next(iter(names.values()), None)
    if not isinstance(names, list):
        return None
    rows = [i for i, name in enumerate(names) if fits(str(name))]
    return rows[0] if len(rows) == 1 else None


def _rows(table: Any, key: str | None) -> F32 | None:
    if key is None:
        return None
    column = table.column(key).combine_chunks()
    if column.null_count:
        raise Unreadable(f"has empty rows of {key}")
    flat = column.flatten() if hasattr(column, "flatten") else column
    values = np.asarray(flat.to_numpy(zero_copy_only=False), np.float32)
    if len(column) and len(values) % len(column):
        raise Unreadable(f"has rows of different length in {key}")
    rows: F32 = values.reshape(len(column), -1) if len(column) else np.zeros((0, 1), np.float32)
    return rows
