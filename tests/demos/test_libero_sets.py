"""The LIBERO data that people have, in every layout they have it in: the same library, without naming anything."""

from __future__ import annotations

import os
import shutil
import sys
import types
from fnmatch import fnmatch

import numpy as np
import pytest
import writers

from besttake import registry
from besttake.demos.build import Options, build
from besttake.demos.library import check_gripper, check_retrieval
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError
from besttake.types import EnvSpec

LIBERO = EnvSpec(
    "libero:object", (), range(50), 7, 8, ("agentview", "wrist"), "wrist", gripper_dim=6, gripper_open=-1,
    eef_dims=(0, 1, 2),
)  # fmt: skip
EPISODES = [writers.episode(number) for number in range(4)]
SETS = {
    "hugging face": (writers.hugging_face_libero, "observation.images.image2", 10, 0),
    "lerobot": (
        lambda root, episodes: writers.hugging_face_libero(root, episodes, videos=True),
        "observation.images.image2",
        10,
        2.5,
    ),
    "openpi": (writers.openpi_libero, "wrist_image", 10, 0),
    "ipec 2.1": (writers.ipec_libero, "observation.images.wrist_image", 20, 2.5),
    "ipec 2.0": (
        lambda root, episodes: writers.ipec_libero(root, episodes, "v2.0"),
        "observation.images.wrist_image",
        20,
        2.5,
    ),
}


@pytest.fixture(scope="module", params=SETS)
def made(request, tmp_path_factory):
    write, camera, fps, error = SETS[request.param]
    root = write(tmp_path_factory.mktemp("set") / "data", EPISODES)
    source = registry.demos(f"lerobot:{root}")
    options = Options(gripper_as=(-1.0, 1.0))
    return root, source, build(source, Hog(), root.parent / "library", options), (camera, fps, error)


def test_what_was_seen_and_done_is_read_back(made):
    _, source, library, (_, _, error) = made
    for number, (demo, episode) in enumerate(zip(source, EPISODES, strict=True)):
        assert demo.task == episode.instruction
        np.testing.assert_array_equal(demo.states, episode.states[:-1])
        np.testing.assert_array_equal(demo.actions[:, :6], episode.actions[:, :6])
        difference = np.abs(demo.frames.astype(int) - episode.pictures["wrist"][:-1]).mean()
        assert difference <= error, f"pictures of episode {number} differ by {difference:.1f} levels"
        # In the library the gripper is the environment's, whatever the data set made of it.
        np.testing.assert_array_equal(library.chunk(number, 0, len(episode)), episode.actions)


def test_its_events_are_its_gripper_changes_and_turns_and_it_can_be_retrieved_from(made):
    library = made[2]
    check_retrieval(library, LIBERO)
    assert (library.head.gripper_dim, library.head.eef_dims) == (6, (0, 1, 2))
    for demo, episode in zip(library.demos, EPISODES, strict=True):
        changes = np.flatnonzero(np.diff(episode.actions[:, 6])) + 1
        assert set(changes.tolist()) <= set(demo.events)
        assert len(changes) == 2


def test_a_policy_is_shown_both_cameras(made):
    _, _, library, (_, _, error) = made
    shown = library.show(1, 5, ("agentview", "wrist"))
    for camera, picture in shown.items():
        assert np.abs(picture.astype(int) - EPISODES[1].pictures[camera][5]).mean() <= error


def test_gripper_commands_of_zero_and_one_have_events_and_the_fingers_tell_which_opens(tmp_path):
    root = writers.ipec_libero(tmp_path / "set", EPISODES)
    library = build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library")
    assert (library.head.event_config.gripper_threshold, library.head.event_config.gripper_open) == (0.5, 1)
    assert all(len(demo.events) >= 3 for demo in library.demos)
    with pytest.raises(
        LibraryError, match=r"open above 0.5, but those of libero:object open below 0.*`gripper_as` -1,1"
    ):
        check_gripper(library, LIBERO)


@pytest.mark.parametrize(
    "write", [writers.ipec_libero, lambda root, e: writers.hugging_face_libero(root, e, videos=True)]
)
def test_from_the_hub_come_the_videos_that_are_needed_and_no_others(tmp_path, monkeypatch, write):
    """The hub's client is replaced: it gives what the patterns ask for, as links to blobs, as the real one does."""
    published, cache = write(tmp_path / "published", EPISODES[:1]), tmp_path / "cache" / "datasets--org--name"

    def snapshot_download(repo, *, allow_patterns, repo_type, revision):
        assert (repo, repo_type, revision) == ("org/name", "dataset", None)
        root = cache / "snapshots" / "0123"
        for path in published.rglob("*"):
            name = str(path.relative_to(published))
            if path.is_file() and any(fnmatch(name, pattern) for pattern in allow_patterns):
                blob, link = cache / "blobs" / name.replace("/", "-"), root / name
                for each in (blob, link):
                    each.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, blob)
                if not link.exists():
                    link.symlink_to(os.path.relpath(blob, link.parent))
        return str(root)

    hub = types.ModuleType("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    source = registry.demos("lerobot:org/name")
    (demo,) = source
    np.testing.assert_array_equal(demo.states, EPISODES[0].states[:-1])
    videos = list((cache / "snapshots").rglob("*.mp4"))
    assert len(videos) == 1
    assert source.shows(("wrist",))
    assert not source.shows(("agentview", "wrist"))
    both = registry.demos("lerobot:org/name?map=agentview:image")
    assert both.shows(("agentview", "wrist"))


def test_libero_s_own_files_are_paired_by_what_the_simulator_s_states_show(tmp_path):
    own = registry.demos(f"hdf5:{writers.libero_hdf5(tmp_path / 'own', EPISODES)}")
    again = registry.demos(f"hdf5:{writers.openvla_hdf5(tmp_path / 'again', EPISODES)}")
    assert "the observation after it, so actions were shifted" in own.notes[0]
    assert "the observation before it" in again.notes[0]
    for source, first in ((own, 1), (again, 0)):
        by_task = sorted(EPISODES, key=lambda each: each.task)
        for demo, episode in zip(source, by_task, strict=True):
            assert demo.task == episode.task
            np.testing.assert_array_equal(demo.actions, episode.actions[first:])
            np.testing.assert_array_equal(demo.states, episode.states[first:-1])
            np.testing.assert_array_equal(demo.frames, episode.pictures["wrist"][first:-1])
