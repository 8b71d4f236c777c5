"""The policy behind all sessions, and one client's episode in it.

Draws make served sampling repeatable. Where the client names its episode (task and start) the draw is that of the
episode, whichever connection brings it, and ``seed`` counts how often the episode has been started; where it does not,
``start`` is the number of the connection and ``seed`` counts its episodes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from besttake.errors import ComponentError
from besttake.policies.augmented import Augmented, Course
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Array, Observation, PolicySpec

_MOST_EPISODES = 1_000_000
_MOST_LETTERS = 10_000
MOST_STEPS = 1_000_000
"""What a server keeps of its clients is bounded: named episodes, letters of a name, steps of one episode."""


class Served:
    """The policy behind all sessions: one sample at a time, cameras by the client's names, episodes counted.

    ``cameras`` maps the policy's cameras to the client's image keys; those not named keep their own name.
    """

    def __init__(self, policy: Policy, seed: int, cameras: Mapping[str, str]) -> None:
        unknown = set(cameras) - set(policy.spec.cameras)
        if unknown:
            have = ", ".join(policy.spec.cameras) or "none"
            raise ComponentError(f"cameras names {', '.join(sorted(unknown))}; {policy.spec.name} reads: {have}")
        self.spec: PolicySpec = policy.spec
        self.seed = seed
        self.cameras = {camera: cameras.get(camera, camera) for camera in policy.spec.cameras}
        self.follows = isinstance(policy, Augmented) and policy.looks_back
        """Whether the policy looks back over the episode, so that its course must be kept."""
        self._policy = policy
        self._lock = threading.Lock()
        self._episodes: Counter[tuple[str, int]] = Counter()

    def sample(self, observation: Observation, draw: Draw, course: Course) -> F32:
        """One chunk (horizon, action_dim); sessions take turns, because policies are not asked to be thread-safe."""
        with self._lock:
            if self.follows and isinstance(self._policy, Augmented):
                chunk = self._policy.follow(observation, draw, course)
            else:
                chunk = self._policy.sample([observation], [draw])[0]
        if not np.isfinite(chunk).all():
            raise ComponentError(f"{self.spec.name}: actions that are not finite (NaN or Inf)")
        return chunk

    def episode(self, task: str, start: int) -> Draw:
        """The draw of the next episode of ``task`` from ``start``."""
        with self._lock:
            if len(task) > _MOST_LETTERS or len(self._episodes) >= _MOST_EPISODES:
                raise ComponentError("too many episodes, or too long a name; start the server again")
            seed = self._episodes[task, start]
            self._episodes[task, start] += 1
        return Draw(self.seed, task, start, seed)

    def describe(self) -> dict[str, Any]:
        """What a `besttake` client needs to know, in plain values."""
        plain = {name: getattr(self.spec, name) for name in ("name", "horizon", "action_dim", "replan")}
        return {**plain, "cameras": list(self.cameras.values())}

    def observation(self, images: Mapping[str, Any], state: Any, instruction: Any) -> Observation:
        """A client's values as an observation, each checked."""
        if not set(self.cameras.values()) <= set(images):
            raise ComponentError(
                f"{self.spec.name} needs images {', '.join(self.cameras.values())}; the client sent: "
                f"{', '.join(map(str, images)) or 'none'}; rename them with `cameras`"
            )
        pictures = {camera: _picture(images[key], key) for camera, key in self.cameras.items()}
        return Observation(pictures, self.state(state), str(instruction))

    def state(self, value: Any) -> F32:
        """A client's state as a vector of the size that the policy needs."""
        if value is None and not self.spec.state_dim:
            return np.zeros(0, np.float32)
        state: Array = np.asarray(value if value is not None else [])
        if state.dtype.kind not in "biuf" or state.ndim != 1:
            raise ComponentError(f"the state must be a vector of numbers, not {state.dtype} {state.shape}")
        name, size = self.spec.name, self.spec.state_dim
        if size is not None and len(state) != size:
            raise ComponentError(f"{name} needs {size} state numbers, the client sent {len(state)}")
        return state.astype(np.float32)


class Episode:
    """One episode of a client: the draws of its chunks and its course so far.

    ``sampled`` is the last chunk; its actions join the course when they are known to have been executed.
    """

    def __init__(self, served: Served, draw: Draw, task: str = "") -> None:
        self._served, self._draw = served, draw
        self.course = Course(task)
        self.sampled: F32 = np.empty((0, served.spec.action_dim), np.float32)

    def sample(self, seen: Observation) -> F32:
        """The next chunk, (horizon, action_dim)."""
        self.sampled = self._served.sample(seen, self._draw, self.course)
        self._draw = self._draw.at(self._draw.chunk + 1)
        return self.sampled


def _picture(value: Any, key: str) -> U8:
    image: Array = np.asarray(value)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ComponentError(f"image {key!r} must be uint8 (H, W, 3), not {image.dtype} {image.shape}")
    return image
