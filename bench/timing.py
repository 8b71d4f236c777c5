"""Two ways to do the same, timed fairly on a machine that has other work: in turn, wall and processor time, medians."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Times:
    """Seconds of each round, wall and processor (of all threads of this process)."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    def rate(self, count: int) -> float:
        """``count`` per second of wall time, at the median."""
        return count / float(np.median(self.wall))


def in_turn(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Times]:
    """Run each ``rounds`` times in turn, every other round in reverse order; callers have warmed both up."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            wall, cpu = time.perf_counter(), time.process_time()
            runs[name]()
            seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: Times(*map(tuple, zip(*pairs, strict=True))) for name, pairs in seconds.items()}


def times_faster(slow: Times, fast: Times) -> tuple[float, float]:
    """Slow over fast, the median over rounds: of wall time and of processor time."""
    wall = np.median(np.divide(slow.wall, fast.wall))
    cpu = np.median(np.divide(slow.cpu, fast.cpu))
    return round(float(wall), 2), round(float(cpu), 2)


def machine() -> str:
    """Cores and how many processes wanted them just now, so that a busy machine shows in the output."""
    return f"{len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.1f}"
