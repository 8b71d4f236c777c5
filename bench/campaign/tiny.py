"""The run that is attacked: a testbed plan of a second or two, driven through the real command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.campaign.stage import Broken, check
from besttake.takes.summary import summarise

PLAN = """\
policy: testbed:half
env: testbed:pick
arms: [base, retrieve]
starts: 6
seeds: 2
demos_per_task: 4
probe_states: 8
workers: 2
batch: 8
"""
TAKES = 2 * 6 * 2
_NOT_NUMBERS = ("created", "command", "versions", "cost", "sha256")


@dataclass(frozen=True)
class World:
    """The plan file, the cache of libraries and the unbroken run."""

    plan: Path
    cache: Path
    reference: Path
    digest: str
    numbers: dict[str, Any]
    seconds: float

    def command(self, out: Path, *more: str) -> list[str]:
        return [sys.executable, "-m", "besttake", "diagnose", str(self.plan), "-o", str(out), *more]

    def start(self, out: Path, *more: str) -> subprocess.Popen[str]:
        """Begin a diagnosis in a process group of its own."""
        return subprocess.Popen(
            self.command(out, *more), env=environment(self.cache), text=True, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def besttake(self, *arguments: str | Path, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """The command line, to its end."""
        command = [sys.executable, "-m", "besttake", *map(str, arguments)]
        return subprocess.run(
            command, env=environment(self.cache), capture_output=True, text=True, timeout=timeout, check=False
        )

    def run(self, plan: Path, out: Path) -> None:
        """A diagnosis that must succeed."""
        done = self.besttake("diagnose", plan, "-o", out, "-q")
        if done.returncode:
            raise Broken(f"the unbroken run failed: {done.stderr[-300:]}")

    def finish(self, out: Path) -> str:
        """Run the diagnosis to its end, check that it is the unbroken one's twin, and return what it said."""
        done = self.besttake("diagnose", self.plan, "-o", out)
        check(done.returncode == 0, f"going on ended with {done.returncode}: {done.stderr[-300:]}")
        self.compare(out)
        return done.stderr

    def compare(self, out: Path) -> None:
        """Check that a finished run is the unbroken one's twin."""
        shown = summarise(out)
        counts = [shown.done, shown.missing, shown.failed, shown.damaged]
        check(counts == [TAKES, 0, 0, 0], f"done, missing, failed, damaged are {counts}")
        check(shown.digest == self.digest, "the digest is not that of the unbroken run")
        check(numbers(out) == self.numbers, "a number of result.json is not that of the unbroken run")
        check(not list(out.glob("**/*.tmp")), "a temporary file is left")


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "BESTTAKE_CACHE": str(cache)}


@contextmanager
def environment_of(cache: Path) -> Iterator[None]:
    """The same environment in this process."""
    with patch.dict(os.environ, environment(cache)):
        yield


def make_world(scratch: Path, make: Callable[[Path, Path], object] | None = None) -> World:
    """The unbroken run, made in ``scratch`` by the command line, or by ``make(plan, out)``."""
    path, cache, reference = scratch / "plan.yaml", scratch / "cache", scratch / "reference"
    path.write_text(PLAN)
    world = World(path, cache, reference, "", {}, 0)
    for out in (scratch / "first", reference):  # the first also makes the library
        began = time.monotonic()
        (make or world.run)(path, out)
    seconds = time.monotonic() - began
    return World(path, cache, reference, summarise(reference).digest, numbers(reference), seconds)


def numbers(run: Path) -> dict[str, Any]:
    """Everything in ``result.json`` but what names the moment and the way it was made."""
    result = json.loads((run / "result.json").read_text())
    return {name: value for name, value in result.items() if name not in _NOT_NUMBERS}


def children(pid: int) -> list[int]:
    """The processes below ``pid``."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and is not waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def check_gone(pids: list[int], within: float = 10.0) -> None:
    """`Broken` when one of ``pids`` still runs; it is ended then."""
    until = time.monotonic() + within
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    check(not left, f"processes {left} outlived their parent")
