"""The served policy: what it needs from clients, how it is sampled for all of them at once, and a client's episode.

Draws make served sampling repeatable. If the client names its episode (task and start), the draw is that of the
episode, whatever connection it comes from, and its ``seed`` counts how often the episode has been started. If not, its
``start`` is the number of the connection and its ``seed`` counts the connection's episodes.

`Batches` is one queue of requests, from which the policy samples as many at a time as it can. Requests that arrive
during a call wait for the next one. A single client is answered at once; if other clients were answered a moment ago
and are about to send requests again, the call waits briefly for them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from besttake.envs.base import checked_picture
from besttake.errors import ComponentError, one_line
from besttake.policies.augmented import AugmentedPolicy, EpisodeHistory, SessionPolicy
from besttake.policies.base import Policy
from besttake.policies.remote_wire import MOST_BYTES
from besttake.serving.gate import Gate
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Array, Observation, PolicySpec

_MOST_EPISODES, _MOST_OF_PAST_CLIENTS = 30_000, 300_000
"""Named episodes that are counted for each client, and for all past clients. Each takes some 150 bytes."""
MOST_STEPS = 1_000_000
"""The most steps of an episode."""
MOST_ROWS = 64
"""Rows of one call if the policy sets no limit."""
_LONGEST_WAIT = 0.03
"""The most seconds for which a request waits for others, which is never more than half a call either."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits for clients: bytes of one message, connections at once, and the web pages (``Origin``) that may connect.

    Programs send no ``Origin``; browsers always do, for every page. ``"*"`` admits all pages. ``batch``: the number of
    requests that are sampled in one call (None: as many as the policy can). ``gate``: judges takes of clients that ask.
    """

    max_bytes: int = MOST_BYTES
    max_sessions: int = 32
    origins: tuple[str, ...] = ()
    batch: int | None = None
    gate: Gate | None = None


class ServedPolicy:
    """The policy for all clients, which checks their observations and counts their episodes.

    ``cameras`` maps the policy's cameras to the client's image keys; cameras not named there keep their name.

    Attributes:
        at_once: How many requests one call takes.
        gate: Judges the takes of each client, if there is one.
        judged_camera: The camera whose pictures the gate reads.
        keeps_history: Whether the policy looks back over the episode, so that its history must be kept.
        begin: Gives a client its next episode in a session, whatever the client calls it.
    """

    def __init__(self, policy: Policy, seed: int, cameras: Mapping[str, str], limits: Limits) -> None:
        self.gate, self.judged_camera = limits.gate, ""
        if limits.gate is not None:
            self.judged_camera = limits.gate.camera or next(iter(policy.spec.cameras), "")
        read = dict.fromkeys(filter(None, (*policy.spec.cameras, self.judged_camera)))
        if unknown := set(cameras) - set(read):
            have = ", ".join(read) or "none"
            raise ComponentError(f"cameras names {', '.join(sorted(unknown))}; {policy.spec.name} reads: {have}")
        self.spec: PolicySpec = policy.spec
        self.seed = seed
        self.at_once = limits.batch or policy.spec.width or MOST_ROWS
        self._connections = min(self.at_once, max(limits.max_sessions // 2, 1))
        self.cameras = {camera: cameras.get(camera, camera) for camera in read}
        self.keeps_history = isinstance(policy, AugmentedPolicy) and policy.looks_back
        self._policy = policy
        self.begin: Callable[[ServedPolicy, Client], Awaitable[ServedEpisode]] | None
        self.begin = policy.begin if isinstance(policy, SessionPolicy) else None
        # How often each client has begun each named episode; past clients are counted together under None.
        self._begun: dict[Client | None, dict[bytes, int]] = {None: {}}

    def sample(self, rows: Sequence[SampleRequest]) -> list[F32 | Exception]:
        """One chunk (horizon, action_dim) or error per row. Only one thread may call this at a time."""
        observations, draws = [row.observation for row in rows], [row.draw for row in rows]
        if not isinstance(self._policy, AugmentedPolicy):
            return [self._checked(chunk) for chunk in self._policy.sample(observations, draws)]
        histories = [row.history for row in rows]
        if not self.keeps_history:
            histories = [EpisodeHistory(states=[seen.state]) for seen in observations]
        return [self._checked(chunk) for chunk in self._policy.follow_all(observations, draws, histories)]

    def _checked(self, chunk: F32 | Exception) -> F32 | Exception:
        if isinstance(chunk, Exception):
            return chunk
        if np.isfinite(chunk).all():
            return np.array(chunk)  # the policy may reuse the array before this client has its last action
        return ComponentError(f"{self.spec.name}: actions that are not finite (NaN or Inf)")

    def episode(self, client: Client, task: str, start: int) -> Draw:
        """The draw of the next episode of ``task`` from ``start``, counting those of all clients."""
        name = hashlib.blake2b(f"{start} {task}".encode(errors="surrogatepass"), digest_size=16).digest()
        seed = sum(begun.get(name, 0) for begun in self._begun.values())
        _count(self._begun.setdefault(client, {}), {name: 1}, _MOST_EPISODES)
        return Draw(self.seed, task, start, seed)

    def leave(self, client: Client) -> None:
        """Count the episodes of ``client`` with those of all past clients."""
        _count(self._begun[None], self._begun.pop(client, {}), _MOST_OF_PAST_CLIENTS)

    def describe(self) -> dict[str, Any]:
        """The facts that a `besttake` client needs, as plain values."""
        plain = {name: getattr(self.spec, name) for name in ("name", "horizon", "action_dim", "replan")}
        return {**plain, "cameras": list(self.cameras.values()), "at_once": self._connections}

    def observation(self, images: Mapping[Any, Any], state: Any, instruction: Any) -> Observation:
        """Check a client's values and make an observation of them; ComponentError names all missing values at once."""
        missing = [f"image {key}" for key in self.cameras.values() if key not in images]
        if state is None and self.spec.state_dim:
            missing.append("the state")
        if not instruction and self.spec.prompted:
            missing.append("the instruction")
        if missing:
            sent = ", ".join(map(str, images)) or "none"
            hint = f"; its images: {sent} (rename them with `cameras`)" if missing[0].startswith("image ") else ""
            raise ComponentError(
                f"{self.spec.name} needs {self.wants()}; the client left out {', '.join(missing)}{hint}"
            )
        pictures = {camera: checked_picture(key, images[key]) for camera, key in self.cameras.items()}
        return Observation(pictures, self.state(state), str(instruction or ""))

    def wants(self) -> str:
        """The values that a client must send, in words."""
        images = f"images {', '.join(self.cameras.values())}" if self.cameras else ""
        state = f"a state of {self.spec.state_dim} numbers" if self.spec.state_dim else ""
        return ", ".join(filter(None, (images, state, "an instruction" if self.spec.prompted else ""))) or "nothing"

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


def _count(begun: dict[bytes, int], more: Mapping[bytes, int], most: int) -> None:
    """Add the counts ``more`` to ``begun``, and forget the oldest episodes if there are more than ``most``."""
    for name, times in more.items():
        begun[name] = begun.pop(name, 0) + times
    for name in list(islice(begun, max(0, len(begun) - most))):
        del begun[name]


class ServedEpisode:
    """One episode of a client: the draws of its chunks, its history and its frames.

    ``sampled`` is the last chunk. Its actions join the history when they are known to be executed; until then, the
    first ``unconfirmed`` of them are assumed to be. ``frames`` are pictures of ``camera`` by their steps, one every
    ``stride`` steps, as far as the client sends them. ``over``: nothing more is recorded.
    """

    over = False
    unconfirmed = 0
    camera, stride = "", 1

    def __init__(self, served: ServedPolicy, client: Client, draw: Draw, task: str = "") -> None:
        self._client, self._draw = client, draw
        self.history = EpisodeHistory(task)
        self.sampled: F32 = np.empty((0, served.spec.action_dim), np.float32)
        self.frames: dict[int, U8] = {}
        if served.gate is not None:
            self.camera, self.stride = served.judged_camera, served.gate.stride

    def keeps_frame(self, step: int) -> bool:
        """Whether the picture of this step is kept."""
        return bool(self.camera) and not self.over and step >= max(self.frames, default=-self.stride) + self.stride

    def record(self, observation: Observation, step: int) -> None:
        """Record the client's observation before the action ``step``: its picture, if it is one of those kept."""
        if self.keeps_frame(step):
            picture = observation.images[self.camera]
            first = next(iter(self.frames.values()), picture)
            if picture.shape != first.shape:
                raise ComponentError(f"a picture of {picture.shape} in a take that began with {first.shape}")
            self.frames[step] = picture

    async def sample(self, observation: Observation) -> F32:
        """The next chunk, (horizon, action_dim)."""
        length = len(self.history.memory)
        try:
            self.sampled = await self._client.sample(observation, self._draw, self.history)
        except Exception:
            del self.history.memory[length:]  # the client got no answer and may repeat its request
            raise
        self._draw = self._draw.at(self._draw.chunk + 1)
        return self.sampled


@dataclass(eq=False)
class SampleRequest:
    """A client's request for a chunk."""

    client: Client
    observation: Observation
    draw: Draw
    history: EpisodeHistory
    arrived: float = field(default_factory=time.monotonic)
    answer: Future[F32] = field(default_factory=Future)

    @property
    def shapes(self) -> tuple[object, ...]:
        """The sizes of state and images, which must be equal in all rows of a call because policies stack them."""
        return (len(self.observation.state), *(image.shape for image in self.observation.images.values()))

    def finish(self, answer: F32 | Exception) -> None:
        """Hand over the answer, unless nobody waits for it any more."""
        if self.answer.cancelled():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Client:
    """A connection that requests chunks; ``is_open()`` tells whether it is still open.

    ``ran_out`` is the time of its last answer unless it has actions left, so that it is likely to request a
    chunk soon; else None.
    """

    def __init__(self, batches: Batches, is_open: Callable[[], bool]) -> None:
        self._batches, self.is_open = batches, is_open
        self.ran_out: float | None = None

    async def sample(self, observation: Observation, draw: Draw, history: EpisodeHistory) -> F32:
        """One chunk (horizon, action_dim), sampled together with those of other clients."""
        self.ran_out = None
        return await self._batches.sample(SampleRequest(self, observation, draw, history))

    def answered(self, left: int) -> None:
        """Note that the client was sent an action, and that ``left`` actions remain before it needs a chunk."""
        self.ran_out = None if left else time.monotonic()

    def leave(self) -> None:
        """Do not wait for this client any more."""
        self._batches.clients.discard(self)


class Batches:
    """Calls ``sampler`` with at most ``most`` rows in a separate thread; everything else runs on one event loop.

    ``sampler`` returns a chunk (horizon, action_dim) or an error for each row; it raises if the call as a whole fails.
    """

    def __init__(self, sampler: Callable[[Sequence[SampleRequest]], Sequence[F32 | Exception]], most: int) -> None:
        self._sampler, self._most = sampler, most
        self.clients: set[Client] = set()
        self._waiting: list[SampleRequest] = []
        self._changed = asyncio.Event()
        self._duration, self._ended, self._closed = 0.0, 0.0, False
        self._thread = ThreadPoolExecutor(1, "besttake-sample")
        self._calls = asyncio.create_task(self._call())

    def client(self, is_open: Callable[[], bool]) -> Client:
        """Register a new client."""
        client = Client(self, is_open)
        self.clients.add(client)
        return client

    async def sample(self, row: SampleRequest) -> F32:
        """The chunk for ``row``, from the next call or a later one."""
        if self._closed:
            raise ComponentError("the server is closing")
        self._waiting.append(row)
        self._changed.set()
        return await asyncio.wrap_future(row.answer)

    async def close(self) -> None:
        """Make no more calls, and answer waiting requests with an error."""
        self._closed = True
        self._calls.cancel()
        await asyncio.wait([self._calls])
        self._thread.shutdown(wait=False)
        for row in self._waiting:
            row.finish(ComponentError("the server is closing"))

    async def _call(self) -> None:
        """Make one call after another."""
        while True:
            rows = await self._gather()
            began = time.monotonic()
            try:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._sample, rows)
            except asyncio.CancelledError:
                self._waiting += rows  # `close` answers them with the others
                raise
            self._ended = time.monotonic()
            self._duration = self._ended - began
            for row, answer in zip(rows, answers, strict=True):
                row.client.ran_out = self._ended
                row.finish(answer)

    async def _gather(self) -> list[SampleRequest]:
        """Wait until the next call of the policy is due, and return the requests that it answers."""
        while True:
            rows, now = self._next_rows(), time.monotonic()
            until = self._wait_until(rows[0], now) if rows else None
            if len(rows) == self._most or (until is not None and until <= now):
                self._waiting = [row for row in self._waiting if row not in rows]
                return rows
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else until - now):
                    await self._changed.wait()

    def _next_rows(self) -> list[SampleRequest]:
        """The first waiting row, and those that can share its call."""
        for row in [row for row in self._waiting if not row.client.is_open()]:
            self._waiting.remove(row)
            row.finish(ComponentError("the client has gone"))
        return [row for row in self._waiting if row.shapes == self._waiting[0].shapes][: self._most]

    def _wait_until(self, first: SampleRequest, now: float) -> float:
        """The time until which the next call waits, so that clients that were just answered can join it."""
        window = min(_LONGEST_WAIT, self._duration / 2)
        due = [client.ran_out + window for client in self.clients if client.ran_out is not None]
        return min(max(due, default=now), max(first.arrived, self._ended) + window)

    def _sample(self, rows: Sequence[SampleRequest]) -> list[F32 | Exception]:
        """An answer for each row; if the call fails, each half is tried, so that one row cannot spoil the others."""
        try:
            answers = list(self._sampler(rows))
            if len(answers) != len(rows):
                raise ComponentError(f"{len(answers)} chunks came back for {len(rows)} rows")
            return answers
        except BaseException as error:  # even a policy that calls sys.exit must not end the thread
            if len(rows) == 1:
                return [error if isinstance(error, Exception) else ComponentError(one_line(error))]
            half = len(rows) // 2
            answers = self._sample(rows[:half]) + self._sample(rows[half:])
            if not any(isinstance(answer, Exception) for answer in answers):
                self._most = min(self._most, half)
                _log.warning("%d rows at once failed (%s); now %d at most", len(rows), one_line(error), half)
            return answers
