"""Scripted demonstrations for LIBERO, from ground-truth poses: ``libero-scripted:spatial|object|goal|10``.

For machines without the published demonstrations. The expert picks and places; tasks whose goal asks for more (to
open, to close, to turn on) have none. Demonstrations start from LIBERO's own placement sampler and never from one of
the benchmark's fixed starts, so a library made of them has seen no start that is evaluated.

This file is the source of demonstrations. `ground_truth` reads the scene, `expert` plans a demonstration, `rollout`
executes it, `windows` collects demonstrations to learn from, `train` makes policies from them, `trial` tries a policy
on tuning starts, and ``python -m besttake.contrib.scripted_libero`` counts the expert's successes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from besttake.contrib.scripted_libero.rollout import attempt, works_on
from besttake.envs import libero
from besttake.envs.checks import check_cameras
from besttake.options import Reader
from besttake.types import Demo, Start

DEMO_STARTS = range(2000, 3000)


class ScriptedDemos:
    """A lazy source of successful demonstrations; iterating it twice gives the same twice."""

    def __init__(self, env: libero.LiberoEnv, demos_per_task: int, stride: int, camera: str) -> None:
        self._env, self._count, self._stride = env, demos_per_task, stride
        spec = env.spec
        check_cameras(spec, (camera,))
        self.name = spec.name.replace("libero", "libero-scripted", 1)
        self.camera, self.fps = camera, spec.fps
        self.gripper_dim, self.gripper_open, self.eef_dims = spec.gripper_dim, spec.gripper_open, spec.eef_dims
        self.action_dim, self.state_dim = spec.action_dim, spec.state_dim
        what = f"{spec.fingerprint} {demos_per_task} {stride} {camera} {DEMO_STARTS.start}"
        self.fingerprint = hashlib.sha256(what.encode()).hexdigest()[:16]

    def __iter__(self) -> Iterator[Demo]:
        for task in self._env.spec.tasks:
            if not works_on(self._env, task.name):
                continue
            made = 0
            for index in DEMO_STARTS[: 3 * self._count]:
                tried = attempt(self._env, Start(task.name, index), camera=self.camera, stride=self._stride)
                if not tried.success:
                    continue
                yield Demo(
                    id=f"{task.name}/{index}",
                    task=task.name,
                    frames=tried.frames,
                    frame_steps=tried.frame_steps,
                    states=tried.states,
                    actions=tried.actions,
                    instruction=task.instruction,
                    source={"start": index, "expert": "besttake.contrib.scripted_libero"},
                )
                made += 1
                if made == self._count:
                    break


def make(
    suite: str,
    *,
    task: str | None = None,
    demos_per_task: int | str = 10,
    stride: int | str = 5,
    camera: str = "wrist",
    convention: str = "lerobot",
    size: int | str = 256,
    state: str = "proprio",
) -> ScriptedDemos:
    """The source ``libero-scripted:SUITE``; ``task``, ``convention``, ``size`` and ``state`` as in ``libero:SUITE``."""
    read = Reader(f"libero-scripted:{suite}")
    count, every = read.whole("demos_per_task", demos_per_task), read.whole("stride", stride)
    env = libero.make(suite, task=task, convention=convention, size=size, state=state)
    return ScriptedDemos(env, count, every, camera)
