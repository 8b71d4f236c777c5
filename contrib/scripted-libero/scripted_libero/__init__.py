"""Scripted demonstrations for LIBERO, from ground-truth poses: ``libero-scripted:spatial|object|goal|10``.

For machines without the published demonstrations. The expert picks and places; a task whose goal asks for more (to
open, to close, to turn on) has no expert. Demonstrations start from LIBERO's own placement sampler and never from one
of the benchmark's fixed starts, so a library made of them has seen no start that is evaluated.

This file is the source of demonstrations. `ground_truth` reads the scene, `expert` plans a demonstration, `rollout`
executes it, `windows` collects demonstrations to learn from, `train` makes policies from them, `trial` tries a policy
on tuning starts, and ``python -m scripted_libero`` counts the expert's successes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice

from besttake.envs.base import check_cameras
from besttake.envs.libero import env as libero
from besttake.options import Reader
from besttake.types import Demo, Start, TaskSpec
from scripted_libero.rollout import attempt, works_on

DEMO_STARTS = range(2000, 3000)
# Where a demonstration comes from is part of a library's fingerprint. This is the first name that the package had.
EXPERT = "besttake.scripted_libero"


class ScriptedDemos:
    """A lazy source of successful demonstrations; reading it twice gives the same demonstrations."""

    def __init__(self, env: libero.LiberoEnv, demos_per_task: int, stride: int, camera: str) -> None:
        self._env, self._count, self._stride = env, demos_per_task, stride
        spec = env.spec
        check_cameras(spec, (camera,))
        self.name = spec.name.replace("libero", "libero-scripted", 1)
        self.camera, self.fps = camera, spec.fps
        self.gripper_dim, self.gripper_open, self.eef_dims = spec.gripper_dim, spec.gripper_open, spec.eef_dims
        self.action_dim, self.state_dim = spec.action_dim, spec.state_dim
        parts = f"{spec.fingerprint} {demos_per_task} {stride} {camera} {DEMO_STARTS.start}"
        self.fingerprint = hashlib.sha256(parts.encode()).hexdigest()[:16]

    def __iter__(self) -> Iterator[Demo]:
        for task in self._env.spec.tasks:
            if works_on(self._env, task.name):
                yield from islice(self._successes(task), self._count)

    def _successes(self, task: TaskSpec) -> Iterator[Demo]:
        for index in DEMO_STARTS[: 3 * self._count]:
            episode = attempt(self._env, Start(task.name, index), camera=self.camera, stride=self._stride)
            if episode.success:
                yield Demo(
                    id=f"{task.name}/{index}", task=task.name, frames=episode.frames, frame_steps=episode.frame_steps,
                    states=episode.states, actions=episode.actions, instruction=task.instruction,
                    source={"start": index, "expert": EXPERT},
                )  # fmt: skip


def make(
    suite: str,
    *,
    task: str | None = None,
    demos_per_task: int | str = 10,
    stride: int | str = 5,
    camera: str = "wrist",
    convention: str = "lerobot",
    size: int | str | None = None,
    state: str = "proprio",
) -> ScriptedDemos:
    """The source ``libero-scripted:SUITE``; ``task``, ``convention``, ``size`` and ``state`` as in ``libero:SUITE``."""
    read = Reader(f"libero-scripted:{suite}")
    count, frame_stride = read.whole("demos_per_task", demos_per_task), read.whole("stride", stride)
    env = libero.make(suite, task=task, convention=convention, size=size, state=state)
    return ScriptedDemos(env, count, frame_stride, camera)
