"""`Batches`: one queue of requests, of which the policy samples as many at a time as it takes.

Requests that come while the policy samples wait for the next call. A client with nobody beside it is answered at once.
Where others were answered a moment ago and are about to ask again, a call waits a little for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from besttake.errors import ComponentError, one_line
from besttake.policies.augmented import EpisodeHistory
from besttake.takes.draws import Draw
from besttake.types import F32, Observation

MOST_ROWS = 64
"""Rows of one call where a policy sets no limit of its own."""
_LONGEST = 0.03
"""Seconds that a request waits for others at most; never more than half a call either."""
_log = logging.getLogger(__name__)


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
        """Make no more calls; those who wait are turned away."""
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
        """When those who were answered a moment ago have asked again, or will not soon."""
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
