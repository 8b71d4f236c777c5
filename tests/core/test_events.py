from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from besttake.core.events import EventConfig, current, event_starts, phases


def brute(length, positions, gripper, config):
    """The rules of the module docstring, one step at a time."""
    starts, is_open, last_move = [], None, None
    for t in range(length):
        marks = t == 0
        if gripper is not None and t < len(gripper):
            level = (gripper[t] - config.gripper_threshold) * config.gripper_open
            before = is_open
            if is_open is None:
                is_open = level >= 0
            elif level > config.hysteresis:
                is_open = True
            elif level < -config.hysteresis:
                is_open = False
            marks = marks or (before is not None and before != is_open)
        if positions is not None and t + 1 < len(positions):
            move = positions[t + 1] - positions[t]
            if np.linalg.norm(move) > config.min_speed:
                if last_move is not None and starts:
                    cosine = move @ last_move / np.linalg.norm(move) / np.linalg.norm(last_move)
                    turn = math.degrees(math.acos(np.clip(cosine, -1, 1))) > config.angle
                    marks = marks or (turn and t - starts[-1] >= config.min_gap)
                last_move = move
        if marks:
            starts.append(t)
    return starts


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3]),
    st.integers(1, 6),
    st.sampled_from([-1, 1]),
)
def test_events_are_those_found_one_step_at_a_time(length, seed, hysteresis, gap, sign):
    rng = np.random.default_rng(seed)
    config = EventConfig(min_gap=gap, hysteresis=hysteresis, gripper_open=sign, min_speed=0.5)
    positions = np.cumsum(rng.standard_normal((length, 3)), axis=0)
    gripper = rng.standard_normal(length) + np.sign(np.sin(np.arange(length) / 5))
    assert event_starts(length, positions, gripper, config).tolist() == brute(length, positions, gripper, config)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_with_every_turn_events_are_those_that_s2_of_the_paper_names(length, seed):
    """First frame, gripper transition, or a change of direction of more than the angle between consecutive steps."""
    rng = np.random.default_rng(seed)
    positions = np.cumsum(1e-4 * rng.standard_normal((length, 3)), axis=0)
    gripper = np.sign(rng.standard_normal(length))
    config = EventConfig(angle=75).every_turn()
    moves = np.diff(positions, axis=0)
    named = [0]
    for t in range(1, length):
        turned = t < len(moves) and math.degrees(
            math.acos(np.clip(moves[t] @ moves[t - 1] / math.hypot(*moves[t]) / math.hypot(*moves[t - 1]), -1, 1))
        ) > 75  # fmt: skip
        if gripper[t] != gripper[t - 1] or turned:
            named.append(t)
    assert event_starts(length, positions, gripper, config).tolist() == named
    assert (config.angle, config.gripper_open) == (75, -1)
    spaced = event_starts(length, positions, None, EventConfig(angle=75, min_speed=0))
    assert np.diff(spaced).min(initial=5) >= 5


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 50), st.integers(0, 2**32 - 1))
def test_events_so_far_are_the_events_of_the_whole_take_cut_off(length, seed):
    rng = np.random.default_rng(seed)
    config = EventConfig(min_speed=0.3)
    positions, gripper = np.cumsum(rng.standard_normal((length, 3)), axis=0), rng.standard_normal(length)
    whole = event_starts(length, positions, gripper, config)
    for step in range(1, length):
        now = current(positions, gripper, config, step=step)
        assert now.onset == whole[whole < step][-1]
        assert now.open == phases(gripper, config)[step - 1]


def test_a_pause_does_not_hide_a_turn_and_jitter_at_rest_is_none():
    rng = np.random.default_rng(0)
    out = np.stack([np.arange(10) * 0.01, np.zeros(10)], axis=1)
    rest = np.full((8, 2), out[-1]) + 1e-5 * rng.standard_normal((8, 2))
    back = np.stack([0.09 - np.arange(1, 8) * 0.01, np.zeros(7)], axis=1)
    starts = event_starts(25, np.concatenate([out, rest, back]))
    assert starts.tolist() == [0, 17]
