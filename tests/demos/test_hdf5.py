from __future__ import annotations

import json
import sys

import h5py
import numpy as np
import pytest
import writers
from scipy.spatial.transform import Rotation

from besttake import registry
from besttake.demos.build import Options, build
from besttake.encoders.hog import Hog
from besttake.errors import ComponentError, LibraryError, MissingExtra

EPISODES = [writers.episode(number, length=12, side=32) for number in (0, 2)]
LIBERO = f"{EPISODES[0].task}_demo.hdf5"


def libero(root):
    """A file as LIBERO's own script writes it; pictures as rendered, upside down."""
    return writers.libero_hdf5(root, EPISODES) / LIBERO


def robomimic(path, lengths=(10, 11)):
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 25}})
        for number, length in enumerate(lengths):
            demo = data.create_group(f"demo_{number}")
            demo["actions"] = rng.uniform(-1, 1, (length, 7))
            demo["obs/robot0_eef_pos"] = rng.random((length, 3))
            demo["obs/robot0_eef_quat"] = Rotation.random(length, random_state=number).as_quat()
            demo["obs/robot0_gripper_qpos"] = rng.random((length, 2))
            for key in ("agentview_image", "robot0_eye_in_hand_image"):
                demo[f"obs/{key}"] = rng.integers(0, 255, (length, 32, 32, 3), dtype=np.uint8)
    return path


def test_a_libero_file_says_camera_gripper_position_rate_and_instruction(tmp_path):
    source = registry.demos(f"hdf5:{libero(tmp_path)}")
    assert (source.camera, source.gripper_dim, source.eef_dims, source.fps) == ("eye_in_hand_rgb", 6, (0, 1, 2), 20)
    assert {demo.instruction for demo in source} == {EPISODES[0].instruction}


def test_a_damaged_demonstration_costs_itself_also_where_it_is_the_first(tmp_path):
    path = libero(tmp_path)
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
    bad, good = registry.demos(f"hdf5:{path}")
    assert bad.reason == "has no actions"
    assert len(good.actions) == 11


def test_a_robomimic_file_is_read_back_exactly_with_quaternions_as_axis_angle(tmp_path):
    path = robomimic(tmp_path / "low_dim.hdf5")
    source = registry.demos(f"hdf5:{path}?camera=agentview_image")
    assert (source.gripper_dim, source.eef_dims, source.fps) == (6, (0, 1, 2), 25)
    demo = list(source)[1]
    assert demo.task == "Lift"
    with h5py.File(path) as file:
        stored = file["data/demo_1"]
        np.testing.assert_array_equal(demo.actions, stored["actions"][()].astype(np.float32))
        np.testing.assert_array_equal(demo.states[:, :3], stored["obs/robot0_eef_pos"][()].astype(np.float32))
        turned = Rotation.from_rotvec(demo.states[:, 3:6]) * Rotation.from_quat(stored["obs/robot0_eef_quat"][()]).inv()
        np.testing.assert_allclose(turned.magnitude(), 0, atol=1e-6)
        np.testing.assert_array_equal(demo.frames, stored["obs/agentview_image"][()])


def test_a_file_that_is_no_hdf5_or_no_such_data_is_told_in_one_line(tmp_path):
    fake = tmp_path / "fake.hdf5"
    fake.write_text("this is not it")
    with pytest.raises(LibraryError, match=r"fake.hdf5 is not an HDF5 file"):
        registry.demos(f"hdf5:{fake}")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights"] = np.zeros(3)
    with pytest.raises(LibraryError, match="no group data"):
        registry.demos(f"hdf5:{tmp_path / 'other.h5'}")
    with pytest.raises(LibraryError, match="no such file"):
        registry.demos(f"hdf5:{tmp_path / 'nowhere'}")
    both = tmp_path / "both"
    both.mkdir()
    fake.rename(both / "fake.hdf5")
    libero(both)
    made = build(registry.demos(f"hdf5:{both}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert made.head.left_out[0].reason == "is not an HDF5 file"
    assert len(made.demos) == 2


def test_missing_cameras_keys_and_libraries_are_told_in_one_line(tmp_path, monkeypatch):
    path = libero(tmp_path)
    with pytest.raises(LibraryError, match="no camera top; it has agentview_rgb, eye_in_hand_rgb"):
        registry.demos(f"hdf5:{path}?camera=top")
    with pytest.raises(LibraryError, match="no numbers torque"):
        registry.demos(f"hdf5:{path}?state=torque")
    with pytest.raises(ComponentError, match="rotate=.* is not one of 0, 180"):
        registry.demos(f"hdf5:{path}?rotate=90")
    bare = robomimic(tmp_path / "bare.hdf5")
    with h5py.File(bare, "a") as file:
        for demo in file["data"].values():
            del demo["obs/agentview_image"], demo["obs/robot0_eye_in_hand_image"]
    with pytest.raises(LibraryError, match="no pictures under obs/"):
        registry.demos(f"hdf5:{bare}")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtra, match=r"besttake\[hdf5\]"):
        registry.demos(f"hdf5:{path}")


def test_a_policy_can_be_shown_every_camera_upright(tmp_path):
    path = libero(tmp_path)
    made = build(registry.demos(f"hdf5:{path}?size=16"), Hog(), tmp_path / "library")
    assert made.can_show(("agentview", "wrist"))
    for camera, shown in made.show(1, 4, ("agentview", "wrist")).items():
        np.testing.assert_array_equal(shown, EPISODES[1].pictures[camera][5])  # recorded after the step
    assert not made.can_show(("front", "side"))
