"""Recorded takes to rank (videos, folders of pictures, LeRobot episodes) and the times at which they are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from besttake import registry
from besttake.demos.base import UnreadableDemo
from besttake.demos.reading import Unreadable, timed_frames
from besttake.demos.video import read_frames
from besttake.errors import PlanError
from besttake.types import F64, I64, U8

FPS = 10.0
"""Default frame rate of a folder of pictures, as in ``video:``."""
_SHORT, _FEWEST = 0.05, 5
"""A take shorter than this fraction of the longest, or with fewer frames, is left out: it would shorten the rest."""
_SLACK = 0.25
"""How late a frame may be, as a fraction of its duration: videos round frame times to their time base."""


@dataclass(frozen=True)
class RecordedTake:
    """A recorded take: ``frames`` uint8 (F, h, w, 3) shown at ``times`` (F,) in seconds, or the ``problem`` with it."""

    name: str
    frames: U8 | None = None
    times: F64 = field(default_factory=lambda: np.zeros(0))
    problem: str = ""

    @property
    def rate(self) -> float:
        """Frames per second; 0 for a single frame."""
        return (len(self.times) - 1) / float(self.times[-1]) if len(self.times) > 1 else 0.0

    @property
    def duration(self) -> float:
        """Seconds from its first frame to the end of its last."""
        return float(self.times[-1]) + 1 / self.rate if self.rate else 0.0


@dataclass(frozen=True)
class Clock:
    """The times at which takes are compared: ``rate`` times a second, until ``end`` seconds (None: each to its end).

    Takes below ``short`` seconds, or of fewer than ``fewest`` frames, are not compared.
    """

    window: str
    rate: float = FPS
    end: float | None = None
    short: float = 0.0
    fewest: int = 0

    def compares(self, film: RecordedTake) -> bool:
        """Whether a take can be compared with the others."""
        return film.frames is not None and film.duration >= self.short and len(film.times) >= self.fewest

    def rows(self, times: F64) -> I64:
        """Return the rows of the frames to compare: at each tick, the frame that is shown then."""
        ticks = np.arange(math.floor(float(times[-1]) * self.rate + 1e-6) + 1)
        slack = _SLACK * float(np.median(np.diff(times))) if len(times) > 1 else 0.0
        rows: I64 = np.searchsorted(times, ticks / self.rate + slack, side="right") - 1
        return rows


def clock_of(films: Sequence[RecordedTake], window: str, stride: int) -> Clock:
    """Return the clock for ``films``: the rate of the slowest, and for the window "common" the shortest duration."""
    readable = [film for film in films if film.frames is not None]
    if not readable:
        return Clock(window)
    clock = Clock(window, short=_SHORT * max(film.duration for film in readable), fewest=_FEWEST)
    if not any(map(clock.compares, readable)):
        clock = Clock(window)
    compared = [film for film in readable if clock.compares(film)]
    rate = min((film.rate for film in compared if film.rate), default=FPS) / stride
    return replace(clock, rate=rate, end=min(film.duration for film in compared) if window == "common" else None)


def films_of(name: str, fps: float) -> list[RecordedTake]:
    """Read the takes that one argument names: a video, a folder of pictures, or LeRobot episodes (``DATASET#0:10``)."""
    dataset, hash_, episodes = name.rpartition("#")
    if hash_ and not Path(name).exists():
        first = _first(name, episodes)
        source = registry.demos(f"lerobot:{dataset.removeprefix('lerobot:')}", episodes=episodes)
        films = []
        for number, demo in enumerate(source, start=first):
            label = f"{dataset}#{number}"
            if isinstance(demo, UnreadableDemo):
                films.append(RecordedTake(label, problem=demo.reason))
            else:
                films.append(RecordedTake(label, demo.frames, np.arange(len(demo.frames)) / (source.fps or FPS)))
        if not films:
            raise PlanError(f"{name}: the data set has no such episode")
        return films
    path = Path(name)
    if not path.exists():
        raise PlanError(f"{name}: no such file or folder; name a video, a folder of pictures, or DATASET#3")
    try:
        if path.is_file():
            return [RecordedTake(name, *timed_frames(path))]
        frames = read_frames(path)
        return [RecordedTake(name, frames, np.arange(len(frames)) / fps)]
    except Unreadable as error:
        return [RecordedTake(name, problem=str(error))]


def _first(name: str, episodes: str) -> int:
    try:
        return int(episodes.partition(":")[0] or 0)
    except ValueError:
        raise PlanError(f"{name}: episodes are numbers, as in DATASET#3 or DATASET#0:10") from None
