"""`Batches`: the one thread that samples, and how the requests of many clients become one call of the policy.

Requests that come while the policy samples wait for the next call. A client with nobody beside it is answered at once.
Where others are about to ask, those who are here wait for them if that saves more waiting than it costs
(`worth_waiting`). When a client will ask again is forecast by how long it took the last time; whoever does not come
then is not waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from besttake.errors import ComponentError, one_line
from besttake.policies.augmented import Course
from besttake.takes.draws import Draw
from besttake.types import F32, Observation

MOST_ROWS = 64
"""Rows of one call where a policy sets no limit of its own."""
_LONGEST = 0.03
"""Seconds that a request waits for others at most; never more than half a call either."""
_LATE = 0.005
"""Seconds that someone may be later than expected."""
_ALONE = 16
"""Requests of a client that go alone after one of them has failed."""
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Row:
    """A client's request for a chunk; ``answer`` is there when ``answered`` is set."""

    seat: Seat
    observation: Observation
    draw: Draw
    course: Course
    answered: threading.Event = field(default_factory=threading.Event)
    answer: F32 | Exception | None = None

    @property
    def alike(self) -> tuple[object, ...]:
        """Rows go into one call if this is the same: the sizes of what they show, which policies stack."""
        shapes = (image.shape for image in self.observation.images.values())
        return (len(self.observation.state), *shapes)

    def end(self, answer: F32 | Exception) -> None:
        """Hand over the answer."""
        self.answer = answer
        self.answered.set()


class Sampler(Protocol):
    """What samples for all; ``prepares``: whether it can do work for a call while another one runs."""

    prepares: bool

    def prepare(self, rows: Sequence[Row]) -> Any:
        """That work, for `sample`."""
        ...

    def sample(self, rows: Sequence[Row], prepared: Any = None) -> Sequence[F32 | Exception]:
        """One chunk (horizon, action_dim) per row, or why there is none; raising says nothing about single rows."""
        ...


class Seat:
    """One client's place: whether it is still there, and when it is likely to ask again."""

    def __init__(self, batches: Batches, there: Callable[[], bool]) -> None:
        self._batches, self.there = batches, there
        self.since: float | None = None
        """When it got what it now acts on, where it will need a sample next; else None."""
        self.pause = 0.0
        """How long it took the last time from there to its request."""
        self.alone = 0
        """How many of its requests get a call of their own: one failed, and a call that fails costs all in it."""

    def sample(self, observation: Observation, draw: Draw, course: Course) -> F32:
        """One chunk (horizon, action_dim), sampled together with those of others."""
        row = Row(self, observation, draw, course)
        self._batches.add(row)
        row.answered.wait()
        if isinstance(row.answer, Exception):
            raise row.answer
        assert row.answer is not None
        return row.answer

    def supplied(self, actions: int) -> None:
        """The client is answered, and ``actions`` are left for it before it needs another sample."""
        self._batches.expect(self, soon=not actions)

    def leave(self) -> None:
        """The client has gone."""
        self._batches.forget(self)


class Batches:
    """Calls ``sampler`` in a thread of its own with at most ``most`` rows; clients wait in theirs.

    Where a whole call waits while another runs, a second thread prepares it.
    """

    def __init__(self, sampler: Sampler, most: int) -> None:
        self._sampler, self._most = sampler, most
        self._changed = threading.Condition()
        self._waiting: list[Row] = []
        self._seats: set[Seat] = set()
        self._closed = False
        self._took = 0.0
        self._busy = False
        self._ahead: tuple[list[Row], Any] | None = None
        self._preparing = False
        work = [self._work, self._prepare] if sampler.prepares else [self._work]
        self._threads = [threading.Thread(target=each, name="besttake-sample", daemon=True) for each in work]
        for thread in self._threads:
            thread.start()

    def seat(self, there: Callable[[], bool]) -> Seat:
        """A place for a client that has come; ``there()`` is whether it still is."""
        seat = Seat(self, there)
        with self._changed:
            self._seats.add(seat)
        return seat

    def add(self, row: Row) -> None:
        """Put a request into the next call, or one after it."""
        with self._changed:
            if self._closed:
                raise ComponentError("the server is closing")
            if row.seat.since is not None:
                row.seat.pause = time.monotonic() - row.seat.since
                row.seat.since = None
            self._waiting.append(row)
            self._changed.notify_all()

    def expect(self, seat: Seat, *, soon: bool) -> None:
        """Note that the next request of ``seat`` needs a sample, or that it does not."""
        with self._changed:
            was, seat.since = seat.since, time.monotonic() if soon else None
            if was is not None and not soon:
                self._changed.notify_all()

    def forget(self, seat: Seat) -> None:
        """Wait for ``seat`` no more."""
        with self._changed:
            self._seats.discard(seat)
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads after the present call; those who wait are turned away."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=1)

    def _work(self) -> None:
        while True:
            rows, prepared = self._gathered()
            if not rows:
                return
            began = time.monotonic()
            answers = self._sampled(rows, prepared)
            ended = time.monotonic()
            self._took, self._busy = ended - began, False
            for row, answer in zip(rows, answers, strict=True):
                row.seat.since = ended
                row.seat.alone = _ALONE if isinstance(answer, Exception) else max(row.seat.alone - 1, 0)
                row.end(answer)

    def _prepare(self) -> None:
        """Prepare calls that are whole before their turn."""
        while True:
            with self._changed:
                while not self._closed and not (self._busy and self._ahead is None and len(self._next()) == self._most):
                    self._changed.wait()
                if self._closed:
                    return
                rows, self._preparing = self._taken(self._next()), True
            try:
                prepared = self._sampler.prepare(rows)
            except BaseException:  # it will be raised again, and halves be tried, when the call is made
                prepared = None
            with self._changed:
                self._ahead, self._preparing = (rows, prepared), False
                if self._closed:
                    _turn_away(rows)
                self._changed.notify_all()

    def _gathered(self) -> tuple[list[Row], Any]:
        """The rows of the next call, and what was prepared for them; no rows when it is time to end."""
        with self._changed:
            free = time.monotonic()
            while not self._closed:
                if self._ahead is not None:
                    call, self._ahead, self._busy = self._ahead, None, True
                    return call
                now = time.monotonic()
                rows = [] if self._preparing else self._next()
                if not rows:
                    self._changed.wait()
                    free = time.monotonic()
                    continue
                until = self._wait_until(rows, now, free + min(_LONGEST, self._took / 2))
                if until <= now:
                    self._busy = True
                    self._changed.notify_all()
                    return self._taken(rows), None
                self._changed.wait(until - now)
            _turn_away([*self._waiting, *(self._ahead or [[]])[0]])
            return [], None

    def _taken(self, rows: list[Row]) -> list[Row]:
        self._waiting = [row for row in self._waiting if row not in rows]
        return rows

    def _next(self) -> list[Row]:
        """The rows that could go now: the first that waits, and those that can share its call."""
        for row in [row for row in self._waiting if not row.seat.there()]:
            self._waiting.remove(row)
            row.end(ComponentError("the client has gone"))
        if not self._waiting or self._waiting[0].seat.alone:
            return self._waiting[:1]
        kind = self._waiting[0].alike
        return [row for row in self._waiting if not row.seat.alone and row.alike == kind][: self._most]

    def _wait_until(self, rows: Sequence[Row], now: float, limit: float) -> float:
        """When to look again whether others have come; not later than now: begin."""
        if rows[0].seat.alone or len(rows) >= self._most:
            return now
        late = min(_LATE, self._took / 8)
        seats = [seat for seat in self._seats if seat.since is not None and not seat.alone]
        due = sorted(seat.since + seat.pause for seat in seats if seat.since is not None)
        due = [moment for moment in due if now - late < moment <= limit]
        count = worth_waiting(len(rows), [max(moment - now, 0) for moment in due], self._took, self._most)
        if not count:
            return now
        last = due[count - 1]
        return min(last if last > now else last + late, limit)

    def _sampled(self, rows: Sequence[Row], prepared: Any = None) -> list[F32 | Exception]:
        """An answer for each row; where the call fails, halves of it are tried, so that one cannot spoil the others."""
        try:
            answers = list(self._sampler.sample(rows, prepared))
            if len(answers) != len(rows):
                raise ComponentError(f"{len(answers)} chunks came back for {len(rows)} rows")
            return answers
        except BaseException as error:  # not even a policy that calls sys.exit ends the thread that all wait for
            if len(rows) == 1:
                return [error if isinstance(error, Exception) else ComponentError(one_line(error))]
            half = len(rows) // 2
            answers = self._sampled(rows[:half]) + self._sampled(rows[half:])
            if not any(isinstance(answer, Exception) for answer in answers):
                self._most = min(self._most, half)
                _log.warning("%d rows at once failed (%s); now %d at most", len(rows), one_line(error), half)
            return answers


def worth_waiting(here: int, due: Sequence[float], took: float, most: int) -> int:
    """How many of those who will ask, ``due`` seconds from now (ascending), to wait for before a call begins.

    Waiting ``w`` for the first ``k`` of them costs everyone ``w``, and spares those ``k`` a call of ``took`` seconds.
    """
    everyone = here + len(due)
    saved = [0.0, *(k * took - everyone * wait for k, wait in enumerate(due[: most - here], 1))]
    return saved.index(max(saved))


def _turn_away(rows: Sequence[Row]) -> None:
    for row in rows:
        row.end(ComponentError("the server is closing"))
