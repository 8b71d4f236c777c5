"""The reader against the layout that lerobot 0.6 writes; in tests/integration/lerobot it is lerobot that writes."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import writers

from besttake import registry
from besttake.demos.build import Options, build
from besttake.demos.library import Library
from besttake.encoders.hog import Hog
from besttake.errors import ComponentError, LibraryError, MissingExtra

CAMERAS = {"observation.images.top": "agentview", "observation.images.wrist": "wrist"}


def episodes_of(lengths):
    return [writers.episode(number, length, side=64) for number, length in enumerate(lengths)]


EPISODES = episodes_of((20, 15, 12))


def write(root, episodes=EPISODES, per_file=2, codec="libsvtav1", names=True):
    """A LeRobotDataset v3; ``codec=None`` stores pictures in the tables."""
    state, action = ["x", "y", "z", *"abcd", "opening"], ["dx", "dy", "dz", *"efg", "gripper"]
    features = {
        "observation.state": {"dtype": "float32", "shape": [8], "names": state if names else None},
        "action": {"dtype": "float32", "shape": [7], "names": {"motors": action} if names else None},
        **{camera: {"dtype": "video" if codec else "image", "shape": [64, 64, 3], "names": None} for camera in CAMERAS},
    }
    return writers.v3(root, episodes, CAMERAS, features, fps=10, codec=codec, per_file=per_file)


@pytest.mark.parametrize("codec", ["libsvtav1", "libx264", None])
def test_several_episodes_per_file_and_several_files_are_read_back(tmp_path, codec):
    source = registry.demos(f"lerobot:{write(tmp_path / 'set', codec=codec)}")
    demos = list(source)
    assert [(d.id, d.task) for d in demos] == [(f"episode {i}", e.instruction) for i, e in enumerate(EPISODES)]
    for demo, episode in zip(demos, EPISODES, strict=True):
        np.testing.assert_array_equal(demo.states, episode.states[:-1])
        np.testing.assert_array_equal(demo.actions, episode.actions)
        assert writers.steps_shown(demo.frames, episode.pictures["wrist"]) == list(range(len(episode)))
        error = np.abs(demo.frames.astype(int) - episode.pictures["wrist"][:-1]).mean()
        assert error < (2.5 if codec else 1e-9)


def test_the_wrist_camera_is_the_default_and_another_can_be_named(tmp_path):
    root = write(tmp_path / "set", codec=None)
    assert registry.demos(f"lerobot:{root}").camera == "observation.images.wrist"
    for name in ("top", "observation.images.top"):
        source = registry.demos(f"lerobot:{root}?camera={name}")
        assert source.camera == "observation.images.top"
        np.testing.assert_array_equal(next(iter(source)).frames[3], EPISODES[0].pictures["agentview"][3])
    with pytest.raises(LibraryError, match=r"no camera side; it has observation.images.top, observation.images.wrist"):
        registry.demos(f"lerobot:{root}?camera=side")


def test_dimensions_come_from_the_names_of_the_features_and_are_not_guessed_without(tmp_path):
    named = registry.demos(f"lerobot:{write(tmp_path / 'named', codec=None)}")
    assert (named.gripper_dim, named.eef_dims, named.fps) == (6, (0, 1, 2), 10)
    bare = registry.demos(f"lerobot:{write(tmp_path / 'bare', codec=None, names=False)}")
    assert (bare.gripper_dim, bare.eef_dims) == (None, None)


def test_only_the_episodes_asked_for_are_read(tmp_path):
    root = write(tmp_path / "set", codec=None)
    assert [d.id for d in registry.demos(f"lerobot:{root}?episodes=1:")] == ["episode 1", "episode 2"]
    assert [d.id for d in registry.demos(f"lerobot:{root}?episodes=2")] == ["episode 2"]
    with pytest.raises(LibraryError, match="a range such as"):
        registry.demos(f"lerobot:{root}?episodes=all")


def test_a_damaged_video_costs_its_own_episodes_only(tmp_path):
    root = write(tmp_path / "set", episodes_of((12, 12, 12)), per_file=1)
    path = root / "videos" / "observation.images.wrist" / "chunk-000" / "file-001.mp4"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(LibraryError, match=r"episode 1 has a damaged video file-001.mp4.*`skip_bad`"):
        build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library")
    made = build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert [d.id for d in made.demos] == ["episode 0", "episode 2"]
    assert [b.id for b in made.head.left_out] == ["episode 1"]
    path.unlink()
    made = build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert "has no video file" in made.head.left_out[0].reason


def test_damaged_data_and_pictures_cost_their_own_episodes_only(tmp_path):
    root = write(tmp_path / "set", episodes_of((12, 12, 12)), per_file=1, codec=None)
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
        registry.demos(f"lerobot:{write(tmp_path / 'two', episodes_of((20, 15, 13)), codec=None)}").fingerprint,
    }
    assert len(prints) == 4
    assert registry.demos(f"lerobot:{one}").fingerprint in prints


@pytest.mark.parametrize("codec", ["libx264", None])
def test_a_policy_can_be_shown_every_camera_at_full_size(tmp_path, codec):
    root = write(tmp_path / "set", codec=codec)
    made = build(registry.demos(f"lerobot:{root}?size=32"), Hog(), tmp_path / "library")
    assert made.can_show(("agentview", "wrist"))
    for camera, shown in made.show(1, 7, ("agentview", "wrist")).items():
        assert shown.shape == (64, 64, 3)
        assert writers.steps_shown(shown[None], EPISODES[1].pictures[camera]) == [7]
    assert not made.can_show(("left", "right"))


def test_cameras_can_be_told_apart_by_hand_and_a_source_that_changed_shows_nothing(tmp_path):
    root = write(tmp_path / "set", codec=None)
    told = "left:observation.images.top,right:observation.images.wrist"
    made = build(registry.demos("lerobot:" + str(root), map=told), Hog(), tmp_path / "library")
    np.testing.assert_array_equal(made.show(0, 2, ["left"])["left"], EPISODES[0].pictures["agentview"][2])
    with pytest.raises(ComponentError, match="map=left is not a list of pairs"):
        registry.demos(f"lerobot:{root}?map=left")
    (root / "meta" / "info.json").unlink()
    assert not Library.open(made.path).can_show(["left"])
    with pytest.raises(LibraryError, match="cannot show left"):
        Library.open(made.path).show(0, 2, ["left"])
