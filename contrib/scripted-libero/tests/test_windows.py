"""Demonstrations as numbers: what is written is read back, and windows are cut from them as a slow loop would."""

import numpy as np
import pytest

from besttake.envs.libero.env import TUNING_STARTS
from scripted_libero import DEMO_STARTS
from scripted_libero.windows import TRAINING_STARTS, Episodes


@pytest.fixture
def episodes():
    rng = np.random.default_rng(0)
    lengths = np.array([3, 5, 4])
    return Episodes(
        states=rng.normal(size=(12, 18)).astype(np.float32),
        actions=rng.uniform(-1, 1, (12, 7)).astype(np.float32),
        lengths=lengths,
        tasks=np.array([0, 0, 1]),
        starts=np.array([3000, 3002, 3000]),
        instructions=("a", "b"),
    )


def test_what_is_saved_is_loaded(episodes, tmp_path):
    episodes.save(tmp_path / "deep" / "demos.npz")
    again = Episodes.load(tmp_path / "deep" / "demos.npz")
    assert again.instructions == ("a", "b")
    assert again.fingerprint() == episodes.fingerprint()
    for name in ("states", "actions", "lengths", "tasks", "starts"):
        assert np.array_equal(getattr(again, name), getattr(episodes, name))


def test_windows_end_in_standing_still_with_the_gripper_as_it_was(episodes):
    states, chunks, tasks = episodes.windows(4, per_task=1)
    assert tasks.tolist() == [0] * 3 + [1] * 4
    assert np.array_equal(states, episodes.states[[0, 1, 2, 8, 9, 10, 11]])
    assert np.array_equal(chunks[0, :3], episodes.actions[:3])
    assert np.array_equal(chunks[3], episodes.actions[8:12])
    still = np.array([0, 0, 0, 0, 0, 0, episodes.actions[2, 6]], np.float32)
    assert np.array_equal(chunks[2], np.stack([episodes.actions[2], still, still, still]))


def test_asking_for_more_demonstrations_than_there_are_is_an_error(episodes):
    with pytest.raises(ValueError, match="2 demonstrations per task are needed, but one task has 1"):
        episodes.windows(4, per_task=2)


def test_no_start_is_both_learned_from_and_in_the_library_or_evaluated():
    ranges = [set(range(50)), set(TUNING_STARTS), set(DEMO_STARTS), set(TRAINING_STARTS)]
    assert sum(map(len, ranges)) == len(set.union(*ranges))
