"""How many workers and takes under way suit this machine, where a plan says ``auto``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from besttake.takes.tempo import Load

AUTO = "auto"
_PER_WORKER = 1 << 30
"""Bytes that a worker may need: a simulator or two with its pictures."""
_IN_WORKER = 16
"""Takes that a worker with a policy of its own plays side by side."""
_MOST = 512
_MOST_TAKES = 4096


def worker_count(asked: int | str, replicas: int = 1) -> int:
    """The workers of each replica: as asked, else one per core, as far as memory goes."""
    if asked != AUTO:
        return int(asked)
    return max(1, min(cores() // replicas, memory() // _PER_WORKER // replicas, _MOST))


def takes_under_way(asked: int | str, workers: int, width: int, *, acting: bool) -> int:
    """The takes of a replica that are under way at once.

    Each worker has one to play and one or two that wait for actions or for their turn, and two groups of ``width`` rows
    are with the policy or about to be. With the policy in the worker (``acting``) it is what one call samples.
    """
    if asked != AUTO:
        return int(asked)
    return _IN_WORKER * workers if acting else max(32, 2 * workers) + 2 * width


def room_for(pids: Sequence[int], load: Load) -> int:
    """How many more takes half of the free memory has room for, each as large as those that workers hold now."""
    held = sum(map(_resident, pids))
    return _MOST_TAKES if not held else int(memory() // 2 // max(1, held // max(1, load.takes)))


def _resident(pid: int) -> int:
    """The bytes of memory that a process holds; 0 where that is not known."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def cores() -> int:
    """The cores that this process may use: those it is bound to, or fewer where its container has a quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, round(int(quota) / int(period))))
    return count


def memory() -> int:
    """The bytes of memory that are free here, or fewer where the container has a limit."""
    free = _PER_WORKER * _MOST
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
        free = max(0, min(free, limit))
    return free
