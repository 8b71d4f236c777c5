"""Scripted demonstrations to learn from: made once, without pictures, and kept in one file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

import numpy as np

from besttake.envs.libero.env import LiberoEnv
from besttake.types import F32, Array, Start
from scripted_libero.rollout import Attempt, attempt

TRAINING_STARTS = range(3000, 4000)
"""Starts of the demonstrations that policies learn from; no library uses them, and none is evaluated."""


@dataclass(frozen=True)
class Episodes:
    """Successful demonstrations, one after the other: ``states`` (M, state_dim), ``actions`` (M, 7).

    Demonstration i has ``lengths[i]`` rows, does task ``tasks[i]`` (an index into ``instructions``) and began at
    start ``starts[i]``.
    """

    states: F32
    actions: F32
    lengths: Array
    tasks: Array
    starts: Array
    instructions: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Write to ``path`` (npz, no pickles)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez(
                file, states=self.states, actions=self.actions, lengths=self.lengths, tasks=self.tasks,
                starts=self.starts, instructions=np.array(self.instructions),
            )  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> Episodes:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("states", "actions", "lengths", "tasks", "starts")}
            return cls(**arrays, instructions=tuple(str(text) for text in file["instructions"]))

    def fingerprint(self) -> str:
        """A hash of the numbers."""
        return hashlib.sha256(self.states.tobytes() + self.actions.tobytes()).hexdigest()[:16]

    def windows(self, horizon: int, per_task: int) -> tuple[F32, F32, Array]:
        """States (W, state_dim), the chunks (W, horizon, 7) that follow and the tasks (W,), of ``per_task`` demos each.

        After its end a demonstration stands still and keeps its gripper as it was.
        """
        states, chunks, tasks = [], [], []
        counts = np.zeros(len(self.instructions), int)
        ends = np.cumsum(self.lengths)
        for end, length, task in zip(ends, self.lengths, self.tasks, strict=True):
            counts[task] += 1
            if counts[task] > per_task:
                continue
            actions = self.actions[end - length : end]
            still = np.repeat(actions[-1:] * np.array([0, 0, 0, 0, 0, 0, 1], np.float32), horizon, axis=0)
            padded = np.concatenate([actions, still])
            states.append(self.states[end - length : end])
            chunks.append(np.stack([padded[t : t + horizon] for t in range(length)]))
            tasks.append(np.full(length, task))
        if counts.min() < per_task:
            raise ValueError(f"{per_task} demonstrations per task are needed, but one task has {counts.min()}")
        return np.concatenate(states), np.concatenate(chunks), np.concatenate(tasks)


def collect(
    env: LiberoEnv, per_task: int, shakes: Sequence[float], starts: Sequence[int] = TRAINING_STARTS
) -> Episodes:
    """``per_task`` successes of the expert on each task of ``env``: from each of ``starts``, once with every shake."""
    made: list[tuple[int, int, Attempt]] = []
    for number, task in enumerate(env.spec.tasks):
        attempts = (
            (number, start, attempt(env, Start(task.name, start), shake=shake))
            for start, shake in product(starts, shakes)
        )
        made += islice((each for each in attempts if each[2].success), per_task)
    tasks, used, episodes = zip(*made, strict=True)
    return Episodes(
        states=np.concatenate([episode.states for episode in episodes]),
        actions=np.concatenate([episode.actions for episode in episodes]),
        lengths=np.array([len(episode.actions) for episode in episodes]),
        tasks=np.array(tasks),
        starts=np.array(used),
        instructions=tuple(task.instruction for task in env.spec.tasks),
    )
