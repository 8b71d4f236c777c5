"""Whether demonstrations, a policy and an env can work together, checked before anything runs; one line names both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from besttake.conventions import (
    BRIDGE_STATE,
    COMMANDS,
    CONTROLLER,
    EE6D_STATE,
    LIBERO_STATE,
    POSE,
    POSE_STATE,
    Convention,
    Gripper,
    Ranges,
    action_in,
    gripper_in,
    state_in,
)
from besttake.errors import ComponentError, LibraryError
from besttake.types import Array, EnvSpec, PolicySpec

if TYPE_CHECKING:
    from besttake.demos.library import Library

_OTHER = "this policy was not made for this env"


def check_compatible(policy: PolicySpec, env: EnvSpec) -> None:
    """ComponentError when cameras, sizes or conventions of ``policy`` and ``env`` are known to differ."""
    if missing := ", ".join(camera for camera in policy.cameras if camera not in env.cameras):
        hint = "map the names with ?map=… in the policy's URI (besttake doctor shows what it reads)"
        has = ", ".join(env.cameras)
        raise ComponentError(f"{policy.name} needs camera {missing}, but {env.name} has {has}; {hint}")
    if policy.action_dim != env.action_dim:
        problem = f"gives actions of {policy.action_dim} numbers, but {env.name} takes {env.action_dim}"
        raise ComponentError(f"{policy.name} {problem}; {_OTHER}")
    mine, its = policy.convention, env_convention(env)
    known = mine.state and its.state and mine.state != its.state
    problem = f"reads a state of {mine.state}, but {env.name} gives {its.state}"
    other_state = f"{policy.name} {problem}; {_state_hint(mine.state, its.state) or _OTHER}"
    if policy.state_dim is not None and policy.state_dim != env.state_dim:
        problem = f"reads a state of {policy.state_dim} numbers, but {env.name} gives {env.state_dim}"
        unlike = f"{policy.name} {problem}; choose the convention that the policy was trained with"
        raise ComponentError(other_state if known else unlike)
    if mine.gripper is not None and its.gripper is not None and mine.gripper.differs(its.gripper):
        turn = next((name for name, target in COMMANDS.items() if not target.differs(its.gripper)), "")
        # Only 0 to 1 can be turned, and only the adapters of lerobot: and openvla: do it.
        mends = mine.gripper.low == 0 and turn and policy.name.startswith(("lerobot:", "openvla:"))
        hint = f"add ?gripper={turn} to the policy's URI" if mends else _OTHER
        problem = f"commands the gripper by {mine.gripper}, but {env.name} takes {its.gripper}"
        raise ComponentError(f"{policy.name} {problem}; {hint}")
    if known:
        raise ComponentError(other_state)
    if mine.action and its.action and mine.action != its.action:
        hint = "add ?control=absolute to the env's URI" if (mine.action, its.action) == (POSE, CONTROLLER) else _OTHER
        raise ComponentError(f"{policy.name} gives {mine.action}, but {env.name} takes {its.action}; {hint}")


def check_library(library: Library, env: EnvSpec) -> None:
    """LibraryError when states or actions of ``library`` are known to mean something else than those of ``env``."""
    own, its = library_convention(library), env_convention(env)
    if own.state and its.state and own.state != its.state:
        hint = _state_hint(own.state, its.state) or "use its own robot's"
        raise LibraryError(f"{library.path} has states of {own.state}, but {env.name} gives {its.state}; {hint}")
    check_actions(library, env)


def check_actions(library: Library, env: EnvSpec) -> None:
    """LibraryError when actions of ``library`` are known to mean something else than those of ``env``."""
    own, its = library_convention(library), env_convention(env)
    if own.action and its.action and own.action != its.action:
        what = f"{library.path} has {own.action}, but {env.name} takes {its.action}"
        raise LibraryError(f"{what}; use its own robot's demonstrations")


def env_convention(env: EnvSpec) -> Convention:
    """What is known of ``env``: by its family, and by what its spec says."""
    gripper = env.convention.gripper
    if gripper is None and env.gripper_dim is not None:
        gripper = Gripper(-1, 1, open=env.gripper_open)
    return replace(env.convention, gripper=gripper, rate=env.fps)


def library_convention(library: Library) -> Convention:
    """What the numbers of a library tell."""
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


def _state_hint(mine: str, its: str) -> str:
    if (mine, its) == (EE6D_STATE, LIBERO_STATE):
        return "add ?state=ee6d&control=absolute to the env's URI"
    return "add ?state=bridge to the env's URI" if (mine, its) == (BRIDGE_STATE, POSE_STATE) else ""
