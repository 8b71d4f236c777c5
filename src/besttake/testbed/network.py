"""The policies' network in numpy: a flow-matching MLP whose results depend neither on the batch nor on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from besttake.core.arithmetic import exp, product
from besttake.files import short_hash
from besttake.testbed.tasks import ACTION_DIM
from besttake.types import F32, Array

HORIZON = 10
EULER_STEPS = 10
LAYERS = 4
PERCEPTION_METRES = 0.006
SCALE = np.array([5.0] * 3 + [12.0] + [5.0] * 6 + [8.0] * 6 + [1.0] * 4, np.float32)
"""Scales the 20 numbers of a state to network inputs of about unit size."""
FREQUENCIES = (2.0 ** np.arange(8) * np.pi / 4).astype(np.float32)

_CHUNK = HORIZON * ACTION_DIM


def perceive(states: F32, noise: F32) -> F32:
    """States (B, 20) as the policy perceives them: object and goal displaced by ``noise`` (B, 6) metres."""
    perceived = states.copy()
    object_noise, goal_noise = noise[:, :3], noise[:, 3:]
    perceived[:, 4:7] += object_noise
    perceived[:, 7:10] += goal_noise
    perceived[:, 10:13] += object_noise
    perceived[:, 13:16] += goal_noise - object_noise
    return perceived


def time_features(time: float) -> F32:
    """The flow time in [0, 1] as 16 sines and cosines."""
    # Compute in float64: CPUs differ in its last bit only, which rounding to float32 removes.
    angle = (np.float32(time) * FREQUENCIES).astype(np.float64)
    return np.concatenate([np.sin(angle), np.cos(angle)]).astype(np.float32)


@dataclass(frozen=True)
class Weights:
    """The content of a weights file: arrays by name, and metadata."""

    arrays: Mapping[str, Array]
    metadata: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Weights:
        """The weights in the safetensors file at ``path``."""
        from safetensors import safe_open

        with safe_open(path, framework="np") as file:
            return cls({name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {})  # noqa: SIM118

    def fingerprint(self, replan: int, blur: float) -> str:
        """A hash of the weights and of the policy's two settings."""
        arrays = [self.arrays[name].tobytes() for name in sorted(self.arrays)]
        return short_hash(f"{sorted(self.metadata.items())} {replan} {blur}", *arrays)


class FlowNet:
    """Turns noise (B, 10, 4) into action chunks, given states (B, 20)."""

    def __init__(self, weights: Weights) -> None:
        arrays: dict[str, Any] = {name: array.astype(np.float32) for name, array in weights.arrays.items()}
        self.mean, self.std = arrays["action_mean"], arrays["action_std"]
        first = arrays["w0"]
        self._noise_in, self._state_in = first[:_CHUNK], first[_CHUNK:-16]
        moments = np.stack([time_features(k / EULER_STEPS) for k in range(EULER_STEPS)])
        self._first = product(moments, first[-16:]) + arrays["b0"]
        self._rest = [(arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(1, LAYERS)]

    def __call__(self, noise: F32, states: F32) -> F32:
        """Action chunks (B, 10, 4) in the environment's action space, within [-1, 1]."""
        count = len(noise)
        context = product(states * SCALE, self._state_in)
        first = [context + shift for shift in self._first]
        chunks = integrate(
            noise.reshape(count, _CHUNK), lambda x, step: product(x, self._noise_in) + first[step], self._rest
        )
        actions = chunks.reshape(count, HORIZON, ACTION_DIM) * self.std + self.mean
        return np.asarray(np.clip(actions, -1, 1), np.float32)

    def normalise(self, chunk: F32) -> F32:
        """A chunk (10, 4) of the environment's actions, normalised to the network's space."""
        return np.asarray((chunk - self.mean) / self.std, np.float32)


def integrate(x: F32, first: Callable[[F32, int], F32], rest: Sequence[tuple[F32, F32]]) -> F32:
    """Integrate the flow from noise (B, n) to normalised chunks in Euler steps.

    ``first(x, step)`` is the first layer before its activation.
    """
    for step in range(EULER_STEPS):
        hidden = _silu(first(x, step))
        for weight, shift in rest[:-1]:
            hidden = _silu(product(hidden, weight) + shift)
        weight, shift = rest[-1]
        x = x + (product(hidden, weight) + shift) * np.float32(1 / EULER_STEPS)
    return x


def _silu(x: F32) -> F32:
    return np.asarray(x / (1 + exp(-x)), np.float32)
