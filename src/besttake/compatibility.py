"""Whether demonstrations, a policy and an env can work together, checked before anything runs; one line names both."""

from __future__ import annotations

from collections.abc import Sequence
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
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.base import is_wrist
from besttake.errors import ComponentError, LibraryError
from besttake.types import Array, EnvSpec, PolicySpec, TaskSpec, World

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


def check_retrieval(library: Library, env: EnvSpec | World, config: RetrievalConfig | None = None) -> None:
    """Check that chunks can be retrieved for ``env``: camera, actions, states and events must match."""
    check_chunks(library, env)
    _check_size(library, env, "states", library.head.state_dim, env.state_dim)
    if config is None or config.rule != "frame":
        library.check_events()


def check_gripper(library: Library, env: EnvSpec | World) -> None:
    """Check that the library's gripper commands match those of ``env``, if both declare them."""
    head = library.head
    opens = getattr(env, "gripper_open", None)
    if head.gripper_dim is None or env.gripper_dim is None or opens is None:
        return
    own = head.event_config
    if own.gripper_open != opens or abs(own.gripper_threshold) > 0.25:
        way = "above" if own.gripper_open > 0 else "below"
        raise LibraryError(
            f"{library.path} has gripper commands that open {way} {own.gripper_threshold:g}, but those of {env.name}"
            f" open {'above' if opens > 0 else 'below'} 0; build it again with `gripper_as` {opens},{-opens}"
        )


def check_chunks(library: Library, env: EnvSpec | World) -> None:
    """Check that demonstrated chunks can be compared with those of a policy in ``env``: camera and actions match."""
    check_camera(library, env)
    _check_size(library, env, "actions", library.head.action_dim, env.action_dim)
    check_gripper(library, env)


def _check_size(library: Library, env: EnvSpec | World, what: str, here: int | None, there: int) -> None:
    if here is None:
        raise LibraryError(
            f"{library.path} holds no {what}, only pictures; it can score takes but not be retrieved from"
        )
    if here != there:
        raise LibraryError(
            f"{library.path} has {what} of {here} numbers, but {env.name} has {there}; use its own robot's"
        )


def check_camera(library: Library, env: EnvSpec | World) -> None:
    """Check that the library has wrist images if and only if ``env`` is scored by a wrist camera."""
    if is_wrist(library.head.camera) != is_wrist(env.score_camera):
        raise LibraryError(
            f"{library.path} shows camera {library.head.camera}, but {env.name} is scored by {env.score_camera};"
            " build it with the matching ?camera=…"
        )


def check_tasks(library: Library, tasks: Sequence[TaskSpec], least: int = 1) -> list[str]:
    """Check that each task has ``least`` demonstrations, and return notes on how tasks were matched.

    If library and plan have one task each under different names, they are taken to be the same, and a note says so.
    A library without task names is used for all tasks.
    """
    notes = []
    for task in tasks:
        rows, matched = library.demos_of(task.name, task.instruction)
        if matched == "all" and any(library.tasks):
            if len(tasks) > 1 or len(library.tasks) > 1:
                rows = []
            else:
                notes.append(f"the library calls its task {library.tasks[0]!r}; it was taken for {task.name}")
        if len(rows) < least:
            raise LibraryError(
                f"{library.path} has {len(rows)} of the {least} demonstrations of {task.name} that are needed (its"
                f" tasks: {', '.join(library.tasks)}); add more, or leave the task out"
            )
    return notes


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
