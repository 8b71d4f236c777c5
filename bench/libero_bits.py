"""LIBERO under BestTake against robosuite's own loop, bit for bit: every state and every picture of a take.

    python -m bench.libero_bits [--steps 60] [--size 256] [TASK ...]        # needs hf-libero and its assets

robosuite's side is hf-libero's own environment, which renders both cameras at every step after a hard reset. BestTake's
side is `envs/libero/env.py` as the engine drives it: another start first, then a reset, a step at a time, and once more
from a saved state. Compared are qpos and qvel of the whole scene, what the policy sees of the robot, and both pictures.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from besttake import registry
from besttake.envs.libero.env import LiberoEnv
from besttake.envs.libero.install import import_libero, load_init_states, locate
from besttake.types import Start

# All suites; scenes with and without a mirror (the stove's plate), tables, floors and kitchens; three occluded ones.
TASKS = (
    *("libero:object?task=0", "libero:object?task=4", "libero:object?task=9"),
    *("libero:spatial?task=0", "libero:spatial?task=3", "libero:spatial?task=8"),
    *("libero:goal?task=1", "libero:goal?task=5", "libero:goal?task=7"),
    *("libero:10?task=2", "libero:10?task=5", "libero:10?task=9"),
    *("libero-occ:spatial?task=1", "libero-occ:object?task=2", "libero-occ:goal?task=7"),
)
CAMERAS = {"agentview": "agentview_image", "wrist": "robot0_eye_in_hand_image"}


def drifts(steps: int, seed: int = 0) -> Any:
    """(steps, 7): slow drifts downwards, with pauses, that touch things and close the gripper."""
    actions = np.repeat(np.random.default_rng(seed).uniform(-1, 1, (steps // 10 + 1, 7)), 10, axis=0)[:steps]
    actions[:, 2] -= 0.3
    actions[steps // 4 : steps // 3, :6] = 0
    return actions.clip(-1, 1).astype(np.float32)


def robosuites(env: LiberoEnv, start: int, actions: Any, size: int | None) -> list[list[bytes]]:
    """What robosuite's own loop gives after a hard reset, before the first action and after each (states alone without
    ``size``)."""
    name = env.spec.tasks[0].name
    # robosuite does not make its own graphics context current: another one that lives beside it leaves it blank.
    env.close()
    gc.collect()
    pictures = {"camera_heights": size, "camera_widths": size} if size else {"use_camera_obs": False}
    control = import_libero(locate())
    theirs = control(str(env.bddl(name)), ignore_done=True, has_offscreen_renderer=size is not None, **pictures)
    try:
        theirs.env.object_property_initializers.clear()
        np.random.seed(0)  # noqa: NPY002
        theirs.reset()
        init = env._tasks[name].init
        assert init is not None
        seen = theirs.set_init_state(load_init_states(init)[start])
        for _ in range(10):
            seen, *_ = theirs.step([0.0] * 6 + [-1.0])
        trail = [_their_bytes(theirs, seen)]
        for action in actions:
            seen, *_ = theirs.step(action.tolist())
            trail.append(_their_bytes(theirs, seen))
        return trail
    finally:
        theirs.close()
        del theirs
        gc.collect()


def besttakes(env: LiberoEnv, actions: Any, cameras: Sequence[str] = tuple(CAMERAS)) -> list[list[bytes]]:
    """What BestTake gives from the current state on."""
    trail = [_our_bytes(env, cameras)]
    for action in actions:
        env.step(action)
        trail.append(_our_bytes(env, cameras))
    return trail


def _their_bytes(theirs: Any, seen: Any) -> list[bytes]:
    parts = [theirs.sim.data.qpos, theirs.sim.data.qvel]
    parts += [seen[name].astype(np.float32) for name in ("robot0_eef_pos", "robot0_gripper_qpos")]
    parts += [seen[name][::-1, ::-1] for name in CAMERAS.values() if name in seen]
    return [np.ascontiguousarray(part).tobytes() for part in parts]


def _our_bytes(env: LiberoEnv, cameras: Sequence[str]) -> list[bytes]:
    data = env.simulator().robosuite.sim.data
    seen = env.observe(cameras)
    parts = [data.qpos, data.qvel, seen.state[:3], seen.state[6:8], *(seen.images[camera] for camera in cameras)]
    return [np.ascontiguousarray(part).tobytes() for part in parts]


def compare(uri: str, steps: int, size: int) -> tuple[int, int]:
    """States and pictures that differ, of a take and of the same take from a saved state."""
    env = registry.env(f"{uri}&size={size}&convention=vla-eval")
    assert isinstance(env, LiberoEnv)
    name, actions = env.spec.tasks[0].name, drifts(steps)
    expected = robosuites(env, 3, actions, size)
    env.reset(Start(name, 5))
    env.step(actions[0])
    env.reset(Start(name, 3))
    saved = env.save()
    states = pictures = 0
    for _ in range(2):
        env.restore(saved)
        for theirs, ours in zip(expected, besttakes(env, actions), strict=True):
            states += theirs[:4] != ours[:4]
            pictures += sum(their != our for their, our in zip(theirs[4:], ours[4:], strict=True))
    env.close()
    return states, pictures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="URIs with one task each (default: 15 of all suites)")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--size", type=int, default=256)
    asked = parser.parse_args()
    wrong = 0
    for uri in asked.tasks or TASKS:
        states, pictures = compare(uri, asked.steps, asked.size)
        wrong += states + pictures
        seen = 2 * (asked.steps + 1)
        print(f"{uri}: {states} of {seen} states and {pictures} of {2 * seen} pictures differ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
