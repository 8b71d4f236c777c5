"""Small flow policies over the state, each from one self-contained file: ``flow:FILE.safetensors``.

For policies of your own that need no pictures (the plug-in in ``contrib/scripted-libero`` trains some for LIBERO). The
file holds

=======================  ====================================================================================
array                    meaning
=======================  ====================================================================================
state_map, state_shift   (S, F), (F,): network inputs are ``state @ state_map + state_shift``
state_blur               (K, S): the state is seen with ``n @ state_blur`` added, n standard normal, new per chunk
action_mean, action_std  (A,): the flow lives in ``(action - mean) / std``
w0, b0, w1, …            the layers, (in, out); the first reads chunk, inputs, instruction (one of n), flow time
=======================  ====================================================================================

and, as metadata, ``horizon``, ``replan`` and ``instructions`` (JSON; the policy reads which of them it is given).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from besttake.core.arithmetic import product
from besttake.core.retrieve import warm_start
from besttake.errors import ComponentError, one_clear_error
from besttake.files import read_json
from besttake.options import Reader
from besttake.takes.draws import Draw
from besttake.testbed.network import EULER_STEPS, Weights, integrate, time_features
from besttake.types import F32, Observation, PolicySpec, Warm, Warms

TIME_FEATURES = 16
_LONGEST = 10_000


class FlowPolicy:
    """A flow-matching MLP over the state. A row has the same bits alone and in any batch."""

    def __init__(self, name: str, weights: Weights, replan: int | None, blur: float) -> None:
        arrays: dict[str, Any] = {key: array.astype(np.float32) for key, array in weights.arrays.items()}
        _check(arrays)
        self._horizon = Reader(name).whole("horizon", weights.metadata["horizon"], most=_LONGEST)
        self._instructions: tuple[str, ...] = tuple(map(str, read_json(weights.metadata["instructions"])))
        self._map, self._shift = arrays["state_map"], arrays["state_shift"]
        self._blur = np.float32(blur) * arrays["state_blur"]
        self._mean, self._std = arrays["action_mean"], arrays["action_std"]
        self._chunk = self._horizon * len(self._mean)
        first, last = arrays["w0"], len([key for key in arrays if key.startswith("w")]) - 1
        context = self._map.shape[1] + len(self._instructions)
        if first.shape[0] != self._chunk + context + TIME_FEATURES or arrays[f"w{last}"].shape[1] != self._chunk:
            raise ValueError(f"its layers take {first.shape[0]} numbers and its spec gives other sizes")
        self._noise_in, self._context_in = first[: self._chunk], first[self._chunk : -TIME_FEATURES]
        moments = np.stack([time_features(step / EULER_STEPS) for step in range(EULER_STEPS)])
        self._at_time = product(moments, first[-TIME_FEATURES:]) + arrays["b0"]
        self._rest = [(arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(1, last + 1)]
        steps = int(weights.metadata["replan"]) if replan is None else replan
        Reader(name).whole("replan", steps, most=self._horizon)
        self.spec = PolicySpec(
            name=name, kind="flow", horizon=self._horizon, action_dim=len(self._mean), replan=steps,
            state_dim=self._map.shape[0],
            warm_start=True, cools=True, small=True,
            fingerprint=weights.fingerprint(steps, blur),
        )  # fmt: skip

    def sample(self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """One chunk per row, float32 (B, horizon, action_dim) within [-1, 1]."""
        if not observations:
            return np.zeros((0, self._horizon, len(self._mean)), np.float32)
        starts = warm or [None] * len(draws)
        noise = np.stack([self._noise(draw, start) for draw, start in zip(draws, starts, strict=True)])
        which = np.stack([self._which(observation.instruction) for observation in observations])
        seen = product(self.perceive(observations, draws), self._map) + self._shift
        given = product(np.concatenate([seen, which], axis=1).astype(np.float32), self._context_in)
        flown = integrate(
            noise.reshape(len(noise), self._chunk),
            lambda x, step: product(x, self._noise_in) + given + self._at_time[step],
            self._rest,
        )
        return np.asarray(np.clip(flown.reshape(noise.shape) * self._std + self._mean, -1, 1), np.float32)

    def perceive(self, observations: Sequence[Observation], draws: Sequence[Draw]) -> F32:
        """The states (B, state_dim) that it sees: the true ones with its blur added."""
        blur = product(np.stack([draw.normal((len(self._blur),), "perception") for draw in draws]), self._blur)
        return np.asarray(np.stack([observation.state for observation in observations]) + blur, np.float32)

    def _noise(self, draw: Draw, warm: Warm | None) -> F32:
        noise = draw.normal((self._horizon, len(self._mean)))
        if warm is None:
            return noise
        chunk = None if warm.chunk is None else ((warm.chunk - self._mean) / self._std).astype(np.float32)
        return warm_start(noise, warm.noise, warm.prior, chunk)

    def _which(self, instruction: str) -> F32:
        """Encode the instruction as one of n; all zero if the policy knows none."""
        if instruction and self._instructions and instruction not in self._instructions:
            known = ", ".join(self._instructions)
            raise ComponentError(f"{self.spec.name} was not trained on {instruction!r}; it knows {known}")
        return np.array([instruction == known for known in self._instructions], np.float32)


def _check(arrays: Mapping[str, F32]) -> None:
    """ValueError where the arrays are not numbers."""
    for key, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{key} holds values that are not finite numbers")
    if not (arrays["action_std"] > 0).all():
        raise ValueError("action_std has values that are not above zero")


def make(rest: str, replan: int | str | None = None, blur: float | str = 1.0) -> FlowPolicy:
    """The policy in file ``rest``; ``replan`` of its actions are executed, ``blur`` scales its perception error."""
    uri = f"flow:{rest}"
    read = Reader(uri)
    steps, scale = read.optional_whole("replan", replan), read.number("blur", blur)
    path = Path(rest).expanduser()
    if not path.is_file():
        raise ComponentError(f"{uri}: no such file")
    with one_clear_error(f"{uri}: not a flow policy ({{}})"):
        policy = FlowPolicy(f"flow:{path.stem}", Weights.read(path), steps, scale)
        state = np.zeros(policy.spec.state_dim or 0, np.float32)
        policy.sample([Observation({}, state)], [Draw(0, "trial", 0, 0)])  # arrays that do not fit fail here
        return policy
