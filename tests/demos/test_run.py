from __future__ import annotations

import numpy as np
import pytest

from besttake import registry
from besttake.demos.build import Options, build
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store
from besttake.takes.take import Film, Take

ENV = "testbed:pick"


def take(start, seed, success_step, arm="base", policy="testbed:half"):
    rng = np.random.default_rng([start, seed])
    steps = np.arange(0, 20, 2, dtype=np.int32)
    return Take(
        key=TakeKey(policy, ENV, "pick", start, arm, seed),
        success_step=success_step,
        actions=rng.normal(size=(20, 4)).astype(np.float32),
        states=rng.normal(size=(21, 20)).astype(np.float32),
        film=Film.pack(rng.integers(0, 255, (10, 16, 16, 3), dtype=np.uint8)),
        frame_steps=steps,
    )


@pytest.fixture
def run(tmp_path):
    takes = [
        take(0, 0, 14), take(0, 1, None), take(1, 0, 20), take(1, 0, 9, arm="retrieve"),
        take(2, 0, 11, policy="testbed:mid"),
    ]  # fmt: skip
    with Store.write(tmp_path / "run", Manifest()) as store:
        for one in takes:
            store.add(one)
        store.add_error(TakeKey("testbed:half", ENV, "pick", 3, "base", 0), "fell over")
    return tmp_path / "run", takes


def test_successful_takes_are_demonstrations_up_to_their_success(run):
    path, takes = run
    source = registry.demos(f"run:{path}")
    demos = {d.source["start"]: d for d in source}
    assert sorted(demos) == [0, 1, 2]
    assert len(source) == 3
    np.testing.assert_array_equal(demos[0].actions, takes[0].actions[:14])
    np.testing.assert_array_equal(demos[0].states, takes[0].states[:14])
    np.testing.assert_array_equal(demos[0].frame_steps, np.arange(0, 14, 2))
    np.testing.assert_array_equal(demos[0].frames, takes[0].frames()[:7])
    assert len(demos[1].actions) == 20
    assert demos[0].instruction


def test_the_env_says_what_camera_gripper_and_end_effector_are(run):
    source, spec = registry.demos(f"run:{run[0]}"), registry.env(ENV).spec
    assert (source.camera, source.gripper_dim, source.eef_dims) == (spec.score_camera, spec.gripper_dim, spec.eef_dims)


def test_a_damaged_take_is_left_out_by_name_and_the_rest_is_a_library(run, tmp_path):
    path, takes = run
    file = path / "takes" / takes[0].key.id[:2] / f"{takes[0].key.id}.take"
    file.write_bytes(file.read_bytes()[:-7])
    made = build(registry.demos(f"run:{path}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert len(made.demos) == 2
    assert "pick/0/base/0" in made.head.left_out[0].id
    with pytest.raises(LibraryError, match="cannot be read"):
        build(registry.demos(f"run:{path}"), Hog(), tmp_path / "other")
