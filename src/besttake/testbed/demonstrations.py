"""Record demonstrations: an expert acts from a start, and its frames, states and actions are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from besttake.testbed.camera import RayCamera
from besttake.testbed.expert import Expert, Style
from besttake.testbed.tasks import HORIZONS, TASKS, World
from besttake.types import F32, U8

WRIST_PX = 48
_STYLES: tuple[Style, ...] = ("std", "alt")
PATIENCE = 2
"""How many horizons an expert may take, since demonstrations have more time than takes."""
_AFTER_SUCCESS = 10
"""Steps for which a demonstration continues after success, so that it includes letting go and moving away."""


@dataclass(frozen=True)
class Demonstration:
    """A successful demonstration: states (T, 20), actions (T, 4), frames (F, 48, 48, 3) at ``frame_steps``."""

    task: str
    seed: int
    states: F32
    actions: F32
    frames: U8
    frame_steps: NDArray[np.int64]


def demonstrations(task: str, seeds: range, style: Style = "std", stride: int | None = None) -> Iterator[Demonstration]:
    """Yield the successful demonstrations of ``task`` from the starts ``seeds``.

    ``stride`` is the number of steps from one wrist frame to the next; None keeps no frames.
    """
    world = World(task)
    camera = RayCamera(world.model, "wrist", WRIST_PX)
    for seed in seeds:
        demonstration = _act(world, camera, seed, style, stride)
        if world.succeeded:
            yield demonstration


def _act(world: World, camera: RayCamera, seed: int, style: Style, stride: int | None) -> Demonstration:
    rng = np.random.default_rng([seed, TASKS.index(world.task), _STYLES.index(style), 1])
    expert = Expert(world.task, rng, style)
    world.reset(seed)
    states: list[F32] = []
    actions: list[F32] = []
    frames: list[U8] = []
    frame_steps: list[int] = []
    left = PATIENCE * HORIZONS[world.task]
    while left:
        if stride and len(actions) % stride == 0:
            frames.append(camera(world.data))
            frame_steps.append(len(actions))
        states.append(world.state())
        actions.append(expert.act(world))
        done_before = world.succeeded
        world.step(actions[-1])
        left = min(left - 1, _AFTER_SUCCESS) if world.succeeded and not done_before else left - 1
    pictures = np.array(frames, np.uint8).reshape(-1, WRIST_PX, WRIST_PX, 3)
    return Demonstration(
        world.task, seed, np.array(states), np.array(actions), pictures, np.array(frame_steps, np.int64)
    )
