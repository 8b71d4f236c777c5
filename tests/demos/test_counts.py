"""What metadata promise is counted: a copy that was interrupted still reads, and is no whole data set."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import writers
import zarr

from besttake import registry
from besttake.demos.build import build
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError

FIXTURES = Path(__file__).parent / "fixtures"
DROID_H5 = "AUTOLab/success/2023-07-07/Fri_Jul__7_09:42:21_2023/trajectory.h5"
EPISODES = [writers.episode(number, length=8, side=16) for number in range(2)]


def rows_missing(root):
    path = root / "data" / "chunk-000" / "episode_000001.parquet"
    pq.write_table(pq.read_table(path).slice(0, 5), path)


def a_row_twice(root):
    path = root / "data" / "chunk-000" / "episode_000001.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take([0, 1, 2, 3, 4, 5, 6, 6]), path)


def first_episode_listed(times):
    def list_it(root):
        path = root / "meta" / "episodes.jsonl"
        path.write_text(times * (path.read_text().split("\n")[0] + "\n"))

    return list_it


def narrow_actions(root):
    path = root / "data" / "chunk-000" / "episode_000001.parquet"
    table = pq.read_table(path)
    column = pa.array([row.as_py()[:6] for row in table.column("actions")], pa.list_(pa.float32()))
    pq.write_table(table.set_column(table.column_names.index("actions"), "actions", column), path)


def a_short_video(root):
    (path,) = root.glob("videos/*/observation.images.wrist_image/episode_000001.mp4")
    writers.write_video(path, EPISODES[1].pictures["wrist"][:5], 20)


def hdf5_chunk(root, name="data/demo_0/obs/eye_in_hand_rgb"):
    """Rewritten in pieces of two rows, the last of which is never written."""
    path = sorted(root.iterdir())[1]
    with h5py.File(path, "a") as file:
        values = file[name][()]
        del file[name]
        made = file.create_dataset(name, values.shape, values.dtype, chunks=(2, *values.shape[1:]))
        made[:6] = values[:6]


def hdf5_contiguous(root):
    path = sorted(root.iterdir())[1]
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
        file.create_dataset("data/demo_0/actions", (8, 7), np.float64)


def hdf5_frames(root):
    with h5py.File(sorted(root.iterdir())[1], "a") as file:
        values = file["data/demo_0/obs/eye_in_hand_rgb"][:5]
        del file["data/demo_0/obs/eye_in_hand_rgb"]
        file["data/demo_0/obs/eye_in_hand_rgb"] = values


def hdf5_samples(root):
    path = sorted(root.iterdir())[1]
    with h5py.File(path, "a") as file:
        file["data/demo_0"].attrs["num_samples"] = 12


def maniskill_episode(root):
    with h5py.File(root, "a") as file:
        del file["traj_1"]


def aloha_chunk(root):
    with h5py.File(root / "episode_1.hdf5", "a") as file:
        del file["observations/images/cam_left_wrist"]
        file.create_dataset("observations/images/cam_left_wrist", (8, 16, 16, 3), np.uint8, chunks=(2, 16, 16, 3))


def droid_steps(root):
    path = next(root.rglob("*_09:42:21_2023/metadata*.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "trajectory_length": 9}))


def tfrecord_cut(root):
    path = next(root.rglob("*train.tfrecord-00000-of-00002"))
    first = int.from_bytes(path.read_bytes()[:8], "little") + 16
    path.write_bytes(path.read_bytes()[:first])


def spare_chunk(root):
    """An array with room for more steps than there are: a piece at its end does not stand for the one that is lost."""
    group = zarr.open_group(str(root), mode="r+")
    values, each = group["data/state"][:], group["data/state"]
    each.resize((len(values) + each.chunks[0], *values.shape[1:]))
    each[len(values) :] = 1
    (root / "data/state/1.0").unlink()


def chunk(name):
    return lambda root: (root / name).unlink()


def cut(name):
    """A file that was copied to its half."""

    def halve(root):
        (path,) = root.glob(name)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return halve


def shards(root, episodes):
    """A replay buffer of zarr 3 with two cameras, whose pieces are in shards; one that is empty reads as zeros."""
    whole, made = zarr.open_group(str(FIXTURES / "replay.zarr"), mode="r"), zarr.open_group(str(root), mode="w")
    for name in ("data/img", "data/wrist", "data/state", "data/action", "meta/episode_ends"):
        values = whole[name.replace("wrist", "img")][:]
        half = (-(-len(values) // 4), *values.shape[1:])
        made.create_array(name, data=values, chunks=half, shards=(2 * half[0], *half[1:]))
    return root


def recorded(root, episodes):
    """A folder of pictures with states alone."""
    (root / "pour").mkdir(parents=True)
    for step, shown in enumerate(episodes[0].pictures["wrist"][:8]):
        (root / "pour" / f"{step}.png").write_bytes(writers.png(shown))
    (root / "pour.csv").write_text("state_0\n" + "1.5\n" * 8)
    return root


def rlds(root, episodes):
    return Path(shutil.copytree(FIXTURES / "rlds", root)) / "libero_object_no_noops"


def replay(root, episodes):
    return Path(shutil.copytree(FIXTURES / "replay.zarr", root))


BROKEN = [
    ("lerobot", writers.openpi_libero, rows_missing, "5 of the 8 rows .*episode_000001.parquet"),
    ("lerobot", writers.openpi_libero, a_row_twice, "rows in episode_000001.parquet that are not its steps 0 to 7"),
    ("lerobot", writers.openpi_libero, first_episode_listed(1), "1 of the 2 episodes .*meta/info.json"),
    ("lerobot", writers.openpi_libero, first_episode_listed(2), "1 of the 2 episodes .*meta/info.json"),
    ("lerobot", writers.openpi_libero, narrow_actions, "6 of the 7 numbers of actions .*info.json"),
    ("lerobot", writers.ipec_libero, a_short_video, "5 of the 8 frames .*episode_000001.mp4"),
    ("hdf5", writers.libero_hdf5, hdf5_chunk, "3 of the 4 chunks .*eye_in_hand_rgb"),
    ("hdf5", writers.libero_hdf5, hdf5_contiguous, "0 of the 56 numbers .*actions"),
    ("hdf5", writers.libero_hdf5, hdf5_frames, "4 of the 7 frames .*its actions"),
    ("hdf5", writers.libero_hdf5, hdf5_samples, "8 of the 12 actions .*demo_0"),
    ("maniskill", lambda r, e: writers.maniskill(r / "t.h5", e), maniskill_episode, "has no group traj_1"),
    ("aloha", writers.aloha, aloha_chunk, "0 of the 4 chunks .*cam_left_wrist"),
    (
        "maniskill",
        lambda r, e: writers.maniskill(r / "t.h5", e),
        lambda r: r.with_suffix(".json").unlink(),
        "no t.json",
    ),
    ("droid", writers.droid, droid_steps, "8 of the 9 steps .*metadata of AUTOLab"),
    ("droid", writers.droid, cut("**/*_09:42:21_2023/metadata*.json"), "42:21_2023 has metadata that are damaged"),
    ("droid", writers.droid, chunk(DROID_H5), "42:21_2023 has no file trajectory.h5"),
    ("rlds", rlds, tfrecord_cut, "1 of the 2 records .*train.tfrecord-00000-of-00002"),
    ("zarr", replay, chunk("data/img/1.0.0.0"), r"3 of the 4 pieces .*data/img.*\?missing=fill"),
    ("zarr", replay, chunk("data/state/3.0"), "3 of the 4 pieces .*data/state"),
    ("zarr", replay, lambda root: shutil.rmtree(root / "meta"), "is not a replay buffer .*episode_ends"),
    ("zarr", replay, spare_chunk, "3 of the 4 pieces .*data/state"),
    ("zarr", replay, chunk("meta/episode_ends/0"), "0 of the 1 pieces .*meta/episode_ends"),
    ("zarr", replay, chunk("data/action/.zarray"), "data/action has no .zarray"),
    ("zarr", shards, lambda root: (root / "data/state/c/1/0").write_bytes(b""), "1 of the 2 pieces .*data/state"),
    ("zarr", shards, chunk("data/img/c/0/0/0/0"), "1 of the 2 pieces .*data/img"),
    ("rlds", rlds, cut("**/dataset_info.json"), "dataset_info.json is damaged"),
    ("video", recorded, chunk("pour/7.png"), "7 of the 8 frames .*its states"),
]


@pytest.mark.parametrize(("scheme", "write", "lose", "says"), BROKEN)
def test_what_is_promised_and_missing_is_named_with_its_file_and_count(tmp_path, scheme, write, lose, says):
    root = write(tmp_path / "set", EPISODES)
    build(registry.demos(f"{scheme}:{root}"), Hog(), tmp_path / "whole")
    lose(root)
    with pytest.raises(LibraryError, match=says) as error:
        build(registry.demos(f"{scheme}:{root}"), Hog(), tmp_path / "library")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "library").exists()


@pytest.mark.parametrize("kind", ["mp4", "mkv"])
def test_a_video_that_was_cut_between_two_frames_is_noticed(tmp_path, kind):
    import av

    name, options = f"whole.{kind}", {"movflags": "faststart"} if kind == "mp4" else {}
    with av.open(str(tmp_path / name), "w", options=options) as container:
        stream = container.add_stream("libx264", rate=10, options={"g": "1", "bf": "0"})
        stream.height, stream.width, stream.pix_fmt = 16, 16, "yuv420p"
        for image in EPISODES[0].pictures["wrist"][:8]:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(image))))
        container.mux(stream.encode())
    with av.open(str(tmp_path / name)) as container:
        ends = [packet.pos + packet.size for packet in container.demux(video=0) if packet.size]
    data = (tmp_path / name).read_bytes()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(data)
    (tmp_path / "in" / f"cut.{kind}").write_bytes(data[: ends[4]])
    cut, whole = registry.demos(f"video:{tmp_path / 'in'}")
    assert len(whole.frames) == 8
    assert re.search(f"[45] of the 8 frames .*cut.{kind}|damaged video cut.{kind}", cut.reason)


def test_pieces_that_a_writer_left_out_because_they_are_empty_can_be_allowed(tmp_path):
    """zarr leaves out pieces of nothing but the fill value unless it is told otherwise."""
    root = replay(tmp_path / "a.zarr", EPISODES)
    group = zarr.open_group(str(root), mode="r+")
    shape, pieces = group["data/action"].shape, group["data/action"].chunks
    del group["data/action"]
    made = group.create_array("data/action", shape=shape, chunks=pieces, dtype="f4", fill_value=0)
    made[:] = 0
    assert made.nchunks_initialized == 0
    with pytest.raises(LibraryError, match=r"0 of the 4 pieces .*data/action"):
        registry.demos(f"zarr:{root}")
    source = registry.demos(f"zarr:{root}?missing=fill")
    assert all((demo.actions == 0).all() for demo in source)
