from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from besttake.demos.build import build
from besttake.demos.hdf5 import make as hdf5
from besttake.demos.library import Library
from besttake.demos.resolve import build_at
from besttake.encoders.pixels import Pixels
from besttake.errors import LibraryError
from besttake.testbed.env import TestbedEnv
from besttake.types import Step
from besttake.verbs.replay import replay


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build_at(tmp_path_factory.mktemp("replay") / "library", "testbed:pick?demos_per_task=2")


def test_the_demonstrations_of_the_testbed_succeed_again(library: Library) -> None:
    result = replay(library, "testbed:pick")
    assert (result.succeeded, len(result.replayed)) == (2, 2)
    assert all(demo.success_step is not None and demo.success_step <= demo.steps for demo in result.demos)
    assert json.loads(result.to_json())["succeeded"] == 2
    assert len(replay(library, "testbed:pick", max_demos=1).demos) == 1


def test_wrong_actions_do_not_succeed(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gripper with the other sign, for instance, is found by replaying."""
    actions = np.array(library.actions)
    actions[:, 3] *= -1
    wrong = Library.open(library.path)
    monkeypatch.setitem(wrong.__dict__, "actions", actions)
    assert replay(wrong, "testbed:pick").succeeded == 0


def test_an_env_without_these_tasks_is_refused(library: Library) -> None:
    with pytest.raises(LibraryError, match="has no demonstration of a task of testbed"):
        _renamed = Library.open(library.path)
        _renamed.demos = tuple(demo.model_copy(update={"task": "fly", "instruction": ""}) for demo in library.demos)
        replay(_renamed, "testbed")


def test_an_hdf5_file_knows_the_state_of_the_simulator_at_the_start(tmp_path: Path) -> None:
    """Written as LIBERO and robomimic write theirs: ``data/demo_N/{actions, states, obs}``."""
    states = np.arange(24, dtype=np.float64).reshape(6, 4) / 3
    with h5py.File(tmp_path / "pick_demo.hdf5", "w") as file:
        group = file.create_group("data/demo_0")
        group["actions"], group["states"] = np.tile(np.arange(6.0)[:, None], 7), states
        group["obs/agentview_rgb"] = np.zeros((6, 8, 8, 3), np.uint8)
        group["obs/eye_in_hand_rgb"] = np.zeros((6, 8, 8, 3), np.uint8)
        for name, size in (("ee_pos", 3), ("ee_ori", 3), ("gripper_states", 2)):
            group[f"obs/{name}"] = np.zeros((6, size))
    path = tmp_path / "pick_demo.hdf5"
    made = build(hdf5(str(path)), Pixels(), tmp_path / "library")
    first = np.array(made.actions[0], np.float64)
    shift = int(first[0])  # the library may begin later than the file: its first action says where
    np.testing.assert_array_equal(made.start_state(0), states[shift])
    with h5py.File(path, "a") as file:  # as a copy that was interrupted: it would read as zeros
        del file["data/demo_0/states"]
        file.create_dataset("data/demo_0/states", states.shape, states.dtype, chunks=(2, 4))[2:] = states[2:]
    with pytest.raises(LibraryError, match="2 of the 3 chunks .*states"):
        hdf5(str(path)).start_state("pick_demo.hdf5/demo_0")


@pytest.mark.parametrize(("gives", "says"), [(float("nan"), "neither true nor false"), (None, "Gone")])
def test_what_is_no_success_is_none(library: Library, monkeypatch: pytest.MonkeyPatch, gives: Any, says: str) -> None:
    class Gone(BaseException):
        pass

    def step(*_: object) -> Step:
        if gives is None:
            raise Gone
        return Step(gives, False)

    monkeypatch.setattr(TestbedEnv, "step", step)
    result = replay(library, "testbed:pick")
    assert result.succeeded == 0
    assert all(says in demo.problem for demo in result.demos)
