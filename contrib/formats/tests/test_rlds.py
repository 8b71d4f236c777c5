"""RLDS without TensorFlow, against files that tfds wrote (tests/demos/fixtures/rlds, tfds 4.9)."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import writers
from hypothesis import given
from hypothesis import strategies as st

from besttake import registry
from besttake.demos.base import UnreadableDemo
from besttake.demos.build import Options, build
from besttake.demos.reading import Unreadable
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError
from besttake_formats.rlds import Example, places

FIXTURES = Path(writers.__file__).parent / "fixtures"
TFDS = FIXTURES / "rlds" / "libero_object_no_noops"


@pytest.fixture(scope="module")
def numbers():

    sys.path.append(str(FIXTURES))
    import fixture_numbers

    return fixture_numbers.numbers


def test_what_tfds_wrote_is_read_back_exactly(numbers):
    source = registry.demos(f"rlds:{TFDS}")
    assert (source.camera, source.fps, source.gripper_dim, source.eef_dims) == (
        "observation/wrist_image", 20, 6, (0, 1, 2),
    )  # fmt: skip
    demos = sorted(source, key=lambda demo: len(demo.actions))
    assert [len(demo.actions) for demo in demos] == [9, 10, 11]
    for episode, demo in enumerate(demos):
        states, actions, _, wrist = numbers(episode, 9 + episode)
        np.testing.assert_array_equal(demo.states, states)
        np.testing.assert_array_equal(demo.actions, actions)
        np.testing.assert_array_equal(demo.frames, wrist)
        assert demo.task == demo.instruction == ["pick up the milk", "put the bowl"][episode % 2]


def test_the_same_episodes_as_rlds_and_as_lerobot_are_the_same_demonstrations(tmp_path):
    episodes = [writers.episode(i, length=12, side=32) for i in range(4)]
    one = registry.demos(f"rlds:{writers.rlds_libero(tmp_path / 'rlds', episodes, shards=1)}")
    two = registry.demos(f"lerobot:{writers.openpi_libero(tmp_path / 'openpi', episodes)}")
    for first, second in zip(one, two, strict=True):
        assert first.task == second.task
        for name in ("frames", "states", "actions", "frame_steps"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    library = build(one, Hog(), tmp_path / "library", Options())
    shown = library.show(1, 3, ("agentview", "wrist"))
    np.testing.assert_array_equal(shown["agentview"], episodes[1].pictures["agentview"][3])


def test_a_damaged_record_costs_itself_and_a_cut_file_its_rest(tmp_path):
    root = writers.rlds_libero(tmp_path, [writers.episode(i, length=5, side=16) for i in range(3)], shards=1)
    (path,) = root.rglob("*.tfrecord*")
    whole = path.read_bytes()
    second = list(places(path))[1]
    broken = bytearray(whole)
    broken[second + 500] ^= 1
    path.write_bytes(broken)
    items = list(registry.demos(f"rlds:{root}"))
    assert [isinstance(item, UnreadableDemo) for item in items] == [False, True, False]
    assert "checksum" in items[1].reason
    path.write_bytes(whole[:-3])
    items = list(registry.demos(f"rlds:{root}"))
    assert [isinstance(item, UnreadableDemo) for item in items] == [False, False, True]
    assert "cut off" in items[2].reason
    path.write_bytes(b"\x1f\x8b" + whole)
    (bad,) = registry.demos(f"rlds:{root}")
    assert "no uncompressed TFRecord" in bad.reason


def test_missing_files_of_a_split_and_other_directories_are_one_line(tmp_path):
    root = writers.rlds_libero(tmp_path, [writers.episode(i, length=4, side=16) for i in range(2)])
    next(iter(root.rglob("*.tfrecord-00001*"))).unlink()
    with pytest.raises(LibraryError, match="has 1 of the 2 files of split train; download the rest"):
        registry.demos(f"rlds:{root}")
    with pytest.raises(LibraryError, match="no features.json"):
        registry.demos(f"rlds:{tmp_path / 'nowhere'}")
    for described in ("[]", "{}", '{"featuresDict": {"features": {"steps": 3}}}', "[" * 100000):
        (root / "1.0.0" / "features.json").write_text(described)
        with pytest.raises(LibraryError) as caught:
            registry.demos(f"rlds:{root}")
        assert "\n" not in str(caught.value)


def test_actions_in_parts_are_put_together_and_a_rate_that_is_not_known_is_asked_for(tmp_path):
    root = writers.rlds_libero(tmp_path, [writers.episode(0, length=4, side=16)], shards=1)
    path = root / "1.0.0" / "features.json"
    described = json.loads(path.read_text())
    step = described["featuresDict"]["features"]["steps"]["sequence"]["feature"]["featuresDict"]["features"]
    del step["action"]
    path.write_text(json.dumps(described))
    other = tmp_path / "own_robot"
    shutil.move(root, other)
    (shard,) = other.rglob("*.tfrecord*")
    shard.rename(shard.with_name("own_robot-train.tfrecord-00000-of-00001"))
    with pytest.raises(LibraryError, match=r"does not say how many steps a second .*; add \?fps="):
        registry.demos(f"rlds:{other}")
    assert registry.demos(f"rlds:{other}?fps=7").fps == 7
    (other / "1.0.0" / "metadata.json").write_text(json.dumps({"control_frequency": 12, "fps": True}))
    source = registry.demos(f"rlds:{other}")
    assert source.fps == 12
    assert any("it has no actions" in note for note in source.notes)
    joined = registry.demos(f"rlds:{other}?action=observation/state%2Bobservation/joint_state")
    assert next(iter(joined)).actions.shape == (4, 15)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_example_or_unreadable(data):
    try:
        example = Example(data)
        for name in example.names():
            example.numbers(name), example.texts(name)
    except Unreadable:
        pass
