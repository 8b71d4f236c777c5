"""A world and a policy that note where they are: the takes of replicas show which GPU each computed and drew on.

A take's actions are (GPU of the policy, process of the policy, seconds since it began, GPUs in its sight), its
states (GPU of the simulator, EGL device of the simulator).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from besttake.arms.base import TakeState
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.types import F32, EnvSpec, Observation, Start, Step, TaskSpec

STEPS = 4


def gpu() -> tuple[float, int]:
    """The first GPU that this process may use (-1: none), and how many."""
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return float(names[0]) if names else -1.0, len(names)


class World:
    spec = EnvSpec("noting", (TaskSpec("walk", "walk", "go", STEPS),), range(1000), 4, 2, ("eye",), "eye")

    def reset(self, start: Start) -> None:
        pass

    def step(self, action: F32) -> Step:
        return Step(False, False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        state = np.array([gpu()[0], float(os.environ.get("MUJOCO_EGL_DEVICE_ID", -1))], np.float32)
        return Observation({camera: np.zeros((8, 8, 3), np.uint8) for camera in cameras}, state)

    def close(self) -> None:
        pass


def world() -> World:
    return World()


class Noting:
    width = 2

    def __init__(self, began: float) -> None:
        self._began = began

    def sample(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        since = time.time() - self._began
        time.sleep(0.25)
        return [np.array([[gpu()[0], os.getpid(), since, gpu()[1]]], np.float32) for _ in requests]


@dataclass(frozen=True)
class Recipe:
    began: float
    library: str | None = None

    def load(self) -> Noting:
        return Noting(self.began)

    def sampler(self, env: EnvSpec) -> Noting:
        return self.load()

    def sampler_of(self, loaded: Noting, env: EnvSpec) -> Noting:
        return loaded


class Killing(Noting):
    """Kills its process when it is asked for actions of start 0."""

    def sample(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        if any(request.draw.start == 0 for request in requests):
            os.kill(os.getpid(), 9)
        return [request.draw.normal((3, 2)) for request in requests]


@dataclass(frozen=True)
class Deadly:
    library: str | None = None

    def load(self) -> Killing:
        return Killing(0.0)

    def sampler(self, env: EnvSpec) -> Killing:
        return self.load()

    def sampler_of(self, loaded: Killing, env: EnvSpec) -> Killing:
        return loaded


def draw(key: TakeKey) -> Draw:
    return Draw(0, key.task, key.start, key.seed)
