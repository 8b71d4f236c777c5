"""What the numbers and pictures of robots mean, and whether demonstrations, policy and environment agree on it.

They must mean the same by a gripper command, a state and an action; equal sizes prove nothing. The conventions of a
checkpoint or a library are recognised by the ranges of its numbers. What cannot be recognised is shown as unknown, and
never refused. docs/environments.md lists what is known of each family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from besttake.errors import ComponentError, LibraryError

if TYPE_CHECKING:
    from besttake.demos.library import Library
    from besttake.types import Array, EnvSpec, PolicySpec

Ranges = Sequence[tuple[float, float]]
"""The lowest and the highest value of each number."""


@dataclass(frozen=True)
class Gripper:
    """A gripper command from ``low`` to ``high``; ``open`` is the end that opens, or None if unknown."""

    low: float
    high: float
    open: float | None = None

    def __str__(self) -> str:
        if self.open is None:
            return f"{self.low:g} to {self.high:g}"
        opens, closes = (f"{end:+g}" if self.low < 0 else f"{end:g}" for end in self._ends())
        return f"{opens} open, {closes} closed"

    def differs(self, other: Gripper) -> bool:
        """Whether the two are known to mean different things."""
        if (self.low, self.high) != (other.low, other.high):
            return True
        return self.open is not None and other.open is not None and self.open != other.open

    def command(self, openness: NDArray[np.float32]) -> NDArray[np.float32]:
        """The command that opens where ``openness`` is above 0.5, else the one that closes."""
        opens, closes = self._ends()
        return np.asarray(np.where(openness > 0.5, opens, closes), np.float32)

    def openness(self, command: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert commands to 0 (closed) to 1 (open)."""
        opens, closes = self._ends()
        return np.asarray(np.clip((command - closes) / (opens - closes), 0, 1), np.float32)

    def _ends(self) -> tuple[float, float]:
        """The commands that open and close."""
        assert self.open is not None
        return self.open, self.low + self.high - self.open


CLOSES_UP = Gripper(-1, 1, open=-1)
OPENS_UP = Gripper(-1, 1, open=1)
OPENNESS = Gripper(0, 1, open=1)

COMMANDS: Mapping[str, Gripper] = {"libero": CLOSES_UP, "simpler": OPENS_UP}
"""The commands for each value of a policy's option ``gripper``."""

LIBERO_STATE = "position 3, axis-angle 3, fingers 2"
BRIDGE_STATE = "position 3, roll-pitch-yaw 3, pad 1, openness 1"
POSE_STATE = "position 3, quaternion wxyz 4, openness 1"
EE6D_STATE = "position 3, two columns of the rotation 6, zeros 11"
POSE = "position 3 and axis-angle 3 to go to, in metres and radians"
CONTROLLER = "changes of position 3 and rotation 3, 1 is 5 cm or 0.5 rad"
METRIC = "changes of position 3 and rotation 3, in metres and radians"
TESTBED_STATE = "hand 3, opening 1, object 3, goal 3, differences 6, task 4"
TESTBED_ACTION = "changes of position 3, 1 is 3.2 cm"
TURNED = "turned by 180 degrees"
UPRIGHT = "upright"


@dataclass(frozen=True)
class Convention:
    """The conventions of one side; None or empty if unknown. ``turn`` and ``size`` are of its pictures."""

    gripper: Gripper | None = None
    state: str = ""
    action: str = ""
    turn: str = ""
    size: str = ""
    rate: float | None = None


UNKNOWN = Convention()


TESTBED = Convention(CLOSES_UP, TESTBED_STATE, TESTBED_ACTION, UPRIGHT, "48 x 48", 20)
LIBERO = Convention(CLOSES_UP, LIBERO_STATE, CONTROLLER, TURNED, "by convention", 20)
"""By robosuite 1.4.0 (OSC_POSE) and hf-libero 0.1.4."""
MANISKILL_BRIDGE = Convention(OPENS_UP, POSE_STATE, METRIC, UPRIGHT, "640 x 480", 5)
"""By bridge_dataset_eval of mani-skill 3.0.1."""
GOOGLE_ROBOT = Convention(OPENNESS, POSE_STATE, METRIC, UPRIGHT, "640 x 512", 3)
"""By benchmarks/simpler of vla-eval 0.8.0."""


def gripper_in(ranges: Ranges, dim: int | None) -> Gripper | None:
    """The gripper convention of action ``dim``, judged by the ranges of the actions; None if unknown."""
    if dim is None or not -len(ranges) <= dim < len(ranges):
        return None
    low, high = ranges[dim]
    if -1.1 <= low <= -0.5 and 0.5 <= high <= 1.1:
        return Gripper(-1, 1)
    return Gripper(0, 1) if -0.05 <= low < 0.3 and 0.7 < high <= 1.05 else None


def gripper_by_moments(mean: float, sd: float) -> Gripper | None:
    """The gripper convention with two commands that has this mean and standard deviation; None if there is none.

    Commands of 0 or 1 with mean m have the variance m (1 - m), those of -1 or 1 have 1 - m^2.
    """
    fits = [
        gripper
        for gripper, variance in ((Gripper(0, 1), mean * (1 - mean)), (Gripper(-1, 1), 1 - mean**2))
        if variance > 0.01 and abs(sd**2 - variance) < 0.02 * variance + 0.002
    ]
    return fits[0] if len(fits) == 1 else None


def state_in(ranges: Ranges) -> str:
    """The layout of states with these ``ranges``; empty if unknown."""
    if len(ranges) != 8:
        return ""
    (low6, high6), (low7, high7) = ranges[6], ranges[7]
    small = max(abs(low6), abs(high6), abs(low7), abs(high7)) <= 0.1 and high6 > low6 and high7 > low7
    if small and low6 + high6 > 0 > low7 + high7:  # the fingers of a Panda mirror each other
        return LIBERO_STATE
    if not (-0.1 <= low7 < high7 <= 1.2 and high7 > 0.5):
        return ""
    if low6 == high6 == 0:
        return BRIDGE_STATE
    return POSE_STATE if all(-1.01 <= low < high <= 1.01 for low, high in ranges[3:7]) else ""


def action_in(ranges: Ranges) -> str:
    """The units of seven numbers with these ``ranges``; empty if unknown."""
    if len(ranges) != 7:
        return ""
    widest = max(abs(end) for pair in ranges[:3] for end in pair)
    return CONTROLLER if 0.6 <= widest <= 1.01 else METRIC if 0 < widest <= 0.1 else ""


@dataclass(frozen=True)
class Aspect:
    """One aspect of the conventions of data, policy and env; ``differs`` if two known values contradict each other.

    An aspect that is not ``compared`` may differ without harm.
    """

    what: str
    data: str
    policy: str
    env: str
    differs: bool = False
    compared: bool = True


def side_by_side(data: Convention | None, policy: Convention | None, env: Convention | None) -> tuple[Aspect, ...]:
    """Compare the aspects of up to three sides. Sizes and rates may differ without harm, so they are only shown."""
    sides = [side or UNKNOWN for side in (data, policy, env)]
    present = [side is not None for side in (data, policy, env)]

    def line(what: str, values: Sequence[str], differs: bool = False, compared: bool = True) -> Aspect:
        data, policy, env = (value or "unknown" if there else "" for value, there in zip(values, present, strict=True))
        return Aspect(what, data, policy, env, differs, compared)

    grippers = [side.gripper for side in sides if side.gripper is not None]
    differ = any(first.differs(second) for first in grippers for second in grippers)
    lines = [line("gripper command", ["" if side.gripper is None else str(side.gripper) for side in sides], differ)]
    for what, name in (("state layout", "state"), ("action units", "action"), ("pictures", "turn")):
        values = [getattr(side, name) for side in sides]
        lines.append(line(what, values, len({value for value in values if value}) > 1))
    lines.append(line("picture size", [side.size for side in sides], compared=False))
    rates = ["" if side.rate is None else f"{side.rate:g} a second" for side in sides]
    lines.append(line("steps", rates, compared=False))
    return tuple(lines)


def axis_angle(xyzw: Any) -> NDArray[np.float64]:
    """Convert unit quaternions (..., 4), x y z w, to rotation vectors (..., 3), as robosuite's ``quat2axisangle``.

    q and -q, which are the same rotation, give different vectors: LeRobot and openpi do so as well, and policies were
    trained on this form.
    """
    quaternions = np.asarray(xyzw, np.float64)
    w = np.clip(quaternions[..., 3:], -1.0, 1.0)
    sine = np.sqrt(1.0 - w * w)
    turned = quaternions[..., :3] * 2.0 * np.arccos(w) / np.where(sine == 0, 1.0, sine)
    return np.where(sine == 0, 0.0, turned)


_OTHER = "this policy was not made for this env"


def check_compatible(policy: PolicySpec, env: EnvSpec) -> None:
    """ComponentError if cameras, sizes or conventions of ``policy`` and ``env`` are known to differ."""
    trained, world = policy.convention, env_convention(env)
    if missing := ", ".join(camera for camera in policy.cameras if camera not in env.cameras):
        problem = f"needs camera {missing}, but {env.name} has {', '.join(env.cameras)}"
        hint = "map the names with ?map=… in the policy's URI (besttake doctor shows what it reads)"
    elif policy.action_dim != env.action_dim:
        problem, hint = f"gives actions of {policy.action_dim} numbers, but {env.name} takes {env.action_dim}", _OTHER
    elif trained.state and world.state and trained.state != world.state:
        problem = f"reads a state of {trained.state}, but {env.name} gives {world.state}"
        hint = _state_hint(trained.state, world.state) or _OTHER
    elif policy.state_dim is not None and policy.state_dim != env.state_dim:
        problem = f"reads a state of {policy.state_dim} numbers, but {env.name} gives {env.state_dim}"
        hint = "choose the convention that the policy was trained with"
    elif trained.gripper is not None and world.gripper is not None and trained.gripper.differs(world.gripper):
        turn = next((name for name, target in COMMANDS.items() if not target.differs(world.gripper)), "")
        can_turn = trained.gripper.low == 0 and turn and policy.turns_gripper
        problem = f"commands the gripper by {trained.gripper}, but {env.name} takes {world.gripper}"
        hint = f"add ?gripper={turn} to the policy's URI" if can_turn else _OTHER
    elif trained.action and world.action and trained.action != world.action:
        absolute = (trained.action, world.action) == (POSE, CONTROLLER)
        problem = f"gives {trained.action}, but {env.name} takes {world.action}"
        hint = "add ?control=absolute to the env's URI" if absolute else _OTHER
    else:
        return
    raise ComponentError(f"{policy.name} {problem}; {hint}")


def check_library(library: Library, env: EnvSpec) -> None:
    """LibraryError if states or actions of ``library`` are known to mean something else than those of ``env``."""
    data, world = library_convention(library), env_convention(env)
    if data.state and world.state and data.state != world.state:
        hint = _state_hint(data.state, world.state) or "use demonstrations of the same robot"
        raise LibraryError(f"{library.path} has states of {data.state}, but {env.name} gives {world.state}; {hint}")
    check_actions(library, env)


def check_actions(library: Library, env: EnvSpec) -> None:
    """LibraryError if actions of ``library`` are known to mean something else than those of ``env``."""
    data, world = library_convention(library), env_convention(env)
    if data.action and world.action and data.action != world.action:
        problem = f"{library.path} has {data.action}, but {env.name} takes {world.action}"
        raise LibraryError(f"{problem}; use demonstrations of the same robot")


def env_convention(env: EnvSpec) -> Convention:
    """What gripper, states and actions of ``env`` mean, as its spec says, and its frame rate."""
    gripper = env.convention.gripper
    if gripper is None and env.gripper_dim is not None:
        gripper = Gripper(-1, 1, open=env.gripper_open)
    return replace(env.convention, gripper=gripper, rate=env.fps)


def library_convention(library: Library) -> Convention:
    """What gripper, states and actions of a library mean, as far as their numbers show it, and its frame rate."""
    head = library.head
    states, actions = ranges_of(library.states), ranges_of(library.actions)
    gripper = gripper_in(actions, head.gripper_dim)
    if gripper is not None:
        opens = gripper.high if head.event_config.gripper_open > 0 else gripper.low
        gripper = replace(gripper, open=opens)
    return Convention(gripper, state_in(states), action_in(actions), rate=head.fps)


def ranges_of(rows: Array | None) -> Ranges:
    """The lowest and the highest value of each column of ``rows`` (n, k)."""
    if rows is None or not len(rows):
        return ()
    return list(zip(np.min(rows, axis=0).tolist(), np.max(rows, axis=0).tolist(), strict=True))


def _state_hint(wanted: str, state: str) -> str:
    if (wanted, state) == (EE6D_STATE, LIBERO_STATE):
        return "add ?state=ee6d&control=absolute to the env's URI"
    return "add ?state=bridge to the env's URI" if (wanted, state) == (BRIDGE_STATE, POSE_STATE) else ""
