"""One client of the server: frames in, frames out. A session knows a protocol; it knows nothing of sockets.

Draws make served sampling repeatable. Where the client names its episode (vla-eval sends the task and
``episode_idx``) the draw is that of the episode, whichever connection brings it, and ``seed`` counts how often the
episode has been started; where it does not (openpi), ``start`` is the number of the connection and ``chunk`` counts
requests.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from besttake.errors import BestTakeError, ComponentError
from besttake.policies.base import Policy
from besttake.policies.wire import (
    VLA_EVAL_VERSION,
    Message,
    pack_message,
    pack_openpi,
    unpack_message,
    unpack_openpi,
)
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Array, Observation, PolicySpec


class Served:
    """The policy behind all sessions: one sample at a time, cameras by the client's names, episodes counted.

    ``cameras`` maps the policy's cameras to the client's image keys; those not named keep their own name.
    """

    def __init__(
        self, policy: Policy, seed: int, cameras: Mapping[str, str], observation_params: Mapping[str, Any]
    ) -> None:
        unknown = set(cameras) - set(policy.spec.cameras)
        if unknown:
            have = ", ".join(policy.spec.cameras) or "none"
            raise ComponentError(f"cameras names {', '.join(sorted(unknown))}; {policy.spec.name} reads: {have}")
        self.spec: PolicySpec = policy.spec
        self.seed = seed
        self.cameras = dict(cameras)
        self.observation_params = dict(observation_params)
        self._policy = policy
        self._lock = threading.Lock()
        self._episodes: Counter[tuple[str, int]] = Counter()

    def sample(self, observation: Observation, draw: Draw) -> F32:
        """One chunk (horizon, action_dim); sessions take turns, because policies are not asked to be thread-safe."""
        with self._lock:
            chunk: F32 = self._policy.sample([observation], [draw])[0]
        if not np.isfinite(chunk).all():
            raise ComponentError(f"{self.spec.name}: actions that are not finite (NaN or Inf)")
        return chunk

    def episode(self, task: str, start: int) -> Draw:
        """The draw of the next episode of ``task`` from ``start``."""
        with self._lock:
            seed = self._episodes[task, start]
            self._episodes[task, start] += 1
        return Draw(self.seed, task, start, seed)

    def describe(self) -> dict[str, Any]:
        """What a `besttake` client needs to know, in plain values."""
        spec = self.spec
        return {
            "name": spec.name,
            "horizon": spec.horizon,
            "action_dim": spec.action_dim,
            "replan": spec.replan,
            "cameras": [self.cameras.get(camera, camera) for camera in spec.cameras],
        }

    def observation(self, images: Mapping[str, Any], state: Any, instruction: Any) -> Observation:
        """A client's values as an observation, each checked."""
        wanted = {camera: self.cameras.get(camera, camera) for camera in self.spec.cameras}
        missing = [key for key in wanted.values() if key not in images]
        if missing:
            raise ComponentError(
                f"{self.spec.name} needs images {', '.join(wanted.values())}; the client sent: "
                f"{', '.join(map(str, images)) or 'none'}; rename them with --cameras"
            )
        return Observation(
            images={camera: _picture(images[key], key) for camera, key in wanted.items()},
            state=self._state(state),
            instruction=str(instruction),
        )

    def _state(self, value: Any) -> F32:
        if value is None and not self.spec.state_dim:
            return np.zeros(0, np.float32)
        state: Array = np.asarray(value if value is not None else [])
        if state.dtype.kind not in "biuf" or state.ndim != 1:
            raise ComponentError(f"the state must be a vector of numbers, not {state.dtype} {state.shape}")
        if self.spec.state_dim is not None and len(state) != self.spec.state_dim:
            raise ComponentError(
                f"{self.spec.name} needs {self.spec.state_dim} state numbers, the client sent {len(state)}"
            )
        return state.astype(np.float32)


class VlaEvalSession:
    """A connection of vla-eval's harness: hello, then episodes of observations, one action each."""

    def __init__(self, served: Served, connection: int) -> None:
        self._served = served
        self._connection = connection
        self._draw = Draw(served.seed, "connection", connection, 0)
        self._unnamed = 0
        self._chunk = 0
        self._ready: deque[F32] = deque()

    def greeting(self) -> bytes | None:
        """The harness speaks first."""
        return None

    def answer(self, frame: bytes | str) -> bytes | str | None:
        """The frame to send back, or None; a failure becomes an error message and the session goes on."""
        seq = 0
        try:
            message = unpack_message(frame)
            seq = message.seq
            return self._reply(message)
        except BestTakeError as error:
            return pack_message(Message("error", {"error": str(error)}, seq))
        except Exception as error:  # whatever the policy raises is the client's to see, and must not end the server
            return pack_message(Message("error", {"error": f"{type(error).__name__}: {error}"}, seq))

    def _reply(self, message: Message) -> bytes | None:
        if message.type == "hello":
            return pack_message(Message("hello", self._hello(message.payload), message.seq))
        if message.type == "episode_start":
            self._begin(message.payload.get("task"))
        elif message.type == "observation":
            return pack_message(Message("action", {"actions": self._act(message.payload)}, message.seq))
        elif message.type == "episode_end":
            self._ready.clear()
        return None

    def _hello(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        version = payload.get("protocol_version")
        if version != VLA_EVAL_VERSION:
            raise ComponentError(f"the harness speaks vla-eval protocol {version}, this is {VLA_EVAL_VERSION}")
        spec = self._served.spec
        return {
            "harness_version": payload.get("harness_version", ""),
            "protocol_version": VLA_EVAL_VERSION,
            "model_server": "besttake",
            "capabilities": {},
            "observation_params": self._served.observation_params,
            "action_spec": {"actions": {"name": "actions", "dims": spec.action_dim, "format": "raw"}},
            "observation_spec": {},
            "besttake": self._served.describe(),
        }

    def _begin(self, task: Any) -> None:
        self._ready.clear()
        self._chunk = 0
        name = task.get("name") if isinstance(task, Mapping) else None
        index = task.get("episode_idx") if isinstance(task, Mapping) else None
        if isinstance(name, str) and isinstance(index, int) and index >= 0:
            self._draw = self._served.episode(name, index)
        else:
            self._draw = Draw(self._served.seed, "connection", self._connection, self._unnamed)
            self._unnamed += 1

    def _act(self, payload: Mapping[str, Any]) -> F32:
        if not self._ready:
            images = payload.get("images")
            seen = self._served.observation(
                images if isinstance(images, Mapping) else {},
                payload.get("states", payload.get("state")),
                payload.get("task_description", ""),
            )
            chunk = self._served.sample(seen, self._draw.at(self._chunk))
            self._chunk += 1
            self._ready.extend(chunk[: self._served.spec.replan])
        return self._ready.popleft()


class OpenpiSession:
    """A connection of openpi's client: metadata first, then one whole chunk per observation."""

    def __init__(self, served: Served, connection: int) -> None:
        self._served = served
        self._draw = Draw(served.seed, "connection", connection, 0)
        self._chunk = 0

    def greeting(self) -> bytes | None:
        """The metadata frame."""
        return pack_openpi({"besttake": self._served.describe()})

    def answer(self, frame: bytes | str) -> bytes | str | None:
        """The chunk, or a text frame with one line where something failed."""
        try:
            request = unpack_openpi(frame)
            chunk = self._served.sample(self._observation(request), self._draw.at(self._chunk))
        except BestTakeError as error:
            return str(error)
        except Exception as error:  # whatever the policy raises is the client's to see, and must not end the server
            return f"{type(error).__name__}: {error}"
        self._chunk += 1
        return pack_openpi({"actions": chunk})

    def _observation(self, request: Mapping[str, Any]) -> Observation:
        plain = {str(key).removeprefix("observation/"): value for key, value in request.items()}
        return self._served.observation(plain, plain.get("state"), request.get("prompt", ""))


Session = VlaEvalSession | OpenpiSession
SESSIONS: Mapping[str, Callable[[Served, int], Session]] = {"vla-eval": VlaEvalSession, "openpi": OpenpiSession}


def _picture(value: Any, key: str) -> U8:
    image: Array = np.asarray(value)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ComponentError(f"image {key!r} must be uint8 (H, W, 3), not {image.dtype} {image.shape}")
    return image
