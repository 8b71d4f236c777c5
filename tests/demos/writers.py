"""Data sets in the layouts that other projects publish, written from the same episodes.

Each function says whose layout it follows and where that is written down. An `Episode` has one observation more than
actions, because LIBERO's own files hold the observation after each action.

    episodes = [episode(0), episode(1)]
    hugging_face_libero(root, episodes)      # HuggingFaceVLA/libero, v3, image and image2
    openpi_libero(root, episodes)            # physical-intelligence/libero, v2.0, pictures in the table
    ipec_libero(root, episodes)              # IPEC-COMMUNITY/libero_*_no_noops_1.0.0_lerobot, v2.1, videos
    libero_hdf5(root, episodes)              # Lifelong-Robot-Learning/LIBERO scripts/create_dataset.py
    openvla_hdf5(root, episodes)             # openvla experiments/robot/libero/regenerate_libero_dataset.py
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]


@dataclass(frozen=True)
class Episode:
    """T actions (T, 7), -1 opens; T + 1 observations: states (T + 1, 8), upright pictures (T + 1, H, W, 3) by camera.

    States are the end effector's position, its axis-angle and two finger joints, as LIBERO's. ``simulator`` (T, n)
    are flattened simulator states before each action; ``joints`` (T + 1, 7) the arm's.
    """

    task: str
    instruction: str
    states: Array
    actions: Array
    pictures: Mapping[str, Array]
    joints: Array
    simulator: Array

    def __len__(self) -> int:
        return len(self.actions)


def episode(number: int, length: int = 24, side: int = 256) -> Episode:
    """A made-up episode of the LIBERO task ``number % 2``: it moves, closes at a third and opens at two thirds."""
    rng = np.random.default_rng(number)
    actions = rng.normal(0, 0.05, (length, 7))
    actions[: length // 2, 0], actions[length // 2 :, 1], actions[:, 2] = 0.6, -0.5, rng.uniform(-0.4, 0.4, length)
    grasp, release = length // 3 + number % 3, 2 * length // 3
    actions[:, 6] = np.where((np.arange(length) >= grasp) & (np.arange(length) < release), 1.0, -1.0)
    moved = np.concatenate([np.zeros((1, 6)), np.cumsum(actions[:, :6], axis=0)]) * 0.02
    opening = np.zeros(length + 1)
    opening[0] = 0.039
    for step in range(length):
        opening[step + 1] = np.clip(opening[step] - 0.008 * actions[step, 6], 0.012, 0.04)
    parts = [moved + np.array([0, 0, 1, 3, 0, 0]), opening[:, None], -opening[:, None]]
    states = np.concatenate(parts, axis=1).astype(np.float32)
    joints = rng.normal(0, 1, 7) + np.cumsum(rng.normal(0.02, 0.01, (length + 1, 7)), axis=0)
    simulator = np.concatenate(
        [0.05 * np.arange(length)[:, None], joints[:length], states[:length, 6:], rng.normal(0, 1, (length, 30))],
        axis=1,
    )
    pictures = {
        camera: _pictures(number, length + 1, side, shade) for camera, shade in (("agentview", 40), ("wrist", 160))
    }
    words = ("pick up the milk and place it in the basket", "put the bowl on the plate")[number % 2]
    return Episode(
        words.replace(" ", "_"), words, states, actions.astype(np.float32), pictures, joints, simulator
    )  # fmt: skip


def _pictures(number: int, count: int, side: int, shade: int) -> Array:
    """Brightness tells the step, a bar the episode, the top half is darker: any mix-up and any turn shows."""
    frames = np.full((count, side, side, 3), shade, np.uint8)
    for step in range(count):
        frames[step, :, :, 1] = 20 + 8 * step
        frames[step, : side // 2, :, 2] = 30
        frames[step, :, (8 * number) % side : (8 * number) % side + 8] = (250, 250, 0)
    return frames


def hugging_face_libero(root: Path, episodes: Sequence[Episode], videos: bool = False) -> Path:
    """LeRobotDataset v3.0 with the features, dtypes and rate of HuggingFaceVLA/libero.

    With ``videos`` as lerobot/libero, which differs in that. Layout: lerobot 0.6.1, ``lerobot/datasets``; that lerobot
    reads it is held by tests/integration/lerobot/test_dataset.py.
    """
    cameras = {"observation.images.image": "agentview", "observation.images.image2": "wrist"}
    names = ["height", "width", "channel"]
    features = {camera: _seen(episodes, "video" if videos else "image", names) for camera in cameras}
    features["observation.state"] = {"dtype": "float32", "shape": [8], "names": ["state"]}
    features["action"] = {"dtype": "float32", "shape": [7], "names": ["actions"]}
    return v3(root, episodes, cameras, features, fps=10, codec="libx264" if videos else None)


def openpi_libero(root: Path, episodes: Sequence[Episode]) -> Path:
    """LeRobotDataset v2.0 as openpi's examples/libero/convert_libero_data_to_lerobot.py has lerobot write it.

    ``meta/info.json`` follows the one of physical-intelligence/libero: panda, 10 fps, no videos, names of one word.
    """
    cameras = {"image": "agentview", "wrist_image": "wrist"}
    features = {camera: _seen(episodes, "image", ["height", "width", "channel"]) for camera in cameras}
    features["state"] = {"dtype": "float32", "shape": [8], "names": ["state"]}
    features["actions"] = {"dtype": "float32", "shape": [7], "names": ["actions"]}
    return v2(root, episodes, cameras, features, version="v2.0", fps=10, columns=("state", "actions"))


def ipec_libero(root: Path, episodes: Sequence[Episode], version: str = "v2.1") -> Path:
    """LeRobotDataset v2.x as IPEC-COMMUNITY/libero_*_no_noops_1.0.0_lerobot: videos, 20 fps, gripper 0 closed 1 open.

    The names of the features are those of any4lerobot's LIBERO_FEATURES. The gripper went through Open X's
    ``libero_dataset_transform``, which clips -1 … 1 to 0 … 1 and inverts it.
    """
    cameras = {"observation.images.image": "agentview", "observation.images.wrist_image": "wrist"}
    features = {camera: _seen(episodes, "video", ["height", "width", "rgb"]) for camera in cameras}
    motors = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]
    features["observation.state"] = {"dtype": "float32", "shape": [8], "names": {"motors": [*motors, "gripper"]}}
    features["action"] = {"dtype": "float32", "shape": [7], "names": {"motors": motors}}
    turned = [replace(e, actions=_with_gripper(e.actions, 1 - e.actions[:, 6].clip(0, 1))) for e in episodes]
    return v2(root, turned, cameras, features, version=version, fps=20, columns=("observation.state", "action"))


def libero_hdf5(root: Path, episodes: Sequence[Episode]) -> Path:
    """One file per task as LIBERO's scripts/create_dataset.py: step, then record; pictures as rendered, upside down."""
    return _hdf5(root, episodes, after=True)


def openvla_hdf5(root: Path, episodes: Sequence[Episode]) -> Path:
    """One file per task as OpenVLA's regenerate_libero_dataset.py: record, then step; no attributes."""
    return _hdf5(root, episodes, after=False)


def v3(
    root: Path,
    episodes: Sequence[Episode],
    cameras: Mapping[str, str],
    features: Mapping[str, Any],
    *,
    fps: int,
    codec: str | None,
    per_file: int = 1000,
    columns: tuple[str, str] = ("observation.state", "action"),
) -> Path:
    """A LeRobotDataset v3.0, ``per_file`` episodes in each table and video; without a ``codec``, pictures in tables."""
    tasks = list(dict.fromkeys(each.instruction for each in episodes))
    listed, total, videos = [], 0, cameras if codec else {}
    for file, start in enumerate(range(0, len(episodes), per_file)):
        own, first, name = episodes[start : start + per_file], 0, f"chunk-000/file-{file:03d}"
        for number, each in enumerate(own, start=start):
            entry: dict[str, Any] = {
                "episode_index": number, "tasks": [each.instruction], "length": len(each),
                "data/chunk_index": 0, "data/file_index": file, "dataset_from_index": total,
                "dataset_to_index": total + len(each), "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0,
            }  # fmt: skip
            for camera in videos:
                entry[f"videos/{camera}/chunk_index"], entry[f"videos/{camera}/file_index"] = 0, file
                entry[f"videos/{camera}/from_timestamp"] = first / fps
                entry[f"videos/{camera}/to_timestamp"] = (first + len(each)) / fps
            listed.append(entry)
            first, total = first + len(each), total + len(each)
        for camera, view in videos.items():
            pictures = np.concatenate([each.pictures[view][:-1] for each in own])
            write_video(root / "videos" / camera / f"{name}.mp4", pictures, fps, codec or "")
        rows = [_table(each, i, tasks, fps, columns, {} if codec else cameras) for i, each in enumerate(own, start)]
        _parquet(root / "data" / f"{name}.parquet", pa.concat_tables(rows))
    _parquet(root / "meta" / "episodes" / "chunk-000" / "file-000.parquet", pa.Table.from_pylist(listed))
    named = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "__index_level_0__": tasks})
    kinds = {"task_index": ("task_index", "int64", "int64"), "__index_level_0__": (None, "unicode", "object")}
    columns_of = [
        {"name": name, "field_name": stored, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for stored, (name, kind, numpy) in kinds.items()
    ]
    pandas = {
        "index_columns": ["__index_level_0__"], "column_indexes": [], "columns": columns_of, "pandas_version": "2.3.3",
    }  # fmt: skip
    _parquet(root / "meta" / "tasks.parquet", named.replace_schema_metadata({"pandas": json.dumps(pandas)}))
    info = {
        "codebase_version": "v3.0", "robot_type": "panda", "total_episodes": len(episodes), "total_frames": total,
        "total_tasks": len(tasks), "chunks_size": 1000, "fps": fps, "splits": {"train": f"0:{len(episodes)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4" if codec else None,
        "features": {**features, **_counters()}, "data_files_size_in_mb": 100, "video_files_size_in_mb": 500,
    }  # fmt: skip
    (root / "meta" / "info.json").write_text(json.dumps(info, indent=4))
    (root / "meta" / "stats.json").write_text(json.dumps(_stats(episodes, columns)))
    return root


def v2(
    root: Path,
    episodes: Sequence[Episode],
    cameras: Mapping[str, str],
    features: Mapping[str, Any],
    *,
    version: str,
    fps: int,
    columns: tuple[str, str],
) -> Path:
    """A LeRobotDataset v2.0 or v2.1: a table, and videos, per episode, as lerobot wrote them before 0.4."""
    videos = any(feature["dtype"] == "video" for feature in features.values())
    tasks = list(dict.fromkeys(each.instruction for each in episodes))
    for number, each in enumerate(episodes):
        table = _table(each, number, tasks, fps, columns, {} if videos else cameras)
        _parquet(root / "data" / "chunk-000" / f"episode_{number:06d}.parquet", table)
        for camera, own in cameras.items() if videos else ():
            path = root / "videos" / "chunk-000" / camera / f"episode_{number:06d}.mp4"
            write_video(path, each.pictures[own][:-1], fps)
    info = {
        "codebase_version": version, "robot_type": "panda", "total_episodes": len(episodes),
        "total_frames": sum(map(len, episodes)), "total_tasks": len(tasks),
        "total_videos": len(episodes) * len(cameras) * videos, "total_chunks": 1, "chunks_size": 1000, "fps": fps,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {**features, **_counters()},
    }  # fmt: skip
    meta = root / "meta"
    meta.mkdir(exist_ok=True)
    (meta / "info.json").write_text(json.dumps(info, indent=4))
    listed = [{"episode_index": i, "tasks": [each.instruction], "length": len(each)} for i, each in enumerate(episodes)]
    _json_lines(meta / "episodes.jsonl", listed)
    _json_lines(meta / "tasks.jsonl", [{"task_index": i, "task": task} for i, task in enumerate(tasks)])
    if version == "v2.0":
        (meta / "stats.json").write_text(json.dumps(_stats(episodes, columns)))
    else:
        per_episode = [{"episode_index": i, "stats": _stats([each], columns)} for i, each in enumerate(episodes)]
        _json_lines(meta / "episodes_stats.jsonl", per_episode)
    return root


def write_video(path: Path, pictures: Array, fps: int, codec: str = "libx264") -> None:
    """``pictures`` as a video of the least size, with few key frames between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps, options={"crf": "10", "g": "2"})
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, fps)
        for image in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(image))))
        container.mux(stream.encode())


def png(image: Array, kind: str = "PNG", **options: Any) -> bytes:
    """``image`` as the bytes of a PNG file, or of another kind."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format=kind, **(options or {"compress_level": 1}))
    return buffer.getvalue()


def _hdf5(root: Path, episodes: Sequence[Episode], after: bool) -> Path:
    import h5py

    root.mkdir(parents=True, exist_ok=True)
    for task in dict.fromkeys(each.task for each in episodes):
        own = [each for each in episodes if each.task == task]
        with h5py.File(root / f"{task}_demo.hdf5", "w") as file:
            data = file.create_group("data")
            if after:
                words = {"problem_name": "libero_floor", "domain_name": "robosuite"}
                data.attrs["env_name"] = "Libero_Floor_Manipulation"
                data.attrs["problem_info"] = json.dumps({**words, "language_instruction": own[0].instruction})
                data.attrs["macros_image_convention"] = "opengl"
                data.attrs["bddl_file_name"], data.attrs["bddl_file_content"] = f"{task}.bddl", "(define (problem x))"
                data.attrs["env_args"] = json.dumps({"env_name": "Libero_Floor", "env_kwargs": {"control_freq": 20}})
                data.attrs["num_demos"], data.attrs["total"] = len(own), sum(map(len, own))
            for number, each in enumerate(own):
                _hdf5_demo(data.create_group(f"demo_{number}"), each, after)
    return root


def _hdf5_demo(group: Any, each: Episode, after: bool) -> None:
    seen = slice(1, None) if after else slice(0, len(each))
    states, ends = each.states[seen].astype(np.float64), np.zeros(len(each), np.uint8)
    ends[-1] = 1
    group["obs/gripper_states"], group["obs/joint_states"] = states[:, 6:], each.joints[seen]
    group["obs/ee_states"], group["obs/ee_pos"], group["obs/ee_ori"] = states[:, :6], states[:, :3], states[:, 3:6]
    for name, own in (("agentview_rgb", "agentview"), ("eye_in_hand_rgb", "wrist")):
        group[f"obs/{name}"] = each.pictures[own][seen][:, ::-1, ::-1]
    group["actions"], group["states"] = each.actions.astype(np.float64), each.simulator
    group["robot_states"] = np.concatenate([states[:, 6:], states[:, :3], np.zeros((len(each), 4))], axis=1)
    group["rewards"] = group["dones"] = ends
    if after:
        group.attrs["num_samples"], group.attrs["init_state"] = len(each), each.simulator[0]


def _table(
    each: Episode, number: int, tasks: Sequence[str], fps: int, columns: tuple[str, str], cameras: Mapping[str, str]
) -> pa.Table:
    """The rows of an episode, pictures of ``cameras`` included, as lerobot has `datasets` write them."""
    length = len(each)
    table = {
        columns[0]: pa.array(each.states[:length].tolist(), pa.list_(pa.float32(), 8)),
        columns[1]: pa.array(each.actions.tolist(), pa.list_(pa.float32(), 7)),
        "timestamp": pa.array(np.arange(length, dtype=np.float32) / fps),
        "frame_index": pa.array(np.arange(length)), "episode_index": pa.array(np.full(length, number)),
        "index": pa.array(1000 * number + np.arange(length)),
        "task_index": pa.array(np.full(length, tasks.index(each.instruction))),
    }  # fmt: skip
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    for camera, own in cameras.items():
        cells = [{"bytes": png(image), "path": f"frame_{i:06d}.png"} for i, image in enumerate(each.pictures[own][:-1])]
        table[camera] = pa.array(cells, kind)
    return pa.table(table)


def _seen(episodes: Sequence[Episode], dtype: str, names: list[str]) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(next(iter(episodes[0].pictures.values())).shape[1:]), "names": names}


def _counters() -> dict[str, Any]:
    names = ("timestamp", "frame_index", "episode_index", "index", "task_index")
    return {n: {"dtype": "float32" if n == "timestamp" else "int64", "shape": [1], "names": None} for n in names}


def _stats(episodes: Sequence[Episode], columns: tuple[str, str]) -> dict[str, Any]:
    stats = {}
    for column, rows in zip(
        columns, (np.concatenate([e.states[:-1] for e in episodes]), np.concatenate([e.actions for e in episodes])),
        strict=True,
    ):  # fmt: skip
        numbers = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
        stats[column] = {**{name: each.tolist() for name, each in numbers.items()}, "count": [len(rows)]}
    return stats


def _parquet(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _json_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rlds_libero(root: Path, episodes: Sequence[Episode], shards: int = 2) -> Path:
    """RLDS as OpenVLA's modified LIBERO: the features of openvla/modified_libero_rlds, in the layout of tfds 4.9.

    The gripper stays -1 open, 1 closed, pictures are upright. tests/demos/fixtures/rlds was written by tfds itself.
    """
    folder = root / "libero_object_no_noops" / "1.0.0"
    folder.mkdir(parents=True)
    side = list(next(iter(episodes[0].pictures.values())).shape[1:])

    def tensor(dtype: str, *shape: int) -> dict[str, Any]:
        sizes = {"dimensions": [str(each) for each in shape]} if shape else {}
        return {"tensor": {"shape": sizes, "dtype": dtype, "encoding": "none"}}

    image = {
        "image": {"shape": {"dimensions": [str(each) for each in side]}, "dtype": "uint8", "encodingFormat": "png"}
    }
    observation = {
        "image": image,
        "wrist_image": image,
        "state": tensor("float32", 8),
        "joint_state": tensor("float32", 7),
    }
    step = {
        "observation": {"featuresDict": {"features": observation}}, "action": tensor("float32", 7),
        "is_first": tensor("bool"), "is_last": tensor("bool"), "is_terminal": tensor("bool"),
        "language_instruction": {"text": {}},
    }  # fmt: skip
    steps = {"sequence": {"feature": {"featuresDict": {"features": step}}, "length": "-1"}}
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": {"steps": steps}}}))
    (folder / "dataset_info.json").write_text(json.dumps({"name": "libero_object_no_noops", "version": "1.0.0"}))
    for shard in range(shards):
        path = folder / f"libero_object_no_noops-train.tfrecord-{shard:05d}-of-{shards:05d}"
        path.write_bytes(b"".join(tfrecord(_example(each)) for each in episodes[shard::shards]))
    return root / "libero_object_no_noops"


def tfrecord(data: bytes) -> bytes:
    """``data`` as a record."""
    from google_crc32c import value as crc32c

    def masked(part: bytes) -> bytes:
        crc = crc32c(part)
        return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")

    length = len(data).to_bytes(8, "little")
    return length + masked(length) + data + masked(data)


def _example(each: Episode) -> bytes:
    """A tf.Example by hand: field 1 of the message, a map of names to lists."""
    ends, length = np.zeros(len(each), int), len(each)
    first, last = ends.copy(), ends.copy()
    first[0], last[-1] = 1, 1
    lists: dict[str, bytes] = {
        "steps/action": _floats(each.actions), "steps/observation/state": _floats(each.states[:length]),
        "steps/observation/joint_state": _floats(each.joints[:length]),
        "steps/observation/image": _texts([png(p) for p in each.pictures["agentview"][:length]]),
        "steps/observation/wrist_image": _texts([png(p) for p in each.pictures["wrist"][:length]]),
        "steps/language_instruction": _texts([each.instruction.encode()] * length),
        "steps/is_first": _wholes(first), "steps/is_last": _wholes(last), "steps/is_terminal": _wholes(last),
    }  # fmt: skip
    entries = (_field(1, _field(1, name.encode()) + _field(2, value)) for name, value in lists.items())
    return _field(1, b"".join(entries))


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _texts(values: Sequence[bytes]) -> bytes:
    return _field(1, b"".join(_field(1, value) for value in values))


def _floats(values: Array) -> bytes:
    return _field(2, _field(1, np.asarray(values, "<f4").tobytes()))


def _wholes(values: Array) -> bytes:
    return _field(3, _field(1, b"".join(_varint(int(value)) for value in values)))


def maniskill(path: Path, episodes: Sequence[Episode], failed: Sequence[int] = ()) -> Path:
    """A trajectory of ManiSkill 3 with its JSON: mani_skill/utils/wrappers/record.py, obs_mode rgb.

    One observation more than actions; a panda's qpos of 9 numbers, the fingers last; +1 opens.
    """
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    listed = []
    with h5py.File(path, "w") as file:
        for number, each in enumerate(episodes):
            group = file.create_group(f"traj_{number}", track_order=True)
            group["actions"] = _with_gripper(each.actions, -each.actions[:, 6])
            pose = np.concatenate([each.states[:, :3], np.tile([0.0, 1.0, 0.0, 0.0], (len(each) + 1, 1))], axis=1)
            group["obs/extra/tcp_pose"] = pose.astype(np.float32)
            fingers = np.repeat(each.states[:, 6:7], 2, axis=1)
            group["obs/agent/qpos"] = np.concatenate([each.joints, fingers], axis=1).astype(np.float32)
            for camera, own in (("base_camera", "agentview"), ("hand_camera", "wrist")):
                group[f"obs/sensor_data/{camera}/rgb"] = each.pictures[own]
            for name in ("terminated", "truncated", "success"):
                group[name] = np.arange(len(each)) == len(each) - 1
            listed.append({"episode_id": number, "episode_seed": number, "control_mode": "pd_ee_delta_pose",
                           "elapsed_steps": len(each), "success": number not in failed})  # fmt: skip
    info = {"env_id": "PickCube-v1", "env_kwargs": {"obs_mode": "rgb", "control_mode": "pd_ee_delta_pose"}}
    about = {"env_info": {**info, "max_episode_steps": 50}, "source_type": "motionplanning", "episodes": listed}
    path.with_suffix(".json").write_text(json.dumps(about))
    return path


def aloha(root: Path, episodes: Sequence[Episode], compressed: bool = False) -> Path:
    """ALOHA's episodes: aloha/aloha_scripts/record_episodes.py; ``compressed`` as Mobile ALOHA pads JPEG bytes."""
    import h5py

    root.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(episodes):
        with h5py.File(root / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"], file.attrs["compress"] = False, compressed
            length = len(each)
            file["action"] = np.concatenate([each.actions, each.actions], axis=1)
            file["observations/qpos"] = file["observations/qvel"] = np.tile(each.joints[:length], (1, 2))
            for camera, own in (("cam_high", "agentview"), ("cam_left_wrist", "wrist")):
                frames = each.pictures[own][:length]
                if compressed:
                    # cv2.imencode takes the RGB array for BGR, so red and blue are exchanged in the file
                    encoded = [
                        np.frombuffer(png(frame[..., ::-1], "JPEG", quality=95, subsampling=0), np.uint8)
                        for frame in frames
                    ]
                    size = max(map(len, encoded))
                    frames = np.stack([np.pad(data, (0, size - len(data))) for data in encoded])
                file[f"observations/images/{camera}"] = frames
    return root


def droid(root: Path, episodes: Sequence[Episode], failed: Sequence[int] = (), unfinished: Sequence[int] = ()) -> Path:
    """DROID's raw folders: droid/data_loading and the R2D2 schema; paths in the metadata begin at the lab."""
    import h5py

    for number, each in enumerate(episodes):
        state = "failure" if number in failed else "success"
        folder = root / "AUTOLab" / state / "2023-07-07" / f"Fri_Jul__7_09:42:2{number}_2023"
        folder.mkdir(parents=True)
        with h5py.File(folder / "trajectory.h5", "w") as file:
            length = len(each)
            file["action/cartesian_velocity"] = each.actions[:, :6].astype(np.float64)
            file["action/gripper_position"] = (each.actions[:, 6] + 1) / 2
            file["observation/robot_state/cartesian_position"] = each.states[:length, :6].astype(np.float64)
            file["observation/robot_state/gripper_position"] = 1 - each.states[:length, 6].astype(np.float64) / 0.04
        about: dict[str, Any] = {"uuid": f"AUTOLab+{number}", "lab": "AUTOLab", "success": number not in failed}
        about |= {"current_task": each.instruction, "trajectory_length": length}
        for camera, own, serial in (("wrist", "wrist", "18026681"), ("ext1", "agentview", "22008760")):
            about[f"{camera}_cam_serial"] = serial
            about[f"{camera}_mp4_path"] = f"{state}/2023-07-07/{folder.name}/recordings/MP4/{serial}.mp4"
            write_video(folder / "recordings" / "MP4" / f"{serial}.mp4", each.pictures[own][:length], 15)
        if number not in unfinished:
            (folder / f"metadata_AUTOLab+{number}.json").write_text(json.dumps(about))
    return root


def steps_shown(frames: Array, pictures: Array) -> list[int]:
    """Which step each of the frames shows: a codec changes them, and small ones more than from step to step."""
    return [int(np.argmin([np.abs(frame - each.astype(int)).mean() for each in pictures])) for frame in frames]


def _with_gripper(actions: Array, commands: Array) -> Array:
    return np.concatenate([actions[:, :6], commands[:, None]], axis=1).astype(np.float32)
