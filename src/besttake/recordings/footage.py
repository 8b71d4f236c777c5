"""Recorded takes to rank: videos, folders of pictures and LeRobot episodes, and when their frames are looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from besttake import registry
from besttake.demos.base import UnreadableDemo
from besttake.demos.frames import Unreadable, timed_frames
from besttake.demos.video import read_frames
from besttake.errors import PlanError
from besttake.types import F64, I64, U8

FPS = 10.0
"""The rate of a folder of pictures, which has none of its own, unless the user says it; as in ``video:``."""
_SHORT, _FEWEST = 0.05, 5
"""A take shorter than this part of the longest, or of fewer frames, is not compared: it would cut all others to it."""
_SLACK = 0.25
"""Times of frames are rounded to the time base of a video: a frame may come so much of its own length late."""


@dataclass(frozen=True)
class RecordedTake:
    """A recorded take: its ``frames`` uint8 (F, h, w, 3) shown at ``times`` (F,) seconds, or what is wrong with it."""

    name: str
    frames: U8 | None = None
    times: F64 = field(default_factory=lambda: np.zeros(0))
    problem: str = ""

    @property
    def rate(self) -> float:
        """Frames a second; 0 of a single frame."""
        return (len(self.times) - 1) / float(self.times[-1]) if len(self.times) > 1 else 0.0

    @property
    def duration(self) -> float:
        """Seconds from its first frame to the end of its last."""
        return float(self.times[-1]) + 1 / self.rate if self.rate else 0.0


@dataclass(frozen=True)
class Clock:
    """When takes are looked at: ``rate`` times a second, until ``end`` seconds (None: each to its own end).

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
        """Which of the frames shown at ``times`` are seen: at each tick the one that stands then."""
        ticks = np.arange(math.floor(float(times[-1]) * self.rate + 1e-6) + 1)
        slack = _SLACK * float(np.median(np.diff(times))) if len(times) > 1 else 0.0
        rows: I64 = np.searchsorted(times, ticks / self.rate + slack, side="right") - 1
        return rows


def clock_of(films: Sequence[RecordedTake], window: str, stride: int) -> Clock:
    """When ``films`` are looked at: at the rate of the slowest, over what all of those that are compared have."""
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
    """The takes that one argument names: a video, a folder of pictures, or one or several LeRobot episodes."""
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
