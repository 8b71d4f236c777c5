"""The policies' network in numpy: a flow-matching MLP whose rows do not depend on the batch, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from besttake.files import short_hash
from besttake.testbed.tasks import ACTION_DIM
from besttake.types import F32, Array, Warm

HORIZON = 10
EULER_STEPS = 10
LAYERS = 4
PERCEPTION_METRES = 0.006
SCALE = np.array([5.0] * 3 + [12.0] + [5.0] * 6 + [8.0] * 6 + [1.0] * 4, np.float32)
"""From the 20 numbers of a state to network inputs of about unit size."""
FREQUENCIES = (2.0 ** np.arange(8) * np.pi / 4).astype(np.float32)

_CHUNK = HORIZON * ACTION_DIM
_WIDTHS = (16, 8, 4, 1)
_SLICE = 32


def perceive(states: F32, noise: F32) -> F32:
    """States (B, 20) as the policy sees them: object and goal moved by ``noise`` (B, 6) metres, consistently."""
    seen = states.copy()
    thing, goal = noise[:, :3], noise[:, 3:]
    seen[:, 4:7] += thing
    seen[:, 7:10] += goal
    seen[:, 10:13] += thing
    seen[:, 13:16] += goal - thing
    return seen


def time_features(time: float) -> F32:
    """The flow time in [0, 1] as 16 sines and cosines."""
    angle = np.float32(time) * FREQUENCIES
    return np.concatenate([np.sin(angle), np.cos(angle)])


@dataclass(frozen=True)
class Weights:
    """What a weights file holds: arrays by name and what is said of them."""

    arrays: Mapping[str, Array]
    metadata: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Weights:
        """The weights in the safetensors file at ``path``."""
        from safetensors import safe_open

        with safe_open(path, framework="np") as file:
            return cls({name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {})  # noqa: SIM118

    def fingerprint(self, replan: int, blur: float) -> str:
        """A hash of the weights and of the two settings that a policy adds to them."""
        arrays = [self.arrays[name].tobytes() for name in sorted(self.arrays)]
        return short_hash(f"{sorted(self.metadata.items())} {replan} {blur}", *arrays)


class FlowNet:
    """Carries noise (B, 10, 4) to action chunks, given states (B, 20).

    Rows are evaluated in blocks of one fixed width, filled up with zeros, and lie along the vector lanes of the
    matrix product, where the BLAS treats them alike: a row then has the same bits alone and anywhere in any batch.
    That is tried when the network is made, and a BLAS that fails the trial gets narrower blocks. Weights are `sliced`,
    since sharing a product among threads would tie the bits to their number.
    """

    def __init__(self, weights: Weights) -> None:
        arrays: dict[str, Any] = {name: array.astype(np.float32) for name, array in weights.arrays.items()}
        self.mean, self.std = arrays["action_mean"], arrays["action_std"]
        first = arrays["w0"]
        self._noise_in, self._state_in = sliced(first[:_CHUNK]), sliced(first[_CHUNK:-16])
        moments = [time_features(k / EULER_STEPS) for k in range(EULER_STEPS)]
        self._first = [(features @ first[-16:] + arrays["b0"])[:, None] for features in moments]
        self._rest = [(sliced(arrays[f"w{i}"]), arrays[f"b{i}"][:, None]) for i in range(1, LAYERS)]
        self._width = next(width for width in _WIDTHS if width == 1 or self._places_are_alike(width))

    def __call__(self, noise: F32, states: F32, begins: Array | None = None) -> F32:
        """Action chunks (B, 10, 4) in the environment's space, within [-1, 1].

        ``begins`` (B,): after which step of the flow each row sets out (0: at its beginning).
        """
        count = len(noise)
        rows = np.zeros(count + -count % self._width, np.int64)
        rows[:count] = 0 if begins is None else begins
        inputs = np.concatenate([noise.reshape(count, _CHUNK), states * SCALE], axis=1)
        inputs = np.pad(inputs, ((0, -count % self._width), (0, 0)))
        blocks = inputs.reshape(-1, self._width, inputs.shape[1])
        parts = zip(blocks, rows.reshape(-1, self._width), strict=True)
        flown = np.concatenate([self._flow(block, begin) for block, begin in parts])[:count]
        chunks = flown.reshape(count, HORIZON, ACTION_DIM) * self.std + self.mean
        return np.asarray(np.clip(chunks, -1, 1), np.float32)

    def normalise(self, chunk: F32) -> F32:
        """A chunk (10, 4) of the environment's actions in the space that the flow lives in."""
        return np.asarray((chunk - self.mean) / self.std, np.float32)

    def _flow(self, block: F32, begin: Array) -> F32:
        """Noise and state (width, 60) to normalised chunks (width, 40), in Euler steps."""
        columns = np.ascontiguousarray(block.T)
        context = times(self._state_in, columns[_CHUNK:])
        first = [context + shift for shift in self._first]
        return carry(columns[:_CHUNK], lambda x, step: times(self._noise_in, x) + first[step], self._rest, begin).T

    def _places_are_alike(self, width: int) -> bool:
        block = np.random.default_rng(0).standard_normal((width, _CHUNK + len(SCALE)), np.float32)
        places, begin = np.arange(width), np.zeros(width, np.int64)
        flown = self._flow(block, begin)
        moved = [np.roll(places, shift) for shift in range(1, width)] + [places[::-1]]
        return all(np.array_equal(self._flow(block[order], begin), flown[order]) for order in moved)


def sliced(weight: F32) -> F32:
    """A weight (in, out) transposed and cut along its outputs: (slices, out / slices, in).

    Each slice is too small for the BLAS to share among threads.
    """
    inputs, outputs = weight.shape
    return np.ascontiguousarray(weight.T).reshape(-1, _SLICE if outputs % _SLICE == 0 else outputs, inputs)


def times(weight: F32, x: F32) -> F32:
    """The product of a sliced weight and ``x``, (in,) or (in, width): (out,) or (out, width)."""
    return np.asarray(np.matmul(weight, x).reshape(-1, *x.shape[1:]), np.float32)


def begins_at(warm: Warm | None) -> int:
    """After which Euler step a sample sets out."""
    return 0 if warm is None else round(warm.time * EULER_STEPS)


def carry(x: F32, first: Callable[[F32, int], F32], rest: Sequence[tuple[F32, F32]], begin: int | Array = 0) -> F32:
    """Noise to a normalised chunk in Euler steps; ``first(x, step)`` is the first layer before its activation.

    ``begin``, of x or of each of its columns: the steps before it leave x as it is.
    """
    with np.errstate(over="ignore"):
        for step in range(int(np.min(begin)), EULER_STEPS):
            hidden = _silu(first(x, step))
            for weight, shift in rest[:-1]:
                hidden = _silu(times(weight, hidden) + shift)
            weight, shift = rest[-1]
            moved = x + (times(weight, hidden) + shift) * np.float32(1 / EULER_STEPS)
            x = moved if np.max(begin) <= step else np.where(step >= begin, moved, x)
    return x


def _silu(x: F32) -> F32:
    return np.asarray(x / (1 + np.exp(-x)), np.float32)
