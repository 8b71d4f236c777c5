"""ManiSkill, ALOHA, DROID and Zarr: read back, left out by name, guessed from a bare path."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pytest
import writers
from PIL import Image

from besttake import registry
from besttake.demos import hdf5, lerobot, video
from besttake.demos.base import AnnotatedSource, TaskSource, UnreadableDemo
from besttake.demos.build import Options, build
from besttake.demos.resolve import KNOWN, guess, source_of
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError
from besttake_formats import raw, rlds, zarr

FIXTURES = Path(__file__).parent / "fixtures"
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
    assert guess(zipped) == ("zarr", zipped)


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


def pictures(root):
    for take in ("one", "two", "three"):
        (root / "pour" / take).mkdir(parents=True)
        for step in range(3):
            Image.fromarray(EPISODES[0].pictures["wrist"][step]).save(root / "pour" / take / f"{step}.png")
    return root


BARE = {
    "lerobot": lambda root: writers.openpi_libero(root, EPISODES),
    "rlds": lambda root: writers.rlds_libero(root, EPISODES),
    "zarr": lambda root: Path(shutil.copytree(FIXTURES / "replay.zarr", root)),
    "droid": lambda root: writers.droid(root, EPISODES), "hdf5": lambda root: writers.libero_hdf5(root, EPISODES),
    "maniskill": lambda root: writers.maniskill(root / "trajectory.h5", EPISODES).parent,
    "aloha": lambda root: writers.aloha(root, EPISODES), "video": pictures,
}  # fmt: skip


@pytest.mark.parametrize("scheme", BARE)
def test_a_bare_path_is_taken_for_what_it_is(tmp_path, scheme):
    root = BARE[scheme](tmp_path / "data")
    assert guess(root) == (scheme, root)
    source = source_of(str(root))
    assert isinstance(source, AnnotatedSource)
    assert source.name == f"{scheme}:{root}"
    assert source.notes
    assert not isinstance(next(iter(source)), UnreadableDemo)
    files = [p for p in root.iterdir() if p.suffix in (".hdf5", ".h5")]
    assert all(guess(p) == (scheme, p) for p in files)


DECODES = {
    "lerobot": (lerobot, "picture"), "rlds": (rlds, "picture"), "zarr": (zarr, "_pictures"),
    "droid": (raw, "video_frames"), "hdf5": (hdf5, "pictures"), "maniskill": (hdf5, "pictures"),
    "aloha": (hdf5, "pictures"), "video": (video, "read_frames"),
}  # fmt: skip


@pytest.mark.parametrize("scheme", BARE)
def test_demonstrations_beyond_those_wanted_of_a_task_are_not_decoded(tmp_path, scheme):
    source = source_of(str(BARE[scheme](tmp_path / "data")))
    assert isinstance(source, TaskSource)
    module, name = DECODES[scheme]
    with mock.patch.object(module, name, wraps=getattr(module, name)) as decode:
        demos = [demo for demo in source if not isinstance(demo, UnreadableDemo)]
        firsts = {demo.task: demo.id for demo in reversed(demos)}
        each, last = decode.call_count // 3, demos[-1].task
        decode.reset_mock()
        library = build(source, Hog(), tmp_path / "library", Options(max_demos=1))
        assert {demo.task: demo.id for demo in library.demos} == firsts
        assert decode.call_count == len(firsts) * each
        decode.reset_mock()
        build(source, Hog(), tmp_path / "last", Options(tasks=(last,)))
        assert decode.call_count == sum(demo.task == last for demo in demos) * each


def test_what_is_not_known_is_one_line_that_says_what_would_be(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(LibraryError, match="its format is not known; there are a LeRobotDataset"):
            source_of(str(path))
    with pytest.raises(LibraryError, match="on the hub it would be lerobot:org/libero"):
        source_of("org/libero")
    assert set(KNOWN) >= set(BARE)


@pytest.mark.parametrize("above", ["", "tensorflow_datasets", "data/tensorflow_datasets"])
@pytest.mark.parametrize("config", ["", "with_wrist"])
def test_one_rlds_data_set_is_found_from_every_folder_above_it(tmp_path, above, config):
    """tfds: DATA_DIR/NAME[/CONFIG]/VERSION. Pictures beside it are none of its demonstrations."""
    root = writers.rlds_libero(tmp_path / above, EPISODES[:2])
    version = root / "1.0.0"
    if config:
        (root / config).mkdir()
        version = Path(shutil.move(version, root / config))
    Image.fromarray(EPISODES[0].pictures["wrist"][0]).save(root / "preview.png")
    (tmp_path / "downloads").mkdir()
    steps = [len(demo.actions) for demo in registry.demos(f"rlds:{version}")]
    folders = [p for p in (version, *version.parents) if p.is_relative_to(tmp_path)]
    for folder in folders:
        source = source_of(str(folder))
        assert source.name.startswith("rlds:"), folder
        assert [0 if isinstance(demo, UnreadableDemo) else len(demo.actions) for demo in source] == steps
    for folder in folders[:2]:
        assert len(list(registry.demos(f"rlds:{folder}"))) == 2


def test_an_unfinished_version_is_not_taken_and_two_data_sets_are_not_versions(tmp_path):
    root = writers.rlds_libero(tmp_path / "all", EPISODES[:2])
    unfinished = Path(shutil.copytree(root / "1.0.0", root / "1.0.0.incomplete7F3"))
    for shard in unfinished.glob("*.tfrecord*"):
        shard.unlink()
    assert len(list(source_of(str(root)))) == 2
    shutil.rmtree(unfinished)
    for name in ("libero_10", "libero_goal"):
        shutil.copytree(root / "1.0.0", tmp_path / "flat" / name)
    with pytest.raises(LibraryError, match=r"holds 2 data sets \(libero_10, libero_goal\); name one of them"):
        source_of(str(tmp_path / "flat"))


def test_a_folder_with_one_data_set_of_any_format_is_that_data_set(tmp_path):
    for scheme in ("lerobot", "zarr", "hdf5", "aloha"):
        root = BARE[scheme](tmp_path / scheme / "the_set")
        assert guess(tmp_path / scheme) == (scheme, root)


@pytest.mark.parametrize(("scheme", "rate"), [("zarr", 10), ("aloha", 50), ("maniskill", 20), ("hdf5", 20)])
def test_a_rate_that_the_data_do_not_say_is_told_and_can_be_said(tmp_path, scheme, rate):
    root = BARE[scheme](tmp_path / "data")
    for path in root.glob("*.hdf5"):
        with h5py.File(path, "a") as file:
            if "data" in file:
                file["data"].attrs["env_args"] = json.dumps({"env_name": "Libero_Floor", "env_kwargs": {}})
    source: Any = source_of(str(root))
    assert source.fps == rate
    assert any(f"taken as {rate} steps a second" in note and "?fps=" in note for note in source.notes)
    said: Any = source_of(f"{root}?fps=30")
    assert said.fps == registry.demos(said.uri).fps == 30
    assert not any("taken as" in note for note in said.notes)


def test_the_bridge_tasks_of_maniskill_have_their_own_rate(tmp_path):
    """Their 5 steps a second are a default of the class, which RecordEpisode does not write down."""
    path = writers.maniskill(tmp_path / "trajectory.h5", EPISODES)
    beside = path.with_suffix(".json")
    about = json.loads(beside.read_text())
    about["env_info"]["env_id"] = "PutCarrotOnPlateInScene-v1"
    beside.write_text(json.dumps(about))
    assert registry.demos(f"maniskill:{path}").fps == 5
    about["env_info"]["env_kwargs"]["sim_config"] = {"control_freq": 12}
    beside.write_text(json.dumps(about))
    source = registry.demos(f"maniskill:{path}")
    assert source.fps == 12
    assert not any("taken as" in note for note in source.notes)
