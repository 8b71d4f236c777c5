"""What ``auto`` becomes once a run is under way: as many takes as the measured times of simulators and policy ask for.

A take is with a worker for one turn (actions in, the next question out), then with the policy for one call. A policy
that gives ``width`` takes their actions per call is always busy if, meanwhile, workers finish as many turns. Takes
that are under way beyond that only cost memory, a simulator each.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_RESERVE = 2
"""Times as many turns as the policy asks for: takes reset and end, and no two turns take the same time."""
_CALLS = 3
"""Calls between two decisions, and before the first, which does not count: it sets things up."""
_TURNS = 256
_WORTH = 1.1
"""Takes are added where it is more than a few."""


@dataclass(frozen=True)
class Load:
    """``takes`` under way at once, in the first ``workers`` workers."""

    workers: int
    takes: int

    def slots(self, at_once: int | None) -> int:
        """The takes of each worker, which holds ``at_once`` simulators at most."""
        return max(1, min(-(-self.takes // self.workers), at_once or self.takes))


@dataclass(frozen=True)
class Measured:
    """The seconds of a worker's turn, and of a call of the policy for up to ``width`` takes."""

    turn: float
    call: float
    width: int

    def __str__(self) -> str:
        turn, call = 1000 * self.turn, 1000 * self.call
        return f"a turn of a simulator takes {turn:.0f} ms, a call of {self.width} rows {call:.0f} ms"


def first(workers: int, width: int, at_once: int | None = None) -> Load:
    """Where to begin: two calls' worth of takes with the policy, and about as many with workers."""
    return _bounded(min(workers, 2 * width), 2 * width + min(workers, 2 * width), workers, at_once)


def suited(measured: Measured, workers: int, at_once: int | None = None) -> Load:
    """Takes for two calls, and for as many workers as the policy keeps busy; two for each where all are.

    >>> suited(Measured(turn=0.1, call=0.06, width=8), workers=64)
    Load(workers=28, takes=44)
    >>> suited(Measured(turn=0.1, call=0.06, width=8), workers=2)
    Load(workers=2, takes=20)
    """
    asked = math.ceil(_RESERVE * measured.turn * measured.width / max(measured.call, 1e-6)) + 1
    return _bounded(asked, 2 * measured.width + min(asked, 2 * workers), workers, at_once)


def _bounded(asked: int, takes: int, workers: int, at_once: int | None) -> Load:
    """``takes`` in ``asked`` workers or more: there are ``workers``, and each holds ``at_once`` simulators at most."""
    most = at_once or takes
    takes = min(takes, most * workers)
    return Load(min(workers, max(asked, -(-takes // most))), takes)


class Autoscale:
    """Measures one engine, and says when its load should grow.

    ``room`` is how many more takes memory has room for. ``on_load`` is told each load that was decided on.
    """

    def __init__(
        self, workers: int, width: int, at_once: int | None, room: Callable[[Load], int],
        on_load: Callable[[Load, Measured], None] = lambda load, measured: None,
    ) -> None:  # fmt: skip
        self._workers, self._width, self._at_once, self._room = workers, width, at_once, room
        self._on_load = on_load
        self._turns: deque[float] = deque(maxlen=_TURNS)
        self._calls, self._seconds, self._said = 0, 0.0, False
        self.load = first(workers, width, at_once)

    @property
    def slots(self) -> int:
        """The takes of each worker that plays."""
        return self.load.slots(self._at_once)

    def turned(self, seconds: float) -> None:
        """A worker has taken its turn with one take."""
        self._turns.append(seconds)

    def grown(self, calls: int, seconds: float) -> bool:
        """Whether the load has grown, after so many calls and seconds of sampling in all."""
        made, spent = calls - self._calls, seconds - self._seconds
        if made < _CALLS or not self._turns:
            return False
        began, self._calls, self._seconds = not self._calls, calls, seconds
        if began:
            return False
        measured = Measured(sum(self._turns) / len(self._turns), spent / made, self._width)
        better = suited(measured, self._workers, self._at_once)
        grows = better.takes > _WORTH * self.load.takes
        if grows:
            takes = min(better.takes, self.load.takes + self._room(self.load))
            grows = takes > self.load.takes
            self.load = Load(max(better.workers, self.load.workers), takes)
        if grows or not self._said:
            self._said = True
            self._on_load(self.load, measured)
        return grows
