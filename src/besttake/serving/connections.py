"""The protocols of the server: a connection turns a client's messages into answers, and knows nothing of sockets.

A policy that looks back needs the history of the episode. vla-eval's harness sends the observation of every step and
gets one action for each, so the server knows the whole history. openpi's protocol has neither episodes nor the steps
between two requests; a client that needs the full history adds an entry ``besttake`` to its request::

    {"task": "pick", "start": 3, "step": 16, "states": (R, state_dim)}

``step`` counts the actions executed since the episode began (0 begins an episode, which ``task`` and ``start`` may
name), ``states`` are those after each action since the last request, the current one last. If the server has a gate,
``{"judge": True, "task": …}`` ends the episode, and the answer is the gate's judgement.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from besttake.conventions import CLOSES_UP, CONTROLLER, LIBERO_STATE, OPENNESS, OPENS_UP
from besttake.demos.cameras import is_wrist
from besttake.errors import ComponentError, one_line
from besttake.policies import remote_wire as wire
from besttake.policies.remote_wire import VLA_EVAL_VERSION, Message
from besttake.serving.served import MOST_STEPS, Client, ServedEpisode, ServedPolicy
from besttake.takes.draws import Draw
from besttake.types import F32, Array, Observation, PolicySpec

_GRIPPERS = {CLOSES_UP: "binary_close_positive", OPENS_UP: "binary_close_negative", OPENNESS: "continuous_01"}
_ARM_AND_GRIPPER = 7


class _Connection:
    """The base of both protocols: begins episodes, which the client names or which are counted."""

    def __init__(self, served: ServedPolicy, connection: int, client: Client) -> None:
        self._served, self._connection, self._client = served, connection, client
        self._unnamed = 0

    def greeting(self) -> bytes | None:
        """The message that the server sends when a client connects; None if the client speaks first."""
        return None

    async def _begin(self, task: Any, start: Any) -> ServedEpisode:
        """Begin an episode of ``task`` from ``start`` if the client names both, else this connection's next one."""
        if self._served.begin is not None:
            return await self._served.begin(self._served, self._client)
        if isinstance(task, str) and isinstance(start, int) and start >= 0:
            return ServedEpisode(self._served, self._client, self._served.episode(self._client, task, start), task)
        draw = Draw(self._served.seed, "connection", self._connection, self._unnamed)
        self._unnamed += 1
        return ServedEpisode(self._served, self._client, draw, task if isinstance(task, str) else "")


class VlaEvalConnection(_Connection):
    """A connection of vla-eval's harness: hello, then episodes of observations, each answered with one action."""

    def __init__(self, served: ServedPolicy, connection: int, client: Client) -> None:
        super().__init__(served, connection, client)
        self._episode: ServedEpisode | None = None
        self._ready: deque[F32] = deque()

    async def answer(self, frame: bytes | str) -> bytes | str | None:
        """The frame to send back, or None. An error becomes an error message, after which the client may continue."""
        seq = 0
        try:
            message = await asyncio.to_thread(wire.unpack_message, frame)
            seq = message.seq
            if message.type == "hello":
                return wire.pack_message(Message("hello", self._hello(message.payload), seq))
            if message.type == "observation":
                return wire.pack_message(Message("action", {"actions": await self._act(message.payload)}, seq))
            if message.type in ("episode_start", "episode_end"):
                self._ready.clear()
            if message.type == "episode_start":
                task = message.payload.get("task")
                names: Mapping[Any, Any] = task if isinstance(task, Mapping) else {}
                self._episode = await self._begin(names.get("name"), names.get("episode_idx"))
            return None
        except Exception as error:  # errors of the policy are sent to the client and must not end the server
            return wire.pack_message(Message("error", {"error": one_line(error)}, seq))

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
            "observation_params": observation_params(spec, self._served.cameras),
            "action_spec": action_spec(spec),
            "observation_spec": observation_spec(spec),
            "besttake": self._served.describe(),
        }

    async def _act(self, payload: Mapping[str, Any]) -> F32:
        if self._episode is None or self._episode.over:
            self._ready.clear()
            self._episode = await self._begin(None, None)
        history, step = self._episode.history, len(self._episode.history.actions)
        if step >= MOST_STEPS:
            raise ComponentError(f"an episode of more than {MOST_STEPS} steps; begin another")
        state = payload.get("states", payload.get("state"))
        images = payload.get("images")
        observation = None
        if not self._ready or self._episode.keeps_frame(step):
            observation = self._served.observation(
                images if isinstance(images, Mapping) else {}, state, payload.get("task_description")
            )
        if self._served.keeps_history:
            del history.states[step:]  # that of an observation which was answered with an error
            history.states.append(self._served.state(state))
        if observation is not None:
            self._episode.record(observation, step)
        if observation is not None and not self._ready:
            self._ready.extend((await self._episode.sample(observation))[: self._served.spec.replan])
        action = self._ready.popleft()
        self._client.answered(len(self._ready))
        history.actions.append(action)
        return action


class OpenpiConnection(_Connection):
    """A connection of openpi's client: metadata, then observations, each answered with a whole chunk."""

    def __init__(self, served: ServedPolicy, connection: int, client: Client) -> None:
        super().__init__(served, connection, client)
        self._draw = Draw(served.seed, "connection", connection, 0)
        self._episode: ServedEpisode | None = None
        self._gate = None if served.gate is None else served.gate.for_another()

    def greeting(self) -> bytes | None:
        """The first message to openpi's client: facts about the policy (`ServedPolicy.describe`)."""
        return wire.pack_openpi({"besttake": self._served.describe()})

    async def answer(self, frame: bytes | str) -> bytes | str | None:
        """The chunk, or a text frame with one line if there was an error."""
        try:
            request = await asyncio.to_thread(wire.unpack_openpi, frame)
            entry = request.get("besttake")
            if isinstance(entry, Mapping) and entry.get("judge"):
                return wire.pack_openpi({"besttake": await self._judge(entry.get("task"))})
            if entry is not None:
                chunk = await self._step_of_episode(request, entry)
            elif self._served.begin or self._gate:
                chunk = await self._next_of_episode(request)
            else:
                chunk = await self._single(request)
        except Exception as error:  # errors of the policy are sent to the client and must not end the server
            return one_line(error)
        return wire.pack_openpi({"actions": chunk})

    async def _single(self, request: Mapping[str, Any]) -> F32:
        """The chunk for a request outside any episode, whose history is its own state."""
        observation = self._observation(request)
        episode = ServedEpisode(self._served, self._client, self._draw)
        episode.history.states.append(observation.state)
        chunk = await episode.sample(observation)
        self._draw = self._draw.at(self._draw.chunk + 1)
        return chunk

    async def _judge(self, task: Any) -> dict[str, Any]:
        """End the episode, and return the gate's judgement of it."""
        if self._gate is None or self._episode is None:
            raise ComponentError("there is no take to judge, or no gate: serve with `gate`")
        frames, self._episode = self._episode.frames, None
        return asdict(await asyncio.to_thread(self._gate.judge_frames, frames, str(task or "")))

    async def _next_of_episode(self, request: Mapping[str, Any]) -> F32:
        """The next chunk in the episode of the connection, which goes on until it is judged."""
        observation = self._observation(request)
        if self._episode is None or self._episode.over:
            self._episode = await self._begin(None, None)
        episode, history = self._episode, self._episode.history
        executed = episode.sampled[: episode.unconfirmed]
        lengths = len(history.states), len(history.actions)
        history.states.extend([observation.state] * max(len(executed), 1))  # those in between were not sent
        history.actions.extend(executed)
        episode.unconfirmed = 0
        try:
            return await self._sample(episode, observation)
        except BaseException:
            del history.states[lengths[0] :], history.actions[lengths[1] :]
            episode.unconfirmed = len(executed)
            raise

    async def _sample(self, episode: ServedEpisode, observation: Observation) -> F32:
        """The next chunk of an episode whose history is complete."""
        episode.record(observation, len(episode.history.actions))
        chunk = await episode.sample(observation)
        episode.unconfirmed = self._served.spec.replan
        return chunk

    async def _step_of_episode(self, request: Mapping[str, Any], entry: Any) -> F32:
        """The chunk for a request whose ``entry`` says at which step of its episode it is."""
        step = entry.get("step") if isinstance(entry, Mapping) else None
        if not isinstance(step, int) or step < 0:
            raise ComponentError("the entry besttake needs a step: how many actions the episode has executed")
        if step > MOST_STEPS:
            raise ComponentError(f"an episode of more than {MOST_STEPS} steps; begin another")
        observation = self._observation(request)
        if step == 0:
            self._episode = await self._begin(entry.get("task"), entry.get("start"))
        if self._episode is None or self._episode.over:
            raise ComponentError(f"step {step} of an episode that did not begin here, or is judged; begin with step 0")
        self._advance(self._episode, step, entry.get("states", [observation.state]))
        self._episode.unconfirmed = 0
        return await self._sample(self._episode, observation)

    def _advance(self, episode: ServedEpisode, step: int, states: Any) -> None:
        """Add the client's states and the executed actions since the last request to the history."""
        history, before = episode.history, len(episode.history.actions)
        executed = step - before
        if step and not 1 <= executed <= len(episode.sampled):
            raise ComponentError(
                f"step {step} after step {before}, with a chunk of {len(episode.sampled)} between them"
            )
        rows: Array = np.asarray(states)
        if rows.ndim != 2 or len(rows) != max(executed, 1):
            raise ComponentError(f"states {rows.shape}, where the {max(executed, 1)} since the last request are needed")
        history.states.extend(self._served.state(row) for row in rows)
        history.actions.extend(episode.sampled[:executed])

    def _observation(self, request: Mapping[str, Any]) -> Observation:
        plain = {str(key).removeprefix("observation/"): value for key, value in request.items()}
        return self._served.observation(plain, plain.get("state"), request.get("prompt"))


# The server's hello to vla-eval's harness, which sets the first in the benchmark and warns if the others differ.


def observation_params(spec: PolicySpec, cameras: Mapping[str, str]) -> dict[str, bool]:
    """The observations that benchmarks send only on request, unless the harness's configuration says otherwise.

    All public LIBERO data convert robosuite's quaternion as it is; by default vla-eval takes the shorter rotation,
    which is another vector for the same pose.
    """
    state = spec.state_dim != 0
    params = {
        "send_wrist_image": len(cameras) > 1 or any(map(is_wrist, [*cameras, *cameras.values()])),
        "send_state": state,
        "quat_no_antipodal": state and spec.convention.state == LIBERO_STATE,
    }
    return {name: True for name, wanted in params.items() if wanted}


def action_spec(spec: PolicySpec) -> dict[str, dict[str, Any]]:
    """The parts of an action by vla-eval's names, if the policy's convention is known."""
    known = spec.convention
    if known.action == CONTROLLER and known.gripper in _GRIPPERS and spec.action_dim == _ARM_AND_GRIPPER:
        return {
            "position": _spec("position", 3, "delta_xyz"),
            "rotation": _spec("rotation", 3, "axis_angle"),
            "gripper": _spec("gripper", 1, _GRIPPERS[known.gripper]),
        }
    return {"actions": _spec("actions", spec.action_dim, "raw")}


def observation_spec(spec: PolicySpec) -> dict[str, dict[str, Any]]:
    """The policy's inputs besides pictures, as far as vla-eval has names for them."""
    wanted = {"language": _spec("language", 0, "language")} if spec.prompted else {}
    if spec.convention.state == LIBERO_STATE:
        wanted["state"] = _spec("state", 8, "eef_pos3_axisangle3_gripper2")
    return wanted


def _spec(name: str, dims: int, form: str) -> dict[str, Any]:
    return {"name": name, "dims": dims, "format": form}


CONNECTIONS: dict[str, type[VlaEvalConnection | OpenpiConnection]] = {
    "vla-eval": VlaEvalConnection, "openpi": OpenpiConnection,
}  # fmt: skip
