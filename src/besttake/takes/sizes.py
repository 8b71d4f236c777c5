"""How many replicas, workers and takes ``auto`` means, from the cores, memory and GPUs of this machine or cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from besttake.errors import PlanError

AUTO = "auto"
_PER_WORKER = 1 << 30
"""Bytes that a worker may need: a simulator or two with its pictures."""
_IN_WORKER = 16
"""Takes that a worker plays side by side if it samples the policy itself."""
_MOST = 512
_NO_LIMIT = float("inf")
_OWN_GROUPS, _ALL_GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def worker_count(asked: int | str, replicas: int = 1) -> int:
    """The workers of each replica: as asked; for ``auto`` one per core, as far as memory allows."""
    if asked != AUTO:
        return int(asked)
    return max(1, min(cores() // replicas, memory() // _PER_WORKER // replicas, _MOST))


def takes_per_worker(asked: int | str, workers: int, width: int, at_once: int | None, *, acting: bool) -> int:
    """How many takes each worker has in progress at once; ``asked`` is the number over all workers.

    With ``auto``, each worker plays one take while another waits, and two groups of ``width`` rows are being sampled or
    about to be; if the policy has no fixed width, at least 32 takes are in progress. If workers sample the policy
    themselves (``acting``), each has 16. A worker holds at most ``at_once`` simulators (None: any number).
    """
    if asked != AUTO:
        takes = int(asked)
    elif acting:
        takes = _IN_WORKER * workers
    else:
        takes = 2 * workers + 2 * width if width else max(32, 2 * workers)
    return max(1, min(takes // workers, at_once or takes))


@dataclass(frozen=True)
class ReplicaLayout:
    """The number of ``replicas``, the ``workers`` and ``gpus`` of each, and how many fit on the cluster (``room``)."""

    replicas: int
    workers: int
    gpus: float
    room: int


def laid_out(
    nodes: Sequence[Mapping[str, float]], replicas: int | None, workers: int | None, gpus: float | None
) -> ReplicaLayout:
    """Distribute replicas over ``nodes``, given by their resources under Ray's names; None lets us choose a number.

    The whole of a replica is on one node. There is one per GPU (or share of one), or one per node if there are no GPUs,
    each with as many workers as leave room for all.

    >>> laid_out([{"CPU": 4.0}, {"CPU": 32.0, "GPU": 4.0}], None, None, None)
    ReplicaLayout(replicas=4, workers=8, gpus=1.0, room=4)
    """
    each = gpus if gpus is not None else float(any(node.get("GPU") for node in nodes))
    if 0 < each < 1e-4 or (each > 1 and each != int(each)):
        raise PlanError(f"`gpus_per_replica` {each:g}: a replica has a part of one GPU (at least .0001), or whole ones")

    def room(size: int) -> int:
        """How many replicas with that many workers fit."""
        return sum(min(cores(node) // size, shares(node)) for node in nodes)

    def cores(node: Mapping[str, float]) -> int:
        memory = node.get("memory", _NO_LIMIT) if workers is None else _NO_LIMIT
        return int(min(node.get("CPU", 0.0), max(1.0, memory / _PER_WORKER)))

    def shares(node: Mapping[str, float]) -> int:
        # In ten-thousandths, as Ray counts: 1 // 0.1 is 9 in floating point.
        return round(10_000 * node.get("GPU", 0.0)) // round(10_000 * each) if each else _MOST

    count = replicas or (room(workers or 1) if each else sum(map(bool, map(cores, nodes)))) or 1
    choices = [workers] if workers is not None else range(1, max(1, *map(cores, nodes)) + 1)
    size = max(choices, key=lambda workers: (min(count, room(workers)), workers))
    if not room(size):
        largest = max(nodes, key=lambda node: (node.get("GPU", 0.0), node.get("CPU", 0.0)))
        raise PlanError(
            f"no node of the Ray cluster has room for a replica with {size} workers and {each:g} GPUs; the largest"
            f" has {largest.get('CPU', 0.0):g} cores and {largest.get('GPU', 0.0):g} GPUs; use fewer `workers`"
        )
    return ReplicaLayout(count, size, each, room(size))


def cores() -> int:
    """The number of cores that this process may use, by its affinity and the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups():
        with suppress(OSError, ValueError):
            quota, period = map(int, (group / "cpu.max").read_text().split())
            count = min(count, max(1, round(quota / period)))
    return count


def memory() -> int:
    """The bytes of free memory, within the limit of the control group."""
    free = _PER_WORKER * _MOST
    with suppress(OSError, ValueError, StopIteration):
        free = 1024 * _entry(Path("/proc/meminfo"), "MemAvailable:")
    for group in _groups():
        with suppress(OSError, ValueError, StopIteration):
            limit = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
            # Cached files count as used, but are freed when memory is needed.
            free = max(0, min(free, limit + _entry(group / "memory.stat", "inactive_file")))
    return free


def gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    if (visible := os.environ.get(_VISIBLE)) is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    try:
        return [str(index) for index, _ in enumerate(Path("/proc/driver/nvidia/gpus").iterdir())]
    except OSError:
        return []


def drawing(gpu: str) -> dict[str, str]:
    """The environment variable that makes MuJoCo draw on ``gpu``; empty if the GPU has no number, which EGL needs."""
    return {"MUJOCO_EGL_DEVICE_ID": gpu} if gpu.isdecimal() else {}


def _groups() -> Iterator[Path]:
    """The control group (v2) of this process, and all above it, whose limits hold for it as well."""
    with suppress(OSError, ValueError):
        group = _ALL_GROUPS / _OWN_GROUPS.read_text().splitlines()[-1].removeprefix("0::").lstrip("/")
        yield from (each for each in (group, *group.parents) if each.is_relative_to(_ALL_GROUPS))


def _entry(file: Path, name: str) -> int:
    """The number that stands after ``name`` in a file of one entry per line."""
    return int(next(line.split()[1] for line in file.read_text().splitlines() if line.split()[0] == name))
