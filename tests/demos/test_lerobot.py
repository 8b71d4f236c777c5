"""The reader against the layout that lerobot 0.6 writes; in tests/integration/lerobot it is lerobot that writes."""

from __future__ import annotations

import io
import json
import sys
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from besttake import registry
from besttake.demos.build import Options, build
from besttake.demos.library import Library
from besttake.encoders.hog import Hog
from besttake.errors import ComponentError, LibraryError, MissingExtra

FPS = 10
CAMERAS = ("observation.images.top", "observation.images.wrist")


def picture(episode, step, camera=1):
    """Brightness tells the step and a bar the episode, so that any mix-up shows."""
    image = np.full((64, 64, 3), 20 + 8 * step + camera, np.uint8)
    image[:, 8 * episode : 8 * episode + 8] = (0, 255, 0)
    return image


def write_video(path, pictures, codec):
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=FPS, options={"crf": "10", "g": "2"})
        stream.width, stream.height, stream.pix_fmt, stream.time_base = 64, 64, "yuv420p", Fraction(1, FPS)
        for image in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
        container.mux(stream.encode())


def write(root, lengths=(20, 15, 12), per_file=2, codec="libsvtav1", names=True, task=lambda e: f"task {e % 2}"):
    """A LeRobotDataset v3 with ``per_file`` episodes in each parquet and video file; ``codec=None`` stores pictures."""
    kind = "image" if codec is None else "video"
    features = {
        "observation.state": {"dtype": "float32", "shape": [4], "names": ["x", "y", "z", "opening"] if names else None},
        "action": {"dtype": "float32", "shape": [3], "names": {"motors": ["dx", "dy", "gripper"]} if names else None},
        **{camera: {"dtype": kind, "shape": [64, 64, 3], "names": None} for camera in CAMERAS},
    }
    info = {
        "codebase_version": "v3.0", "fps": FPS, "features": features, "total_episodes": len(lengths),
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }  # fmt: skip
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (root / "data" / "chunk-000").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    episodes = []
    for file, first in enumerate(range(0, len(lengths), per_file)):
        rows: dict[str, Any] = {k: [] for k in ("observation.state", "action", "episode_index", "frame_index")}
        seconds = 0.0
        stored: dict[str, Any] = {camera: [] for camera in CAMERAS}
        for episode in range(first, min(first + per_file, len(lengths))):
            rng, length = np.random.default_rng(episode), lengths[episode]
            entry = {
                "episode_index": episode, "tasks": [task(episode)], "length": length,
                "data/chunk_index": 0, "data/file_index": file, "stats/action/mean": [0.0],
            }  # fmt: skip
            for camera in CAMERAS:
                entry[f"videos/{camera}/chunk_index"], entry[f"videos/{camera}/file_index"] = 0, file
                entry[f"videos/{camera}/from_timestamp"] = seconds
            episodes.append(entry)
            seconds += length / FPS
            for step in range(length):
                rows["observation.state"].append(rng.random(4).astype(np.float32).tolist())
                rows["action"].append(rng.random(3).astype(np.float32).tolist())
                rows["episode_index"].append(episode)
                rows["frame_index"].append(step)
                for number, camera in enumerate(CAMERAS):
                    stored[camera].append(picture(episode, step, number))
        columns = {
            "observation.state": pa.array(rows["observation.state"], pa.list_(pa.float32(), 4)),
            "action": pa.array(rows["action"], pa.list_(pa.float32(), 3)),
            "episode_index": pa.array(rows["episode_index"]), "frame_index": pa.array(rows["frame_index"]),
        }  # fmt: skip
        for camera, pictures in stored.items():
            if codec is None:
                columns[camera] = pa.array(
                    [{"bytes": png(p), "path": f"frame-{i}.png"} for i, p in enumerate(pictures)]
                )
            elif pictures:
                write_video(root / "videos" / camera / "chunk-000" / f"file-{file:03d}.mp4", pictures, codec)
        pq.write_table(pa.table(columns), root / "data" / "chunk-000" / f"file-{file:03d}.parquet")
    pq.write_table(pa.Table.from_pylist(episodes), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    return root


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("codec", ["libsvtav1", "libx264", None])
def test_several_episodes_per_file_and_several_files_are_read_back(tmp_path, codec):
    source = registry.demos(f"lerobot:{write(tmp_path / 'set', codec=codec)}")
    demos = list(source)
    assert [(d.id, d.task, len(d.frames)) for d in demos] == [
        ("episode 0", "task 0", 20), ("episode 1", "task 1", 15), ("episode 2", "task 0", 12),
    ]  # fmt: skip
    for episode, demo in enumerate(demos):
        rng = np.random.default_rng(episode)
        for step in range(len(demo.actions)):
            np.testing.assert_array_equal(demo.states[step], rng.random(4).astype(np.float32))
            np.testing.assert_array_equal(demo.actions[step], rng.random(3).astype(np.float32))
            error = np.abs(demo.frames[step].astype(int) - picture(episode, step)).mean()
            # The next frame is 7 levels brighter on average: codec error stays well below a mix-up of frames.
            assert error < (2.5 if codec else 1e-9)


def test_the_wrist_camera_is_the_default_and_another_can_be_named(tmp_path):
    root = write(tmp_path / "set", codec=None)
    assert registry.demos(f"lerobot:{root}").camera == "observation.images.wrist"
    for name in ("top", "observation.images.top"):
        source = registry.demos(f"lerobot:{root}?camera={name}")
        assert source.camera == "observation.images.top"
        np.testing.assert_array_equal(next(iter(source)).frames[3], picture(0, 3, 0))
    with pytest.raises(LibraryError, match=r"no camera side; it has observation.images.top, observation.images.wrist"):
        registry.demos(f"lerobot:{root}?camera=side")


def test_dimensions_come_from_the_names_of_the_features_and_are_not_guessed_without(tmp_path):
    named = registry.demos(f"lerobot:{write(tmp_path / 'named', codec=None)}")
    assert (named.gripper_dim, named.eef_dims, named.fps) == (2, (0, 1, 2), 10)
    bare = registry.demos(f"lerobot:{write(tmp_path / 'bare', codec=None, names=False)}")
    assert (bare.gripper_dim, bare.eef_dims) == (None, None)


def test_a_library_is_built_from_it_by_task(tmp_path):
    made = build(registry.demos(f"lerobot:{write(tmp_path / 'set')}"), Hog(), tmp_path / "library", Options(stride=5))
    assert made.tasks == ("task 0", "task 1")
    assert made.view("task_1").matched == "task"
    assert made.head.camera == "observation.images.wrist"


def test_only_the_episodes_asked_for_are_read(tmp_path):
    root = write(tmp_path / "set", codec=None)
    assert [d.id for d in registry.demos(f"lerobot:{root}?episodes=1:")] == ["episode 1", "episode 2"]
    assert [d.id for d in registry.demos(f"lerobot:{root}?episodes=2")] == ["episode 2"]
    with pytest.raises(LibraryError, match="a range such as"):
        registry.demos(f"lerobot:{root}?episodes=all")


def test_a_damaged_video_costs_its_own_episodes_only(tmp_path):
    root = write(tmp_path / "set", lengths=(12, 12, 12), per_file=1)
    path = root / "videos" / CAMERAS[1] / "chunk-000" / "file-001.mp4"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(LibraryError, match=r"episode 1 has a damaged video file-001.mp4.*`skip_bad`"):
        build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library")
    made = build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert [d.id for d in made.demos] == ["episode 0", "episode 2"]
    assert [b.id for b in made.head.left_out] == ["episode 1"]
    path.unlink()
    made = build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert "has no video file" in made.head.left_out[0].reason


def test_a_video_shorter_than_its_episode_is_noticed(tmp_path):
    root = write(tmp_path / "set", lengths=(12, 12), per_file=1)
    write_video(
        root / "videos" / CAMERAS[1] / "chunk-000" / "file-001.mp4", [picture(1, t) for t in range(7)], "libx264"
    )
    made = build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert made.head.left_out[0].reason == "has only 7 of its 12 frames in file-001.mp4"


def test_damaged_data_and_pictures_cost_their_own_episodes_only(tmp_path):
    root = write(tmp_path / "set", lengths=(12, 12, 12), per_file=1, codec=None)
    (root / "data" / "chunk-000" / "file-002.parquet").write_bytes(b"PAR1 not really")
    made = build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert [d.id for d in made.demos] == ["episode 0", "episode 1"]
    assert "file-002.parquet" in made.head.left_out[0].reason


def test_what_is_not_such_a_data_set_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LibraryError, match=r"no meta/info.json"):
        registry.demos(f"lerobot:{tmp_path / 'empty'}")
    old = write(tmp_path / "old", codec=None)
    info = json.loads((old / "meta" / "info.json").read_text())
    (old / "meta" / "info.json").write_text(json.dumps({**info, "codebase_version": "v1.6"}))
    with pytest.raises(LibraryError, match=r"v1.6; v2.0, v2.1 and v3.0 can be read"):
        registry.demos(f"lerobot:{old}")
    (old / "meta" / "info.json").write_text("{}")
    with pytest.raises(LibraryError, match="damaged"):
        registry.demos(f"lerobot:{old}")
    with pytest.raises(LibraryError, match="no feature torque"):
        registry.demos(f"lerobot:{write(tmp_path / 'new', codec=None)}?action=torque")
    with pytest.raises(LibraryError, match="no such directory"):
        registry.demos("lerobot:/nowhere/at/all")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match="huggingface_hub"):
        registry.demos("lerobot:org/name")


def test_the_fingerprint_changes_with_the_data_and_the_camera(tmp_path):
    one = write(tmp_path / "one", codec=None)
    prints = {
        registry.demos(f"lerobot:{one}").fingerprint,
        registry.demos(f"lerobot:{one}?camera=top").fingerprint,
        registry.demos(f"lerobot:{one}?episodes=0:2").fingerprint,
        registry.demos(f"lerobot:{write(tmp_path / 'two', codec=None, lengths=(20, 15, 13))}").fingerprint,
    }
    assert len(prints) == 4
    assert registry.demos(f"lerobot:{one}").fingerprint in prints


@pytest.mark.parametrize("codec", ["libx264", None])
def test_a_policy_can_be_shown_every_camera_at_full_size(tmp_path, codec):
    root = write(tmp_path / "set", codec=codec)
    made = build(registry.demos(f"lerobot:{root}?size=32"), Hog(), tmp_path / "library")
    assert made.can_show(("agentview", "wrist"))
    shown = made.show(1, 7, ("agentview", "wrist"))
    for number, camera in enumerate(("agentview", "wrist")):
        assert shown[camera].shape == (64, 64, 3)
        assert np.abs(shown[camera].astype(int) - picture(1, 7, number)).mean() < 2.5
    assert not made.can_show(("left", "right"))


def test_cameras_can_be_told_apart_by_hand_and_a_source_that_changed_shows_nothing(tmp_path):
    root = write(tmp_path / "set", codec=None)
    told = "left:observation.images.top,right:observation.images.wrist"
    made = build(registry.demos("lerobot:" + str(root), map=told), Hog(), tmp_path / "library")
    np.testing.assert_array_equal(made.show(0, 2, ["left"])["left"], picture(0, 2, 0))
    with pytest.raises(ComponentError, match="map=left is not a list of pairs"):
        registry.demos(f"lerobot:{root}?map=left")
    (root / "meta" / "info.json").unlink()
    assert not Library.open(made.path).can_show(["left"])
    with pytest.raises(LibraryError, match="cannot show left"):
        Library.open(made.path).show(0, 2, ["left"])
