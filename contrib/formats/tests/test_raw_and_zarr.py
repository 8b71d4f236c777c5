"""ManiSkill, ALOHA, DROID and Zarr: read back, and left out by name where they are damaged."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import writers

from besttake import registry
from besttake.demos.base import UnreadableDemo
from besttake.demos.build import Options, build
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError

FIXTURES = Path(writers.__file__).parent / "fixtures"
EPISODES = [writers.episode(number, length=12, side=32) for number in range(3)]


def test_maniskill_trajectories_are_read_back_and_failures_left_out(tmp_path):
    path = writers.maniskill(tmp_path / "trajectory.rgb.h5", EPISODES, failed=[1])
    source = registry.demos(f"maniskill:{path}")
    assert (source.camera, source.gripper_dim, source.gripper_open, source.eef_dims) == ("hand_camera", 6, 1, (0, 1, 2))
    assert "1 episodes failed and were left out" in source.notes[1]
    demos = list(source)
    assert [demo.id.rpartition("/")[2] for demo in demos] == ["traj_0", "traj_2"]
    for demo, episode in zip(demos, EPISODES[::2], strict=True):
        assert demo.task == "PickCube-v1"
        np.testing.assert_array_equal(demo.frames, episode.pictures["wrist"][:-1])
        np.testing.assert_array_equal(demo.actions[:, :6], episode.actions[:, :6])
        np.testing.assert_array_equal(demo.states[:, :3], episode.states[:-1, :3])
        np.testing.assert_array_equal(demo.states[:, 7:], np.repeat(episode.states[:-1, 6:7], 2, axis=1))
    library = build(source, Hog(), tmp_path / "library", Options())
    assert library.head.event_config.gripper_open == 1
    shown = library.show(1, 4, ("agentview", "wrist"))
    np.testing.assert_array_equal(shown["agentview"], EPISODES[2].pictures["agentview"][4])


def test_maniskill_without_pictures_or_with_damage_is_told(tmp_path):
    path = writers.maniskill(tmp_path / "trajectory.h5", EPISODES)
    with h5py.File(path, "a") as file:
        del file["traj_1/obs/sensor_data/hand_camera"]
    items = list(registry.demos(f"maniskill:{path}"))
    assert [isinstance(item, UnreadableDemo) for item in items] == [False, True, False]
    with h5py.File(path, "a") as file:
        for number in range(3):
            del file[f"traj_{number}/obs/sensor_data"]
    with pytest.raises(LibraryError, match="has no pictures; replay it with"):
        registry.demos(f"maniskill:{path}")
    path.with_suffix(".json").write_text("[")
    with pytest.raises(LibraryError, match=r"trajectory.json is damaged"):
        registry.demos(f"maniskill:{path}")


@pytest.mark.parametrize("compressed", [False, True])
def test_aloha_s_episodes_are_read_back(tmp_path, compressed):
    root = writers.aloha(tmp_path / "fold_towel", EPISODES, compressed)
    source = registry.demos(f"aloha:{root}")
    assert (source.camera, source.fps, source.gripper_dim) == ("cam_left_wrist", 50, None)
    for demo, episode in zip(source, EPISODES, strict=True):
        assert (demo.task, demo.instruction) == ("fold_towel", "fold towel")
        np.testing.assert_array_equal(demo.actions[:, :7], episode.actions)
        np.testing.assert_array_equal(demo.states[:, 7:], episode.joints[:-1].astype(np.float32))
        error = np.abs(demo.frames.astype(int) - episode.pictures["wrist"][:-1]).mean()
        assert error <= (3 if compressed else 0)
    if compressed:
        assert any("red and blue of its JPEG pictures were exchanged" in note for note in source.notes)
        plain = next(iter(registry.demos(f"aloha:{root}?colours=rgb")))
        np.testing.assert_array_equal(plain.frames, next(iter(source)).frames[..., ::-1])
    shown = source.show("episode_1.hdf5", 3, ("wrist",))["wrist"]
    assert np.abs(shown.astype(int) - EPISODES[1].pictures["wrist"][3]).mean() <= (3 if compressed else 0)
    (root / "episode_1.hdf5").write_bytes(b"no")
    assert [isinstance(item, UnreadableDemo) for item in registry.demos(f"aloha:{root}")] == [False, True, False]


def test_droid_s_folders_are_read_back_and_failures_and_unfinished_ones_left_out(tmp_path):
    root = writers.droid(tmp_path / "droid", [*EPISODES, writers.episode(3, 12, 32)], failed=[1], unfinished=[2])
    source = registry.demos(f"droid:{root}")
    assert (source.camera, source.fps, source.gripper_dim, source.eef_dims) == ("wrist", 15, 6, (0, 1, 2))
    assert source.notes == (
        "DROID folders, 2 episodes", "1 folders without metadata and 1 that failed were left out",
    )  # fmt: skip
    demos = list(source)
    assert [demo.task for demo in demos] == [EPISODES[0].instruction, EPISODES[1].instruction]
    np.testing.assert_array_equal(demos[0].actions[:, :6], EPISODES[0].actions[:, :6])
    assert set(np.unique(demos[0].actions[:, 6])) == {0, 1}
    np.testing.assert_array_equal(demos[0].states[:, :6], EPISODES[0].states[:-1, :6])
    assert writers.steps_shown(demos[0].frames, EPISODES[0].pictures["wrist"]) == list(range(12))
    shown = source.show(demos[0].id, 5, ("agentview",)) if source.shows(("agentview",)) else {}
    assert shown == {}  # there are two other cameras, and nothing says which of them is meant
    named = registry.demos(f"droid:{root}?map=agentview:ext1")
    shown = named.show(demos[0].id, 5, ("agentview",))
    assert writers.steps_shown(shown["agentview"][None], EPISODES[0].pictures["agentview"]) == [5]
    (root / demos[0].id / "recordings" / "MP4" / "18026681.mp4").write_bytes(b"no video")
    assert [isinstance(item, UnreadableDemo) for item in registry.demos(f"droid:{root}")] == [True, False]


@pytest.fixture
def replay(tmp_path):
    """The replay buffer that zarr 2.18 wrote as Diffusion Policy does, in a place of its own."""
    return Path(shutil.copytree(FIXTURES / "replay.zarr", tmp_path / "push_the_t.zarr"))


def fixture_numbers(episode):
    sys.path.append(str(FIXTURES))
    import fixture_numbers

    return fixture_numbers.numbers(episode, 9 + episode)


def test_a_replay_buffer_is_read_back(replay):
    source = registry.demos(f"zarr:{replay}")
    assert (source.camera, source.fps, len(list(source))) == ("img", 10, 3)
    for episode, demo in enumerate(source):
        states, actions, images, _ = fixture_numbers(episode)
        assert (demo.id, demo.task, demo.instruction) == (f"episode {episode}", "push_the_t", "push the t")
        np.testing.assert_array_equal(demo.frames, images)
        np.testing.assert_array_equal(demo.states, states)
        np.testing.assert_array_equal(demo.actions, actions)
    np.testing.assert_array_equal(source.show("episode 1", 4, ["img"])["img"], fixture_numbers(1)[2][4])


def test_a_zipped_replay_buffer_is_read_as_well(replay, tmp_path):
    zipped = tmp_path / "push_the_t.zarr.zip"
    shutil.make_archive(str(tmp_path / "push_the_t.zarr"), "zip", replay)
    first = next(iter(registry.demos(f"zarr:{zipped}")))
    np.testing.assert_array_equal(first.actions, fixture_numbers(0)[1])


@pytest.mark.parametrize("place", ["filters", "compressor"])
@pytest.mark.parametrize("codec", ["pickle", "msgpack2", "json2"])
def test_a_codec_that_could_run_code_is_refused_before_anything_is_read(replay, codec, place, tmp_path):
    path = replay / "data" / "state" / ".zarray"
    named = {"id": codec} if place == "compressor" else [{"id": codec}]
    kind = {} if place == "compressor" else {"dtype": "|O"}
    path.write_text(json.dumps({**json.loads(path.read_text()), **kind, place: named}))
    (path.parent / "0.0").write_bytes(f"cbuiltins\nopen\n(V{tmp_path / 'ran'}\nVw\ntR.".encode())
    with pytest.raises(LibraryError, match=f"asks for the codec '{codec}', which is not read|is not a replay buffer"):
        registry.demos(f"zarr:{replay}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("change", [{"shape": [1 << 40, 8]}, {"chunks": [1 << 20, 1 << 20]}])
def test_sizes_of_a_replay_buffer_are_not_believed(replay, change):
    path = replay / "data" / "state" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(LibraryError, match="larger than are read"):
        registry.demos(f"zarr:{replay}")


def test_a_replay_buffer_that_is_none_is_one_line(replay, tmp_path):
    chunk = replay / "data" / "action" / "1.0"
    chunk.write_bytes(b"damaged")
    with pytest.raises(LibraryError, match=r"data/action/1.0 has 7 of its"):
        registry.demos(f"zarr:{replay}")
    chunk.unlink()
    chunk.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LibraryError, match="leads out of the data set"):
        registry.demos(f"zarr:{replay}")
    chunk.unlink()
    (replay / "meta" / "episode_ends" / ".zarray").unlink()
    with pytest.raises(LibraryError, match="is not a replay buffer"):
        registry.demos(f"zarr:{replay}")
    with pytest.raises(LibraryError, match="no such file"):
        registry.demos("zarr:/nowhere.zarr")


@pytest.mark.parametrize("lost", [1, 20, 100, 236])
def test_a_piece_of_a_replay_buffer_that_was_cut_is_named_with_its_bytes(replay, lost):
    """Blosc itself reads beyond the end of a short piece, and gives other numbers each time."""
    chunk = replay / "data" / "action" / "1.0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-lost])
    with pytest.raises(LibraryError, match=rf"data/action/1.0 has {len(whole) - lost} of its \d+ bytes"):
        registry.demos(f"zarr:{replay}")
