"""How long a worker may be silent: a deadline per message, from how long such messages have taken in this run.

Without a limit of the user's, a worker has 20 times the slowest time per step (or per reset) that was seen, and never
less than five minutes; half an hour for a kind of message that none has answered yet. After each worker that was given
up, deadlines of that kind double.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from besttake.takes.messages import Act

LOOK = 1.0
"""Seconds between looks. No more than that counts per look, so that a laptop that slept, or Ctrl-Z, costs no worker."""
_OTHER_WORK = 10
"""Statistics may take so many times a user's patience, which is meant for simulators."""
_TIMES, _LEAST, _UNKNOWN, _MOST_DOUBLED = 20.0, 300.0, 1800.0, 4.0


@dataclass(frozen=True)
class _Message:
    kind: str
    units: int
    orders: bool = True


class Deadlines:
    """Keeps the time of ``size`` workers that answer messages one after the other.

    ``patience`` is the user's limit in seconds for a list of orders.
    """

    def __init__(self, size: int, patience: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._now = patience, now
        self._owed: list[deque[_Message]] = [deque() for _ in range(size)]
        self._silent = [0.0] * size
        self._slowest: dict[str, float] = {}
        self._doubled: dict[str, float] = {}
        self._last = now()

    def sent(self, worker: int, message: Any) -> None:
        """A message goes to ``worker``."""
        if not self._owed[worker]:
            self._silent[worker] = 0.0
        self._owed[worker].append(_described(message))

    def answered(self, worker: int) -> None:
        """The oldest message of ``worker`` is answered."""
        message = self._owed[worker].popleft()
        each = self._silent[worker] / message.units
        self._slowest[message.kind] = max(each, self._slowest.get(message.kind, 0.0))
        self._silent[worker] = 0.0

    def replaced(self, worker: int) -> None:
        """``worker`` is a new one and owes nothing."""
        self._owed[worker].clear()
        self._silent[worker] = 0.0

    def started(self, worker: int) -> None:
        """``worker`` is ready; only now does the time of its first message begin."""
        self._silent[worker] = 0.0

    def overdue(self, heard: Collection[int], starting: Collection[int] = ()) -> list[tuple[int, float]]:
        """Look at the clock: the workers that are silent for too long, and their seconds; not those just ``heard``.

        Those that are ``starting`` have longer.
        """
        now = self._now()
        passed, self._last = min(now - self._last, LOOK), now
        late = []
        for worker, owed in enumerate(self._owed):
            if owed and worker not in heard:
                self._silent[worker] += passed
                limit = max(self.limit(owed[0]), self._start_limit if worker in starting else 0.0)
                if self._silent[worker] > limit:
                    late.append((worker, self._silent[worker]))
                    self._doubled[owed[0].kind] = min(2 * self._doubled.get(owed[0].kind, 1.0), _MOST_DOUBLED)
        return late

    @property
    def _start_limit(self) -> float:
        return _UNKNOWN if self._patience is None else max(60.0, 10 * self._patience)

    def limit(self, message: _Message) -> float:
        """How many seconds a message may take."""
        if self._patience is not None:
            return self._patience * (1 if message.orders else _OTHER_WORK)
        slowest = self._slowest.get(message.kind)
        own = _UNKNOWN if slowest is None else max(_LEAST, _TIMES * slowest * message.units)
        return own * self._doubled.get(message.kind, 1.0)


def _described(message: Any) -> _Message:
    """Orders by their kinds and how many steps they ask for; other work by the name of its function."""
    if not isinstance(message, Sequence):
        function = message.func if isinstance(message, partial) else message
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return _Message(name, 1, orders=False)
    kinds = sorted({type(order).__name__ for order in message})
    steps = sum(len(order.actions) if isinstance(order, Act) else 1 for order in message)
    return _Message("+".join(kinds), max(1, steps))
