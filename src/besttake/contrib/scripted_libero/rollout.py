"""One scripted take: the plan executed in the simulator, and what it looked like."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from besttake.contrib.scripted_libero.expert import Manner, plan
from besttake.contrib.scripted_libero.ground_truth import GroundTruth
from besttake.envs.libero import LiberoEnv
from besttake.envs.libero_conventions import REST
from besttake.types import F32, U8, Start

_WAIT = 10
_SHAKEN_FOR = 4


@dataclass(frozen=True)
class Attempt:
    """States (T, state_dim) seen before actions (T, 7), and frames (F, H, W, 3) at ``frame_steps`` (F,)."""

    success: bool
    states: F32
    actions: F32
    frames: U8
    frame_steps: NDArray[np.int64]


def works_on(env: LiberoEnv, task: str) -> bool:
    """Whether the goal of ``task`` is all "put this on or in that", which is what the expert can do."""
    env.reset(Start(task, 0))
    return GroundTruth(env.simulator().robosuite).goals() is not None


def attempt(env: LiberoEnv, start: Start, *, camera: str | None = None, stride: int = 1, shake: float = 0.0) -> Attempt:
    """Run the expert from ``start`` until success, the end of its plan or the horizon.

    The manner of the attempt (speed, height, way round) is a function of the start alone. ``shake`` is the standard
    deviation of a push that is added to the motion executed and not to the action recorded: the recording then shows
    how to come back, which a policy that learns from it needs, because it drifts off too.
    """
    env.reset(start)
    word = hashlib.blake2b(f"{start.task} {start.index}".encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(word, "little"))
    manner = Manner.drawn(rng)
    push = np.zeros(7)
    world = GroundTruth(env.simulator().robosuite)
    states: list[F32] = []
    actions: list[F32] = []
    frames: list[U8] = []
    steps: list[int] = []
    success = False
    for action in _then_wait(plan(world, manner)):
        cameras = () if camera is None or len(actions) % stride else (camera,)
        seen = env.observe(cameras)
        for name in cameras:
            frames.append(seen.images[name])
            steps.append(len(actions))
        states.append(seen.state)
        actions.append(action)
        if shake and len(actions) % _SHAKEN_FOR == 1:
            push[:3] = rng.normal(0, shake, 3)
        success = env.step(np.clip(action + push, -1, 1).astype(np.float32) if shake else action).success
        if success or len(actions) >= env.spec.task(start.task).horizon:
            break
    return Attempt(
        success,
        np.stack(states),
        np.stack(actions),
        np.stack(frames) if frames else np.zeros((0, 1, 1, 3), np.uint8),
        np.array(steps, np.int64),
    )


def _then_wait(actions: Iterator[F32]) -> Iterator[F32]:
    yield from actions
    for _ in range(_WAIT):
        yield REST
