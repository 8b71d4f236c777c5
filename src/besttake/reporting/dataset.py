"""Write takes as a LeRobotDataset v3.0 with one episode per take, to train on or to view with LeRobot's tools.

An episode has a row per executed action and ends at success, as episodes of benchmarks do. ``next.success`` is true in
the row whose action succeeded, ``next.done`` in the last row. A run stores only the scored frames, one every ``stride``
steps. The rows in between repeat the last one, and ``frame_step`` is the step at which it was taken.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from besttake.errors import RunError
from besttake.reporting.writers import VideoWriter
from besttake.takes.key import TakeKey
from besttake.takes.take import Take

CAMERA = "observation.images.camera"
_EPISODES_PER_FILE = 200
_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_COUNTERS = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64",
             "task_index": "int64"}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """What takes do not store: actions per second, and the instruction of each (env, task) that is known."""

    fps: int
    instructions: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def instruction(self, take: Take) -> str:
        """Return the instruction of a take; the name of its task if it is not known."""
        return self.instructions.get((take.key.env, take.key.task)) or take.key.task


def write_dataset(
    takes: Iterable[Take], directory: Path, scene: Scene, on_take: Callable[[int], None] = lambda count: None
) -> Path:
    """Write ``takes`` as a new data set in ``directory``, which appears only when it is complete."""
    if directory.exists() and any(directory.iterdir()):
        raise RunError(f"{directory} is not empty; name another directory for the data set")
    directory.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".tmp", dir=directory.parent))
    try:
        writer = _Writer(unfinished, scene)
        for take in takes:
            writer.add(take)
            on_take(1)
        writer.finish()
        unfinished.chmod(0o755)
        if directory.exists():
            directory.rmdir()
        unfinished.rename(directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return directory


class _Writer:
    """Writes files of up to 200 episodes, a table and a video each."""

    def __init__(self, root: Path, scene: Scene) -> None:
        self.root, self.fps, self.scene = root, scene.fps, scene
        self.tasks: dict[str, int] = {}
        self.episodes: list[dict[str, Any]] = []
        self.rows = 0
        self.shape: tuple[tuple[int, ...], ...] | None = None
        self.values: dict[str, list[Any]] = {}
        self._pending: list[Any] = []
        self._video: VideoWriter | None = None
        self._shown = 0

    def add(self, take: Take) -> None:
        """Append one take as an episode; RunError if its actions, states or frames have other sizes than before."""
        frames = take.frames()
        shape = take.actions.shape[1:], take.states.shape[1:], frames.shape[1:]
        if self.shape is None:
            self.shape = shape
        elif shape != self.shape:
            raise RunError(
                f"takes of {take.key.policy} on {take.key.task} have other sizes than the others; export them alone"
            )
        length = take.steps if take.success_step is None else min(take.steps, take.success_step)
        if not length or not len(frames):
            return
        if self._video is None:
            self._video, self._shown = self._open_video(frames.shape[1:3]), 0
        held = np.searchsorted(take.frame_steps, np.arange(length), side="right").clip(1) - 1
        for frame in held:
            self._video.add(frames[frame])
        task = self.tasks.setdefault(self.scene.instruction(take), len(self.tasks))
        self._pending.append(self._table(take, length, task, take.frame_steps[held]))
        self._keep_for_stats(take, frames, length)
        self.episodes.append(self._episode(take, length))
        self.rows, self._shown = self.rows + length, self._shown + length
        if len(self._pending) == _EPISODES_PER_FILE:
            self._close_files()

    def finish(self) -> None:
        """Write the last files and the metadata."""
        import pyarrow

        if not self.episodes:
            raise RunError("there is no finished take with frames to export")
        self._close_files()
        self._write("meta/episodes/chunk-000/file-000.parquet", pyarrow.Table.from_pylist(self.episodes))
        self._write("meta/tasks.parquet", _task_table(list(self.tasks)))
        stats = {name: _stats(values, name == CAMERA) for name, values in self.values.items()}
        for name, value in (("info", self._info()), ("stats", stats)):
            (self.root / "meta" / f"{name}.json").write_text(json.dumps(value, indent=4))

    def _file(self) -> int:
        return len(self.episodes) // _EPISODES_PER_FILE

    def _open_video(self, size: tuple[int, ...]) -> VideoWriter:
        path = self.root / _VIDEO.format(video_key=CAMERA, chunk_index=0, file_index=self._file())
        path.parent.mkdir(parents=True, exist_ok=True)
        return VideoWriter(str(path), self.fps, size, key_every=2)

    def _close_files(self) -> None:
        import pyarrow

        if self._video is not None:
            self._video.__exit__(None)
            number = (len(self.episodes) - 1) // _EPISODES_PER_FILE
            self._write(_DATA.format(chunk_index=0, file_index=number), pyarrow.concat_tables(self._pending))
            self._video, self._pending = None, []

    def _table(self, take: Take, length: int, task: int, frame_steps: Any) -> Any:
        import pyarrow

        steps = np.arange(length)
        state, action = (
            pyarrow.FixedSizeListArray.from_arrays(rows[:length].astype(np.float32).ravel(), rows.shape[1])
            for rows in (take.states, take.actions)
        )
        return pyarrow.table(
            {
                "observation.state": state,
                "action": action,
                "next.success": steps + 1 == (take.success_step or 0),
                "next.done": steps == length - 1,
                "frame_step": frame_steps.astype(np.int64),
                "timestamp": (steps / self.fps).astype(np.float32),
                "frame_index": steps,
                "episode_index": np.full(length, len(self.episodes)),
                "index": self.rows + steps,
                "task_index": np.full(length, task),
            }
        )

    def _episode(self, take: Take, length: int) -> dict[str, Any]:
        file = self._file()
        return {
            "episode_index": len(self.episodes), "tasks": [self.scene.instruction(take)], "length": length,
            "data/chunk_index": 0, "data/file_index": file, "dataset_from_index": self.rows,
            "dataset_to_index": self.rows + length, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0,
            f"videos/{CAMERA}/chunk_index": 0, f"videos/{CAMERA}/file_index": file,
            f"videos/{CAMERA}/from_timestamp": self._shown / self.fps,
            f"videos/{CAMERA}/to_timestamp": (self._shown + length) / self.fps,
            **{f"besttake/{f.name}": v for f, v in zip(fields(TakeKey), astuple(take.key), strict=True)},
            "besttake/success": take.success,
        }  # fmt: skip

    def _keep_for_stats(self, take: Take, frames: Any, length: int) -> None:
        values = {"observation.state": take.states[:length], "action": take.actions[:length]}
        values[CAMERA] = (frames[:: max(1, len(frames) // 4)] / 255.0).reshape(-1, 3)[::16]
        for name, rows in values.items():
            self.values.setdefault(name, []).append(np.asarray(rows, np.float32))

    def _info(self) -> dict[str, Any]:
        assert self.shape is not None
        (action,), (state,), (height, width, _) = self.shape
        size = [height + height % 2, width + width % 2, 3]
        features: dict[str, Any] = {
            "observation.state": {"dtype": "float32", "shape": [state], "names": None},
            "action": {"dtype": "float32", "shape": [action], "names": None},
            CAMERA: {
                "dtype": "video", "shape": size, "names": ["height", "width", "channels"],
                "info": {
                    "video.fps": self.fps, "video.height": size[0], "video.width": size[1], "video.channels": 3,
                    "video.codec": "h264", "video.pix_fmt": "yuv420p", "video.is_depth_map": False, "has_audio": False,
                },
            },
        }  # fmt: skip
        plain = {"next.success": "bool", "next.done": "bool", "frame_step": "int64", **_COUNTERS}
        features |= {name: {"dtype": kind, "shape": [1], "names": None} for name, kind in plain.items()}
        return {
            "codebase_version": "v3.0", "robot_type": None, "total_episodes": len(self.episodes),
            "total_frames": self.rows, "total_tasks": len(self.tasks), "chunks_size": 1000, "fps": self.fps,
            "splits": {"train": f"0:{len(self.episodes)}"}, "data_path": _DATA, "video_path": _VIDEO,
            "features": features, "data_files_size_in_mb": 100, "video_files_size_in_mb": 200,
        }  # fmt: skip

    def _write(self, name: str, table: Any) -> None:
        from pyarrow import parquet

        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path)


def _stats(values: list[Any], picture: bool) -> dict[str, Any]:
    """Compute what LeRobot normalises by: min, max, mean, std and quantiles of each dimension over all rows."""
    rows = np.concatenate(values).astype(np.float64)
    known = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    known |= {f"q{q:02d}": np.percentile(rows, q, axis=0) for q in (1, 10, 50, 90, 99)}
    shape = (-1, 1, 1) if picture else (-1,)
    return {**{name: value.reshape(shape).tolist() for name, value in known.items()}, "count": [len(rows)]}


def _task_table(tasks: list[str]) -> Any:
    """Make a table of tasks as pandas writes an index, because LeRobot reads them with pandas."""
    import pyarrow

    index = "__index_level_0__"
    table = pyarrow.table({"task_index": pyarrow.array(range(len(tasks)), pyarrow.int64()), index: tasks})
    columns = [
        {"name": name, "field_name": stored, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for stored, name, kind, numpy in (
            ("task_index", "task_index", "int64", "int64"), (index, None, "unicode", "object")
        )
    ]  # fmt: skip
    about = {"index_columns": [index], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
    return table.replace_schema_metadata({"pandas": json.dumps(about)})
