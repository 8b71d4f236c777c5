"""Events: the frames at which a demonstration, or a running take, begins a new sub-skill (Sec. 3.4 and S2).

A step begins an event when (i) it is the first, (ii) the gripper changes between open and closed, or (iii) the end
effector turns: the displacement after the step makes more than ``angle`` degrees with the displacement before it.
Detection is causal: the events of a take so far are the first events of the whole take. A turn is detected one step
late, with the next displacement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import F64, I64, Bools, length


@dataclass(frozen=True)
class EventConfig:
    """What counts as an event.

    ``angle``: degrees of turn. ``min_speed``: displacements shorter than this, in the state's own unit per step, are
    skipped, so that a turn is seen across a pause and the jitter of a resting arm is not a turn. ``min_gap``: a turn
    less than this many steps after the last event is part of it; gripper changes always count. ``gripper_threshold``:
    the command (or opening) between open and closed; a value within ``hysteresis`` of it changes nothing.
    ``gripper_open``: the sign of ``value - threshold`` when open (-1 as in LIBERO, +1 as in ManiSkill).

    S2 of the paper has neither a smallest speed nor a gap; `every_turn` gives its definition.
    """

    angle: float = 60.0
    min_speed: float = 1e-3
    min_gap: int = 5
    gripper_threshold: float = 0.0
    hysteresis: float = 0.0
    gripper_open: int = -1

    def __post_init__(self) -> None:
        if not 0 < self.angle < 180:
            raise ValueError(f"angle must lie between 0 and 180 degrees, not {self.angle}")
        if self.min_speed < 0 or self.hysteresis < 0 or self.min_gap < 1:
            raise ValueError("min_speed and hysteresis must be at least 0 and min_gap at least 1")
        if self.gripper_open not in (-1, 1):
            raise ValueError(f"gripper_open must be -1 or 1, not {self.gripper_open}")

    def every_turn(self) -> EventConfig:
        """A copy that counts every sharp turn as an event: no smallest speed, no gap between events."""
        return replace(self, min_speed=0.0, min_gap=1)


@dataclass(frozen=True)
class Current:
    """Where a running take stands: the ``onset`` step of its current event, and whether the gripper is ``open``.

    ``open`` is None where the gripper is unknown or has not been commanded yet.
    """

    onset: int
    open: bool | None


def event_starts(
    length: int,
    positions: NDArray[Any] | None = None,
    gripper: NDArray[Any] | None = None,
    config: EventConfig | None = None,
) -> I64:
    """The steps (E,) of ``range(length)`` at which an event starts, in order; empty only where ``length`` is 0.

    ``positions`` (>= length, 2 or 3): end effector at each step. ``gripper`` (T,): command or opening at each step.
    Where a data set lacks one of them (None), there are no events of its kind.
    """
    config = config or EventConfig()
    if length <= 0:
        return np.zeros(0, np.int64)
    changes: set[int] = set()
    if gripper is not None and len(gripper):
        is_open = phases(gripper, config)
        changes = set((np.flatnonzero(is_open[1:] != is_open[:-1]) + 1).tolist())
    turns = set() if positions is None else set(_turns(np.asarray(positions, np.float64), config).tolist())
    starts = [0]
    for step in sorted((changes | turns) & set(range(1, length))):
        if step in changes or step - starts[-1] >= config.min_gap:
            starts.append(step)
    return np.array(starts, np.int64)


def phases(gripper: NDArray[Any], config: EventConfig | None = None) -> Bools:
    """Whether the gripper is open at each step (T,). A first value on the threshold itself counts as open."""
    config = config or EventConfig()
    level = (np.asarray(gripper, np.float64) - config.gripper_threshold) * config.gripper_open
    decided = np.abs(level) > config.hysteresis
    last = np.maximum.accumulate(np.where(decided, np.arange(len(level)), 0))
    result: Bools = np.where(last == 0, level[:1] >= 0, level[last] > 0)
    return result


def current(
    positions: NDArray[Any] | None, gripper: NDArray[Any] | None, config: EventConfig | None = None, *, step: int
) -> Current:
    """The event that a take is in at ``step``: ``positions`` (step + 1, .) and ``gripper`` (step,) so far."""
    seen = None if positions is None else positions[: step + 1]
    commands = None if gripper is None else gripper[:step]
    starts = event_starts(step + 1, seen, commands, config)
    is_open = bool(phases(commands, config)[-1]) if commands is not None and len(commands) else None
    return Current(int(starts[-1]), is_open)


def onset_frames(frame_steps: NDArray[Any], onsets: I64) -> I64:
    """The frames (n,) that represent events with these ``onsets`` (n,): the first at or after each, else the last."""
    frames: I64 = np.minimum(np.searchsorted(frame_steps, onsets), len(frame_steps) - 1)
    return frames


def _turns(positions: F64, config: EventConfig) -> I64:
    """The steps from which the arm moves in another direction than before."""
    moves = np.diff(positions, axis=0)
    speed = length(moves)
    moving = np.flatnonzero(speed > config.min_speed) if len(moves) else np.zeros(0, np.int64)
    if len(moving) < 2:
        return np.zeros(0, np.int64)
    direction = moves[moving] / speed[moving, None]
    cosine = np.einsum("ij,ij->i", direction[1:], direction[:-1])
    turned: I64 = moving[1:][cosine < np.cos(np.deg2rad(config.angle))]
    return turned
