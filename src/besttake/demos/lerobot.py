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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from besttake.demos.base import Bad, match_cameras
from besttake.demos.frames import LARGEST, Unreadable, picture, video_slice
from besttake.errors import LibraryError, MissingExtra, one_line
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
        state, action = choice.state, choice.action
        self._info = _info(root, name)
        features: Mapping[str, Any] = self._info["features"]
        self.camera = _camera(features, choice.camera, name)
        self._state = _feature(features, state, name) if state in features or state != "observation.state" else None
        self._action = _feature(features, action, name) if action in features or action != "action" else None
        self.fps = float(self._info["fps"])
        self.gripper_dim = _named(features, self._action, ("gripper",))
        self.gripper_open = -1
        axes = [_named(features, self._state, (axis,), exact=True) for axis in "xyz"]
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
        return matched is not None and all(self._is_stored(camera) for camera in matched.values())

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration ``demo``, full size."""
        episode = next(e for e in self._episodes if f"episode {e['episode_index']}" == demo)
        matched = match_cameras(cameras, self._cameras, self._map) or {}
        try:
            return {wanted: self._one(episode, step, stored) for wanted, stored in matched.items()}
        except Unreadable as error:
            raise LibraryError(f"{self.name}: {demo} {error}") from error

    @property
    def _cameras(self) -> list[str]:
        return [k for k, v in self._info["features"].items() if v["dtype"] in ("video", "image")]

    def _is_stored(self, camera: str) -> bool:
        is_video = self._info["features"][camera]["dtype"] == "video"
        return not is_video or (self._root / "videos" / camera).is_dir()

    def _one(self, episode: Mapping[str, Any], step: int, camera: str) -> U8:
        if self._info["features"][camera]["dtype"] == "video":
            path = self._root / self._path("video_path", episode, f"videos/{camera}", camera)
            start = float(episode[f"videos/{camera}/from_timestamp"]) + step / self.fps
            frame: U8 = video_slice(path, start, 1, self.fps, _FULL)[0]
            return frame
        import pyarrow.parquet as pq

        filters = [("episode_index", "=", int(episode["episode_index"])), ("frame_index", "=", step)]
        path = self._root / self._path("data_path", episode, "data", camera)
        return self._picture(pq.read_table(path, columns=[camera], filters=filters).to_pylist()[0][camera], _FULL)

    def _demo(self, number: int, episode: Mapping[str, Any]) -> Demo:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._root / self._path("data_path", episode, "data", self.camera)
        is_video = self._info["features"][self.camera]["dtype"] == "video"
        columns = [c for c in (self._state, self._action, None if is_video else self.camera) if c is not None]
        try:
            table = pq.read_table(path, columns=["frame_index", *columns], filters=[("episode_index", "=", number)])
        except (OSError, pa.ArrowException, KeyError) as error:
            raise Unreadable(f"has data that cannot be read in {path.name} ({type(error).__name__})") from error
        table = table.sort_by("frame_index")
        length = int(episode["length"])
        if table.num_rows != length:
            raise Unreadable(f"has {table.num_rows} rows instead of {length} in {path.name}")
        frames = self._video(episode, length) if is_video else self._pictures(table.column(self.camera), length)
        tasks: Sequence[str] = episode.get("tasks") or ("",)
        return Demo(
            id=f"episode {number}",
            task=str(tasks[0]),
            frames=frames,
            frame_steps=np.arange(length, dtype=np.int64),
            states=_rows(table, self._state),
            actions=_rows(table, self._action),
            instruction=str(tasks[0]),
            source={"episode": number, "file": str(path.relative_to(self._root))},
        )

    def _video(self, episode: Mapping[str, Any], length: int) -> U8:
        if length == 0:
            return np.zeros((0, 1, 1, 3), np.uint8)
        path = self._root / self._path("video_path", episode, f"videos/{self.camera}", self.camera)
        start = float(episode[f"videos/{self.camera}/from_timestamp"])
        return video_slice(path, start, length, self.fps, self._size)

    def _pictures(self, column: Any, length: int) -> U8:
        frames = [self._picture(value, self._size) for value in column.to_pylist()]
        return np.stack(frames) if length else np.zeros((0, 1, 1, 3), np.uint8)

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
    options = {"camera": camera, "state": state, "action": action, "episodes": episodes, "size": size, "map": map}
    root = Path(rest)
    if not root.is_dir():
        root = _download(rest, [camera, *cameras.values()], revision)
    first, colon, last = episodes.partition(":")
    try:
        chosen = slice(int(first or 0), int(last) if last else None) if colon else slice(int(first), int(first) + 1)
    except ValueError:
        raise LibraryError(f"lerobot:{rest}: episodes is a range such as 0:50, not {episodes}") from None
    again = f"lerobot:{root.resolve()}?{urlencode({k: v for k, v in options.items() if v not in (None, '')})}"
    choice = Choice(camera, state, action, chosen, read.whole("size", size), cameras)
    return LeRobotDemos(root, f"lerobot:{rest}", choice, again)


def _download(repo: str, cameras: Sequence[str | None], revision: str | None) -> Path:
    """The data set from the hub: metadata first, because it says which video files are needed.

    The first camera is the one to score by; others are those that a policy is to be shown.
    """
    if repo.count("/") != 1 or repo.startswith((".", "/")):
        raise LibraryError(f"lerobot:{repo}: there is no such directory, and it is not a hub name such as org/name")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtra("huggingface_hub", "vision", f"lerobot:{repo} from the hub") from None
    try:
        options = {"repo_type": "dataset", "revision": revision}
        root = Path(snapshot_download(repo, allow_patterns=["meta/**"], **options))
        features = _info(root, f"lerobot:{repo}")["features"]
        videos = [f"videos/{_camera(features, camera, f'lerobot:{repo}')}/**" for camera in cameras]
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


def _camera(features: Mapping[str, Any], wanted: str | None, name: str) -> str:
    cameras = [key for key, value in features.items() if value["dtype"] in ("video", "image")]
    if not cameras:
        raise LibraryError(f"{name} has no camera among its features")
    if wanted is None:
        return next((c for c in cameras if "wrist" in c or "hand" in c), cameras[0])
    for camera in cameras:
        if wanted in (camera, camera.rpartition(".")[2]):
            return camera
    raise LibraryError(f"{name} has no camera {wanted}; it has {', '.join(cameras)}")


def _feature(features: Mapping[str, Any], key: str, name: str) -> str:
    if key not in features:
        raise LibraryError(f"{name} has no feature {key}; it has {', '.join(features)}")
    return key


def _named(features: Mapping[str, Any], key: str | None, words: Sequence[str], exact: bool = False) -> int | None:
    """The one dimension of a feature whose name holds (or is) one of ``words``; None when none or several do."""
    names = None if key is None else features[key].get("names")
    if isinstance(names, dict):
        names = next(iter(names.values()), None)
    if not isinstance(names, list):
        return None
    rows = [i for i, n in enumerate(names) if any(w == str(n) if exact else w in str(n).lower() for w in words)]
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
