"""Every format by its scheme, four by their files alone; no more of a data set is decoded than is wanted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import pytest
import writers
from PIL import Image

from besttake import registry
from besttake.demos import hdf5, lerobot, video
from besttake.demos.base import AnnotatedSource, TaskSource, UnreadableDemo
from besttake.demos.build import Options, build
from besttake.demos.resolve import guess, source_of
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError
from besttake_formats import raw, rlds, zarr

FIXTURES = Path(__file__).parent / "fixtures"
EPISODES = [writers.episode(number, length=12, side=32) for number in range(3)]


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
def test_a_format_is_read_by_its_scheme_and_where_it_is_ours_by_its_files(tmp_path, scheme):
    root = BARE[scheme](tmp_path / "data")
    source = source_of(f"{scheme}:{root}")
    assert isinstance(source, AnnotatedSource)
    assert source.name == f"{scheme}:{root}"
    assert source.notes
    assert not isinstance(next(iter(source)), UnreadableDemo)
    if scheme in ("lerobot", "hdf5", "video"):
        assert guess(root) == scheme
        assert source_of(str(root)).name == source.name
    if scheme == "hdf5":
        assert all(guess(file) == scheme for file in root.iterdir())


DECODES = {
    "lerobot": (lerobot, "picture"), "rlds": (rlds, "picture"), "zarr": (zarr, "_pictures"),
    "droid": (raw, "video_frames"), "hdf5": (hdf5, "pictures"), "maniskill": (hdf5, "pictures"),
    "aloha": (hdf5, "pictures"), "video": (video, "read_frames"),
}  # fmt: skip


@pytest.mark.parametrize("scheme", BARE)
def test_demonstrations_beyond_those_wanted_of_a_task_are_not_decoded(tmp_path, scheme):
    source = source_of(f"{scheme}:{BARE[scheme](tmp_path / 'data')}")
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


def test_an_unfinished_version_of_an_rlds_data_set_is_not_taken(tmp_path):
    root = writers.rlds_libero(tmp_path / "all", EPISODES[:2])
    unfinished = Path(shutil.copytree(root / "1.0.0", root / "1.0.0.incomplete7F3"))
    for shard in unfinished.glob("*.tfrecord*"):
        shard.unlink()
    assert len(list(registry.demos(f"rlds:{root}"))) == len(list(registry.demos(f"rlds:{root / '1.0.0'}"))) == 2


@pytest.mark.parametrize(("scheme", "rate"), [("zarr", 10), ("aloha", 50), ("maniskill", 20), ("hdf5", 20)])
def test_a_rate_that_the_data_do_not_say_is_told_and_can_be_said(tmp_path, scheme, rate):
    root = BARE[scheme](tmp_path / "data")
    for path in root.glob("*.hdf5"):
        with h5py.File(path, "a") as file:
            if "data" in file:
                file["data"].attrs["env_args"] = json.dumps({"env_name": "Libero_Floor", "env_kwargs": {}})
    source: Any = source_of(f"{scheme}:{root}")
    assert source.fps == rate
    assert any(f"taken as {rate} steps a second" in note and "?fps=" in note for note in source.notes)
    said: Any = source_of(f"{scheme}:{root}?fps=30")
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
