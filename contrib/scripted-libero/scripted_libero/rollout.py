"""One scripted attempt: the expert's plan, executed in the simulator and recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from besttake.envs.libero.env import LiberoEnv
from besttake.envs.libero.harness import REST
from besttake.types import F32, U8, Start
from scripted_libero.expert import Manner, plan
from scripted_libero.ground_truth import GroundTruth

_WAIT = 10
_STEPS_PER_PUSH = 4


@dataclass(frozen=True)
class Attempt:
    """States (T, state_dim) and the actions (T, 7) taken in them, and frames (F, H, W, 3) at ``frame_steps`` (F,)."""

    success: bool
    states: F32
    actions: F32
    frames: U8
    frame_steps: NDArray[np.int64]


def works_on(env: LiberoEnv, task: str) -> bool:
    """Whether the expert can do ``task``: every condition of its goal is "put this on or in that"."""
    env.reset(Start(task, 0))
    return GroundTruth(env.simulator().robosuite).goals() is not None


def attempt(env: LiberoEnv, start: Start, *, camera: str | None = None, stride: int = 1, shake: float = 0.0) -> Attempt:
    """Run the expert from ``start`` until success, the end of its plan or the horizon.

    The manner of the attempt (speed, height, detour) is a function of the start alone. ``shake`` is the standard
    deviation of a random push that is executed and not recorded: the recording then shows how to come back, which a
    policy has to learn because it drifts off too.
    """
    env.reset(start)
    key = hashlib.blake2b(f"{start.task} {start.index}".encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(key, "little"))
    manner, push = Manner.draw(rng), np.zeros(7)
    world, horizon = GroundTruth(env.simulator().robosuite), env.spec.task(start.task).horizon
    states: list[F32] = []
    actions: list[F32] = []
    frames: list[U8] = []
    steps: list[int] = []
    success = False
    for action in _then_wait(plan(world, manner)):
        cameras = () if camera is None or len(actions) % stride else (camera,)
        observation = env.observe(cameras)
        for name in cameras:
            frames.append(observation.images[name])
            steps.append(len(actions))
        states.append(observation.state)
        actions.append(action)
        if shake and len(actions) % _STEPS_PER_PUSH == 1:
            push[:3] = rng.normal(0, shake, 3)
        success = env.step(np.clip(action + push, -1, 1).astype(np.float32) if shake else action).success
        if success or len(actions) >= horizon:
            break
    pictures = np.stack(frames) if frames else np.zeros((0, 1, 1, 3), np.uint8)
    return Attempt(success, np.stack(states), np.stack(actions), pictures, np.array(steps, np.int64))


def _then_wait(actions: Iterator[F32]) -> Iterator[F32]:
    yield from actions
    for _ in range(_WAIT):
        yield REST
