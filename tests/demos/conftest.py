"""Synthetic demonstrations: a square that moves where the actions say, so that frames, states and actions agree."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from besttake.demos.base import UnreadableDemo
from besttake.types import Demo


def demo(number: int, task: str = "pick", length: int = 30, side: int = 32, every: int = 1, **changes) -> Demo:
    rng = np.random.default_rng(number)
    turn, grasp = length // 3 + number % 3, 2 * length // 3
    actions = np.zeros((length, 4), np.float32)
    actions[:turn, 0], actions[turn:, 1] = 0.02 + 0.001 * number, 0.02
    actions[:, :2] += rng.normal(0, 1e-4, (length, 2))
    actions[:, 3] = np.where(np.arange(length) < grasp, -1, 1)
    position = np.concatenate([np.zeros((1, 3)), np.cumsum(actions[:-1, :3], axis=0)]).astype(np.float32)
    states = np.concatenate([position, actions[:, 3:]], axis=1)
    frames = np.full((length, side, side, 3), 60, np.uint8)
    for t in range(length):
        x, y = (int(v * side) for v in np.clip(position[t, :2], 0, 0.8))
        frames[t, y : y + 6, x : x + 6] = (220, 80, 40 + 100 * (actions[t, 3] > 0))
    steps = np.arange(0, length, every)
    made = {
        "id": f"{task}/{number}", "task": task, "frames": frames[steps], "frame_steps": steps, "states": states,
        "actions": actions, "instruction": f"{task} the block", "source": {"number": number},
    }  # fmt: skip
    return Demo(**{**made, **changes})


@dataclass
class ListSource:
    """A source of given demonstrations that counts how often it is read."""

    demos: Sequence[Demo | UnreadableDemo]
    name: str = "synthetic"
    camera: str = "wrist"
    fps: float = 10.0
    gripper_dim: int | None = 3
    gripper_open: int = -1
    eef_dims: tuple[int, ...] | None = (0, 1, 2)
    reads: list[int] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for item in self.demos:
            digest.update(item.id.encode() + (item.frames.tobytes() if isinstance(item, Demo) else b""))
        return digest.hexdigest()[:16]

    def __iter__(self):
        self.reads.append(1)
        return iter(self.demos)


@pytest.fixture(scope="session")
def make_demo():
    return demo


@pytest.fixture(scope="session")
def source_of():
    return ListSource


@pytest.fixture(scope="session")
def two_tasks():
    return ListSource([demo(i, task) for task in ("pick", "push") for i in range(4)])
