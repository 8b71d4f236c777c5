"""The run that is attacked: a testbed plan of a second or two."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.campaign.stage import Broken, check
from besttake.config import load_plan
from besttake.errors import BestTakeError
from besttake.progress import Reporter
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.runs import summarise

PLAN = """\
policy: testbed:half
env: testbed:pick
arms: [base, retrieve]
starts: 4
seeds: 2
demos_per_task: 4
probe_states: 8
batch: 4
"""
TAKES = 2 * 4 * 2
_NOT_NUMBERS = ("created", "command", "versions", "cost", "plan", "sha256")


@dataclass(frozen=True)
class World:
    """The plan file, the cache of libraries and the unbroken run."""

    plan: Path
    cache: Path
    reference: Path
    digest: str
    numbers: dict[str, Any]
    seconds: float

    def start(self, out: Path, patience: float | None = None, workers: int = 2) -> Diagnosis:
        """Begin a diagnosis."""
        return Diagnosis(self, out, {"patience": patience, "workers": workers})

    def finish(self, out: Path) -> str:
        """Run the diagnosis to its end, check that it is the unbroken one's twin, and return what it said."""
        code, said = self.start(out, workers=1).wait()
        check(code == 0, f"going on ended with {code}: {said[-300:]}")
        self.compare(out)
        return said

    def compare(self, out: Path) -> None:
        """Check that a finished run is the unbroken one's twin."""
        shown = summarise(out)
        counts = [shown.done, shown.missing, shown.failed, shown.damaged]
        check(counts == [TAKES, 0, 0, 0], f"done, missing, failed, damaged are {counts}")
        check(shown.digest == self.digest, "the digest is not that of the unbroken run")
        check(numbers(out) == self.numbers, "a number of result.json is not that of the unbroken run")
        check(not list(out.glob("**/*.tmp")), "a temporary file is left")


class Diagnosis:
    """A diagnosis in a process of its own: a fork of this one, which has everything loaded, so that hundreds can be
    started. Its workers are fresh interpreters, as always. Errors are told as by the command line."""

    def __init__(self, world: World, out: Path, given: dict[str, Any], log: Path | None = None) -> None:
        self._log = log or out.with_name(f"{out.name}.log")
        self._code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(self._child(world, out, given))

    def _child(self, world: World, out: Path, given: dict[str, Any]) -> int:
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ.update(environment(world.cache))
        try:
            diagnose(load_plan(world.plan, given), out, progress=Reporter(True))
        except BestTakeError as error:
            os.write(2, f"besttake: {error}\n".encode())
            return error.exit_code
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            return 99
        return 0

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, seconds: float = 900) -> tuple[int, str]:
        """The exit code and all that it said."""
        until = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > until:
                self.kill()
                raise Broken(f"a diagnosis did not end within {seconds:.0f} s")
            time.sleep(0.02)
        return self._code or 0, self._log.read_text()

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._code = -9


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "BESTTAKE_CACHE": str(cache), "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def environment_of(cache: Path) -> Iterator[None]:
    """The same environment in this process."""
    with patch.dict(os.environ, environment(cache)):
        yield


def make_world(scratch: Path) -> World:
    """The unbroken run, made in ``scratch``."""
    path, cache, reference = scratch / "plan.yaml", scratch / "cache", scratch / "reference"
    path.write_text(PLAN)
    world = World(path, cache, reference, "", {}, 0)
    for out in (scratch / "first", reference):  # the first also makes the library
        began = time.monotonic()
        code, said = world.start(out).wait()
        check(code == 0, f"the unbroken run failed: {said[-300:]}")
    seconds = time.monotonic() - began
    return World(path, cache, reference, summarise(reference).digest, numbers(reference), seconds)


def numbers(run: Path) -> dict[str, Any]:
    """Everything in ``result.json`` but what names the moment and the way it was made."""
    result = json.loads((run / "result.json").read_text())
    return {name: value for name, value in result.items() if name not in _NOT_NUMBERS}


def children(pid: int) -> list[int]:
    """The processes below ``pid``, whichever of its threads started them."""
    below: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            below += map(int, thread.read_text().split())
    return below


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
