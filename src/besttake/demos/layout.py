"""What the numbers of a data set mean: which action is the gripper, which values open it, where the end effector is.

A source knows this as far as its format states it. The rest is inferred from the numbers of a few demonstrations.
Every inference or assumption becomes a note for the user, who can override it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.core.events import EventConfig
from besttake.demos.base import AnnotatedSource, NumericSource, Source
from besttake.errors import LibraryError, blaming_each
from besttake.types import F32

_SAMPLE = 30
"""Number of demonstrations whose numbers are examined."""
_FINGER_TRAVEL = 0.1
"""The furthest that a finger of a parallel gripper moves, in metres."""
Rows = list[tuple[F32 | None, F32 | None]]
"""States and actions of each demonstration."""
Turns = Literal["spaced", "every"]


@dataclass(frozen=True)
class DataHints:
    """The user's hints about the layout of the data; None means unspecified.

    ``gripper_open`` is the command that opens the gripper; ``gripper_as`` are the (open, close) commands to use in the
    library. ``turns`` says which sharp turns are events: the ``spaced`` ones of a moving arm, or ``every`` one, as in
    the paper.
    """

    gripper_dim: int | None = None
    eef_dims: Sequence[int] | None = None
    gripper_threshold: float | None = None
    gripper_open: float | None = None
    gripper_as: tuple[float, float] | None = None
    angle: float | None = None
    turns: Turns = "spaced"


@dataclass(frozen=True)
class GripperMapping:
    """A linear map of gripper commands: ``opens`` and ``closes`` of the data become the pair ``to`` in the library."""

    opens: float
    closes: float
    to: tuple[float, float]

    def __call__(self, commands: NDArray[Any]) -> NDArray[Any]:
        """Convert commands of the data to those of the library."""
        return self.to[0] + (commands - self.opens) * ((self.to[1] - self.to[0]) / (self.closes - self.opens))


@dataclass(frozen=True)
class Layout:
    """Where gripper and end effector are, which events are detected, how gripper commands are converted, and notes."""

    gripper_dim: int | None
    eef_dims: tuple[int, ...] | None
    events: EventConfig
    turn: GripperMapping | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _GripperCommands:
    """The gripper commands in the data: from ``low`` to ``high``, either only those two or a range of values."""

    low: float
    high: float
    two_levels: bool

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def slack(self) -> float:
        """Half-width of the dead zone around the middle, for commands that take any value."""
        return 0.0 if self.two_levels else 0.1 * (self.high - self.low)


def layout_of(source: Source, hints: DataHints) -> Layout:
    """Find the layout of ``source`` from the user's ``hints``, its format and its numbers."""
    notes = list(source.notes) if isinstance(source, AnnotatedSource) else []
    gripper = source.gripper_dim if hints.gripper_dim is None else hints.gripper_dim
    eef = source.eef_dims if hints.eef_dims is None else tuple(hints.eef_dims)
    numbers = blaming_each(source.rows(), "reading the demonstrations") if isinstance(source, NumericSource) else ()
    rows = list(islice(numbers, _SAMPLE))
    if gripper is None and (gripper := _two_level_dim(rows)) is not None:
        notes.append(f"action {gripper} was taken for the gripper: it alone has two values")
    if eef is None and (eef := _moved_dims(rows, gripper)) is not None:
        notes.append("states 0, 1, 2 were taken for the end effector's position: they move as actions 0, 1, 2 say")
    elif eef is None and any(states is not None for states, _ in rows):
        notes.append("the data do not say where the end effector is, so no turn is seen; name it with `eef_dims`")
    events, turn = EventConfig(gripper_open=source.gripper_open or -1), None
    commands = None if gripper is None else _commands(rows, gripper)
    if gripper is not None and commands is not None:
        events, turn, more = _gripper_events(source, hints, commands, _measured_open(rows, gripper, commands))
        notes += more
    elif any(actions is not None for _, actions in rows):
        unknown, still = "the data do not say which action is the gripper", "the gripper command never changes"
        ask = "name it with `gripper_dim`" if gripper is None else f"is `gripper_dim` {gripper} right?"
        notes.append(f"{unknown if gripper is None else still}, so no gripper event is seen; {ask}")
    if hints.gripper_threshold is not None and turn is None:
        events = replace(events, gripper_threshold=hints.gripper_threshold)
    if hints.angle is not None:
        events = replace(events, angle=hints.angle)
    if hints.turns == "every":
        events = events.every_turn()
    return Layout(gripper, eef, events, turn, tuple(notes))


def _gripper_events(
    source: Source, hints: DataHints, gripper: _GripperCommands, measured: int | None
) -> tuple[EventConfig, GripperMapping | None, list[str]]:
    """Return how gripper events are detected, how gripper commands are converted, and notes."""
    notes: list[str] = []
    middle = gripper.middle if hints.gripper_threshold is None else hints.gripper_threshold
    wanted = hints.gripper_as
    if hints.gripper_open is not None:
        sign = 1 if hints.gripper_open > middle else -1
    elif measured is not None:
        sign = measured
        if source.gripper_open == -measured:
            notes.append("the fingers open at the other gripper command than the format says; the fingers are believed")
    elif source.gripper_open is not None:
        sign = source.gripper_open
    elif wanted is None or {gripper.low, gripper.high} == set(wanted):
        sign = (1 if gripper.low >= 0 else -1) if wanted is None else (1 if wanted[0] > wanted[1] else -1)
        command = gripper.high if sign > 0 else gripper.low
        notes.append(f"the gripper command {command:g} was taken for the one that opens")
    else:
        raise LibraryError(
            f"{source.name} does not say whether the gripper command {gripper.low:g} or {gripper.high:g} opens,"
            " and the environment uses other commands; say which one with `gripper_open`"
        )
    opens, closes = (gripper.high, gripper.low) if sign > 0 else (gripper.low, gripper.high)
    if wanted is None or (opens, closes) == wanted:
        return EventConfig(gripper_threshold=middle, hysteresis=gripper.slack, gripper_open=sign), None, notes
    turn = GripperMapping(opens, closes, wanted)
    notes.append(
        f"gripper commands {opens:g} (open) and {closes:g} (closed) of the data are {wanted[0]:g} and {wanted[1]:g} in"
        " the library, as the environment takes them"
    )
    config = EventConfig(
        gripper_threshold=float(turn(np.float64(middle))),  # type: ignore[arg-type]
        hysteresis=gripper.slack * abs((wanted[0] - wanted[1]) / (opens - closes)),
        gripper_open=1 if wanted[0] > wanted[1] else -1,
    )
    return config, turn, notes


def _commands(rows: Rows, dim: int) -> _GripperCommands | None:
    """The range of the gripper's commands; None if there are none or they never change.

    Commands within -1 to 1 or 0 to 1 are assumed to follow these conventions, even if none reaches the ends.
    """
    columns = [
        actions[:, dim] for _, actions in rows if actions is not None and -actions.shape[1] <= dim < actions.shape[1]
    ]
    values = np.concatenate([c[np.isfinite(c)] for c in columns]).astype(np.float64) if columns else np.zeros(0)
    if not len(values) or values.max() - values.min() < 1e-6:
        return None
    low, high, levels = float(values.min()), float(values.max()), len(np.unique(values.round(3))) == 2
    if -1.05 <= low < -0.05 and 0.05 < high <= 1.05:
        low, high = -1.0, 1.0
    elif -0.05 <= low <= 0.5 <= high <= 1.05:
        low, high = 0.0, 1.0
    return _GripperCommands(low, high, levels)


def _two_level_dim(rows: Rows) -> int | None:
    """The action dimension that takes exactly two values; None if there is no such dimension or several."""
    tables = [actions for _, actions in rows if actions is not None and len(actions)]
    if not tables or len({table.shape[1] for table in tables}) > 1:
        return None
    actions = np.concatenate(tables).astype(np.float64)
    if not np.isfinite(actions).all():
        return None
    dims = [dim for dim, column in enumerate(actions.T) if len(np.unique(column.round(3))) == 2]
    return dims[0] if len(dims) == 1 else None


def _moved_dims(rows: Rows, gripper: int | None) -> tuple[int, ...] | None:
    """States 0, 1, 2 if they move with the first three of seven actions, the last of which is the gripper."""
    pairs = [(states, actions) for states, actions in rows if states is not None and actions is not None]
    if not pairs or len(pairs) < len(rows) or gripper not in (6, -1):
        return None
    if any(a.shape[1] != 7 or s.shape[1] < 3 or len(s) != len(a) for s, a in pairs):
        return None
    moves = [np.diff(states[:, :3].astype(np.float64), axis=0) for states, _ in pairs]
    commands = [actions[:-1, :3] for _, actions in pairs]
    moved, commanded = np.concatenate(moves), np.concatenate(commands).astype(np.float64)
    if not (np.isfinite(moved).all() and np.isfinite(commanded).all()):
        return None
    spread = (moved.std(axis=0) > 0) & (commanded.std(axis=0) > 0)
    if len(moved) < 8 or not spread.all():
        return None
    return (0, 1, 2) if all(np.corrcoef(moved[:, k], commanded[:, k])[0, 1] > 0.5 for k in range(3)) else None


def _measured_open(rows: Rows, dim: int, gripper: _GripperCommands) -> int | None:
    """The sign of the command at which the two fingers in the state move apart; None if unclear or without fingers."""
    votes = []
    for states, actions in rows:
        opening = None if states is None else _opening(states)
        if opening is None or actions is None or len(opening) != len(actions):
            continue
        high = actions[:, dim] > gripper.middle
        for start in np.flatnonzero(high[1:] != high[:-1]) + 1:
            later = actions[start : start + 10, dim] > gripper.middle
            last = int(start + (np.argmin(later == high[start]) if (later != high[start]).any() else len(later)) - 1)
            if abs(change := float(opening[last] - opening[start])) > 1e-3:
                votes.append((1 if high[start] else -1) * (1 if change > 0 else -1))
    if len(votes) < 2 or abs(np.mean(votes)) < 0.6:
        return None
    return 1 if np.mean(votes) > 0 else -1


def _opening(states: F32) -> NDArray[np.float64] | None:
    """The distance between two fingers at each step, in metres, from the last two states (mirrored or equal)."""
    if states.shape[1] < 2 or len(states) < 4 or not np.isfinite(states).all():
        return None
    left, right = states[:, -2].astype(np.float64), states[:, -1].astype(np.float64)
    if max(abs(left).max(), abs(right).max()) > _FINGER_TRAVEL or min(left.std(), right.std()) < 1e-5:
        return None
    correlation = float(np.corrcoef(left, right)[0, 1])
    if correlation < -0.8 and left.mean() > 0 > right.mean():
        return left - right
    return left + right if correlation > 0.8 and min(left.min(), right.min()) > -0.01 else None
