"""Kills, stops and full disks: no take is lost or made twice, the bits stay the same, and no process is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.campaign.stage import Attempt, check, stage
from bench.campaign.tiny import TAKES, Diagnosis, World, alive, check_gone, children, make_world
from besttake.errors import RunError
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store

_KILLS, _HITS = 5, 2
"""How often a parent, and the workers of one, are hit in a try. A take that is lost three times is given up."""


def kept(run: Path) -> dict[TakeKey, Row]:
    """The finished takes of a run that may have been killed at any moment."""
    try:
        with Store.open(run) as store:
            return {row.key: row for row in store.rows() if row.status == "done"}
    except RunError as error:
        check("no takes yet" in str(error) or "not a run" in str(error), f"after a kill: {error}")
        return {}


@stage(
    "parent-kills", "SIGKILL the parent at random moments, five in a row, then let it end", ci=2, full=40, each=_KILLS
)
def parent_kills(scratch: Path) -> Iterator[Attempt]:
    world = make_world(scratch)

    def attempt(rng: random.Random, place: Path) -> str:
        out, before = place / "run", dict[TakeKey, Row]()
        for _ in range(_KILLS):
            process = world.start(out, workers=rng.choice((1, 1, 2)))
            now = _moment(rng, world, out, len(before))
            while process.poll() is None and not now():
                time.sleep(0.01)
            workers = children(process.pid)
            process.kill()
            check_gone(workers)
            have = kept(out)
            check(before.items() <= have.items(), "a finished take was lost or made twice")
            before = have
        world.finish(out)
        check(before.items() <= kept(out).items(), "a finished take was lost or made twice")
        return "same bits"

    yield attempt


@stage("worker-kills", "SIGKILL a worker at a random moment, twice in a run", ci=2, full=50, each=_HITS)
def worker_kills(scratch: Path) -> Iterator[Attempt]:
    yield _on_workers(make_world(scratch), signal.SIGKILL)


@stage(
    "stops", "SIGSTOP a worker at a random moment, twice in a run, with a patience of 10 s", ci=1, full=10, each=_HITS
)
def stops(scratch: Path) -> Iterator[Attempt]:
    yield _on_workers(make_world(scratch), signal.SIGSTOP, patience=10)


def _on_workers(world: World, how: signal.Signals, patience: float | None = None) -> Attempt:
    def attempt(rng: random.Random, place: Path) -> tuple[str, int]:
        out, hit = place / "run", set[int]()
        process, seen = world.start(out, patience), set[int]()
        now, until = _moment(rng, world, out), time.monotonic() + 900
        while process.poll() is None:
            workers = children(process.pid)
            seen |= set(workers)
            well = [pid for pid in workers if pid not in hit and alive(pid)]
            if len(hit) < _HITS and well and now():
                chosen = rng.choice(well)
                os.kill(chosen, how)
                hit.add(chosen)
                now = _moment(rng, world, out)
            if time.monotonic() > until:
                process.kill()
                check(False, f"the run did not end within 900 s of {how.name} to a worker")
            time.sleep(0.02)
        code, said = process.wait()
        check(code == 0, f"the run ended with {code}: {said[-300:]}")
        check_gone(sorted(seen))
        check(bool(seen), "no worker was seen: there was nothing to attack")
        world.compare(out)
        return "same bits", len(hit)

    return attempt


@stage("full-disks", "fill the disk (a small tmpfs) at a random size, then make room", ci=2, full=20)
def full_disks(scratch: Path) -> Iterator[Attempt]:
    world = make_world(scratch)

    def attempt(rng: random.Random, place: Path) -> str:
        small = place / "small"
        small.mkdir()
        size = rng.randrange(16, 480)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", small], check=False)
        if mounted.returncode:
            return "could not mount"
        try:
            code, text = Diagnosis(world, small / "run", {"workers": 1}, place / "log").wait()
            said = [line for line in text.splitlines() if line.startswith(("besttake:", "Traceback"))]
            if code:
                check(code == 1, f"a full disk gave exit code {code}: {text[-300:]}")
                check(len(said) == 1 and "no room left on the disk" in said[0], f"a full disk was told as {said[-3:]}")
            before = kept(small / "run") if (small / "run").exists() else {}
            subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
            world.finish(small / "run")
            check(before.items() <= kept(small / "run").items(), "a finished take was lost or made twice")
            return "one line, then same bits" if code else "it had room"
        finally:
            subprocess.run(["umount", small], check=True)

    yield attempt


def _moment(rng: random.Random, world: World, out: Path, have: int = 0) -> Callable[[], bool]:
    """Whether a random moment of a run has come: half of them by the clock, half by how many takes are kept."""
    if rng.random() < 0.5:
        after = time.monotonic() + rng.uniform(0, world.seconds)
        return lambda: time.monotonic() >= after
    count = rng.randint(have + 1, TAKES) if have < TAKES else TAKES
    return lambda: (out / "takes.sqlite").exists() and len(kept(out)) >= count
