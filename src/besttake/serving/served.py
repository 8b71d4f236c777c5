"""The policy behind all sessions: what it wants of clients, how it is sampled, and one client's episode in it.

Draws make served sampling repeatable. Where the client names its episode (task and start) the draw is that of the
episode, whichever connection brings it, and ``seed`` counts how often the episode has been started; where it does not,
``start`` is the number of the connection and ``seed`` counts its episodes.

`Batches` is one queue of requests, of which the policy samples as many at a time as it takes. Requests that come while
it samples wait for the next call. A client with nobody beside it is answered at once; where others were answered a
moment ago and are about to ask again, a call waits a little for them.
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
from besttake.policies.augmented import Augmented, EpisodeHistory, InSession
from besttake.policies.base import Policy
from besttake.policies.remote_wire import MOST_BYTES
from besttake.serving.gate import Gate
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Array, Observation, PolicySpec

_MOST_EPISODES, _MOST_OF_THE_GONE = 30_000, 300_000
MOST_STEPS = 1_000_000
"""What a server keeps of its clients is bounded: named episodes of each and of all who have left, steps of an episode.
An episode takes some 150 bytes, however long its name is."""
MOST_ROWS = 64
"""Rows of one call where a policy sets no limit of its own."""
_LONGEST = 0.03
"""Seconds that a request waits for others at most; never more than half a call either."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What clients may use: bytes of one message, connections at once, and the web pages (``Origin``) that may connect.

    Programs send no ``Origin``; browsers always do, whatever page asked them to. ``"*"`` lets all pages in.
    ``batch``: requests that are sampled in one call; 1: one by one, None: as many as the policy takes at once.
    ``gate``: who judges the take of a client that asks.
    """

    max_bytes: int = MOST_BYTES
    max_sessions: int = 32
    origins: tuple[str, ...] = ()
    batch: int | None = None
    gate: Gate | None = None


class Served:
    """The policy behind all sessions: cameras by the client's names, episodes counted.

    ``cameras`` maps the policy's cameras to the client's image keys; those not named keep their own name.
    """

    def __init__(self, policy: Policy, seed: int, cameras: Mapping[str, str], limits: Limits) -> None:
        gate = limits.gate
        judged = gate.camera or next(iter(policy.spec.cameras), "") if gate is not None else ""
        read = dict.fromkeys((*policy.spec.cameras, *([judged] if judged else [])))
        if unknown := set(cameras) - set(read):
            have = ", ".join(read) or "none"
            raise ComponentError(f"cameras names {', '.join(sorted(unknown))}; {policy.spec.name} reads: {have}")
        self.spec: PolicySpec = policy.spec
        self.seed = seed
        self.at_once = limits.batch or policy.spec.width or MOST_ROWS
        """How many requests one call takes."""
        self._connections = min(self.at_once, max(limits.max_sessions // 2, 1))
        self.cameras = {camera: cameras.get(camera, camera) for camera in read}
        self.gate, self.judged_camera = gate, judged
        """Who judges the takes of each client, where one is wanted, and the camera whose pictures it reads."""
        self.follows = isinstance(policy, Augmented) and policy.looks_back
        """Whether the policy looks back over the episode, so that its history must be kept."""
        self._policy = policy
        self.begin: Callable[[Served, Client], Awaitable[ServedEpisode]] | None = None
        """In a session: what gives a client its next episode, whatever it calls it."""
        if isinstance(policy, InSession):
            self.begin = policy.begin
        self._begun: dict[Client | None, dict[bytes, int]] = {None: {}}
        """How often each client has begun each episode; those who have left are None."""

    def sample(self, rows: Sequence[SampleRequest]) -> list[F32 | Exception]:
        """One chunk (horizon, action_dim) per row, or what is wrong with it; one thread asks at a time."""
        seen, draws = [row.observation for row in rows], [row.draw for row in rows]
        if isinstance(self._policy, Augmented):
            return [self._finite(chunk) for chunk in self._policy.follow_all(seen, draws, self._histories(rows))]
        return [self._finite(chunk) for chunk in self._policy.sample(seen, draws)]

    def _histories(self, rows: Sequence[SampleRequest]) -> list[EpisodeHistory]:
        """An arm that does not look back has no use for what happened."""
        return [row.history if self.follows else EpisodeHistory(states=[row.observation.state]) for row in rows]

    def _finite(self, chunk: F32 | Exception) -> F32 | Exception:
        if isinstance(chunk, Exception):
            return chunk
        if np.isfinite(chunk).all():
            return np.array(chunk)  # the policy may use its memory again before this client has its last action
        return ComponentError(f"{self.spec.name}: actions that are not finite (NaN or Inf)")

    def episode(self, client: Client, task: str, start: int) -> Draw:
        """The draw of the next episode of ``task`` from ``start``, whoever began it before."""
        name = hashlib.blake2b(f"{start} {task}".encode(errors="surrogatepass"), digest_size=16).digest()
        seed = sum(begun.get(name, 0) for begun in self._begun.values())
        _count(self._begun.setdefault(client, {}), {name: 1}, _MOST_EPISODES)
        return Draw(self.seed, task, start, seed)

    def leave(self, client: Client) -> None:
        """Keep what ``client`` began with that of all who have left."""
        _count(self._begun[None], self._begun.pop(client, {}), _MOST_OF_THE_GONE)

    def describe(self) -> dict[str, Any]:
        """What a `besttake` client needs to know, in plain values."""
        plain = {name: getattr(self.spec, name) for name in ("name", "horizon", "action_dim", "replan")}
        return {**plain, "cameras": list(self.cameras.values()), "at_once": self._connections}

    def observation(self, images: Mapping[Any, Any], state: Any, instruction: Any) -> Observation:
        """A client's values as an observation, each checked; what is missing is said at once, and what is wanted."""
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
        """What a client must send, for people."""
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
    """Add ``more`` to what was begun; of more than ``most`` episodes the oldest are forgotten, and their seeds with
    them."""
    for name, times in more.items():
        begun[name] = begun.pop(name, 0) + times
    for name in list(islice(begun, max(0, len(begun) - most))):
        del begun[name]


class ServedEpisode:
    """One episode of a client: the draws of its chunks and its history so far.

    ``sampled`` is the last chunk; its actions join the history when they are known to have been executed. Until then
    the first ``unconfirmed`` of them are taken to have been. ``frames`` are pictures of ``camera``, by their steps, one
    every ``stride`` steps as far as the client shows them. ``over``: nothing of it is kept any more.
    """

    over = False
    unconfirmed = 0
    camera, stride = "", 1

    def __init__(self, served: Served, client: Client, draw: Draw, task: str = "") -> None:
        self._client, self._draw = client, draw
        self.history = EpisodeHistory(task)
        self.sampled: F32 = np.empty((0, served.spec.action_dim), np.float32)
        self.frames: dict[int, U8] = {}
        if served.gate is not None:
            self.camera, self.stride = served.judged_camera, served.gate.stride

    def is_wanted(self, step: int) -> bool:
        """Whether the picture of this step is kept."""
        return bool(self.camera) and not self.over and step >= max(self.frames, default=-self.stride) + self.stride

    def saw(self, seen: Observation, step: int) -> None:
        """Keep what the client sees before the action ``step``, where it is wanted."""
        if self.is_wanted(step):
            picture = seen.images[self.camera]
            first = next(iter(self.frames.values()), picture)
            if picture.shape != first.shape:
                raise ComponentError(f"a picture of {picture.shape} in a take that began with {first.shape}")
            self.frames[step] = picture

    async def sample(self, seen: Observation) -> F32:
        """The next chunk, (horizon, action_dim)."""
        known = len(self.history.memory)
        try:
            self.sampled = await self._client.sample(seen, self._draw, self.history)
        except Exception:
            del self.history.memory[known:]  # what was not answered is not remembered: the client may ask again
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
    came: float = field(default_factory=time.monotonic)
    answer: Future[F32] = field(default_factory=Future)

    @property
    def shapes(self) -> tuple[object, ...]:
        """The sizes of what it shows: rows of one call have the same, for policies stack them."""
        return (len(self.observation.state), *(image.shape for image in self.observation.images.values()))

    def end(self, answer: F32 | Exception) -> None:
        """Hand over the answer, if anyone waits for it."""
        if self.answer.cancelled():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Client:
    """A connection that asks for chunks; ``is_open()`` is whether it still is."""

    def __init__(self, batches: Batches, is_open: Callable[[], bool]) -> None:
        self._batches, self.is_open = batches, is_open
        self.answered: float | None = None
        """When it was left without actions, and so is likely to ask for a sample soon; else None."""

    async def sample(self, observation: Observation, draw: Draw, history: EpisodeHistory) -> F32:
        """One chunk (horizon, action_dim), sampled together with those of others."""
        self.answered = None
        return await self._batches.sample(SampleRequest(self, observation, draw, history))

    def supplied(self, actions: int) -> None:
        """The client is answered, and ``actions`` are left for it before it needs another sample."""
        self.answered = None if actions else time.monotonic()

    def leave(self) -> None:
        """Wait for this client no more."""
        self._batches.clients.discard(self)


class Batches:
    """Calls ``sampler`` with at most ``most`` rows, in a thread of its own; everything else is on one event loop.

    It gives one chunk (horizon, action_dim) per row, or why there is none; raising says nothing about single rows.
    """

    def __init__(self, sampler: Callable[[Sequence[SampleRequest]], Sequence[F32 | Exception]], most: int) -> None:
        self._sampler, self._most = sampler, most
        self.clients: set[Client] = set()
        self._waiting: list[SampleRequest] = []
        self._changed = asyncio.Event()
        self._took, self._free, self._closed = 0.0, 0.0, False
        self._thread = ThreadPoolExecutor(1, "besttake-sample")
        self._calls = asyncio.create_task(self._call())

    def client(self, is_open: Callable[[], bool]) -> Client:
        """A client that has come."""
        client = Client(self, is_open)
        self.clients.add(client)
        return client

    async def sample(self, row: SampleRequest) -> F32:
        """The chunk of ``row``, from the next call or one after it."""
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
            row.end(ComponentError("the server is closing"))

    async def _call(self) -> None:
        """Make one call after the other."""
        while True:
            rows = await self._gather()
            began = time.monotonic()
            try:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._sample, rows)
            except asyncio.CancelledError:
                self._waiting += rows  # turned away with the others
                raise
            self._free = time.monotonic()
            self._took = self._free - began
            for row, answer in zip(rows, answers, strict=True):
                row.client.answered = self._free
                row.end(answer)

    async def _gather(self) -> list[SampleRequest]:
        """The rows of the next call, when it is time for it."""
        while True:
            rows, now = self._next(), time.monotonic()
            until = self._wait_until(rows[0], now) if rows else None
            if len(rows) == self._most or (until is not None and until <= now):
                self._waiting = [row for row in self._waiting if row not in rows]
                return rows
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else until - now):
                    await self._changed.wait()

    def _next(self) -> list[SampleRequest]:
        """The rows that could go now: the first that waits, and those that can share its call."""
        for row in [row for row in self._waiting if not row.client.is_open()]:
            self._waiting.remove(row)
            row.end(ComponentError("the client has gone"))
        return [row for row in self._waiting if row.shapes == self._waiting[0].shapes][: self._most]

    def _wait_until(self, first: SampleRequest, now: float) -> float:
        """The time until which the next call waits, so that clients that were just answered can join it."""
        window = min(_LONGEST, self._took / 2)
        due = [client.answered + window for client in self.clients if client.answered is not None]
        return min(max(due, default=now), max(first.came, self._free) + window)

    def _sample(self, rows: Sequence[SampleRequest]) -> list[F32 | Exception]:
        """An answer for each row; where the call fails, halves of it are tried, so that one cannot spoil the others."""
        try:
            answers = list(self._sampler(rows))
            if len(answers) != len(rows):
                raise ComponentError(f"{len(answers)} chunks came back for {len(rows)} rows")
            return answers
        except BaseException as error:  # not even a policy that calls sys.exit ends the thread that all wait for
            if len(rows) == 1:
                return [error if isinstance(error, Exception) else ComponentError(one_line(error))]
            half = len(rows) // 2
            answers = self._sample(rows[:half]) + self._sample(rows[half:])
            if not any(isinstance(answer, Exception) for answer in answers):
                self._most = min(self._most, half)
                _log.warning("%d rows at once failed (%s); now %d at most", len(rows), one_line(error), half)
            return answers
