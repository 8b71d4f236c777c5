"""How many takes suit the measured times of simulators and policy."""

from __future__ import annotations

from pathlib import Path

import toy

from besttake.takes.autoscale import Autoscale, Load, Measured, first
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.messages import Job
from besttake.takes.pool import LocalPool
from besttake.takes.runner import Concurrency, play
from besttake.takes.sizes import room_for
from besttake.takes.store import Store


def test_takes_are_added_only_as_far_as_memory_goes() -> None:
    loads: list[Load] = []
    autoscale = Autoscale(64, 8, None, lambda load: 5, lambda load, measured: loads.append(load))
    autoscale.turned(1.0)
    assert not autoscale.grown(3, 9.0), "the first calls set things up"
    assert autoscale.grown(6, 9.06)
    assert loads == [autoscale.load]
    assert autoscale.load.takes == first(64, 8).takes + 5
    assert room_for([], Load(1, 1)) > 1000


def draw(key: TakeKey) -> Draw:
    return Draw(0, key.task, key.start, key.seed)


def test_a_run_measures_grows_and_plays_the_same_takes(tmp_path: Path) -> None:
    keys = [TakeKey("p", "python:toy:make?slow=0.002", "walk", start, "base", 0) for start in range(20)]
    work = [Job(key, 12, (), "eye", 5, True) for key in keys]
    loads: list[tuple[Load, Measured]] = []
    pool = LocalPool(2)
    digests = []
    for name, batch in (
        ("auto", Concurrency(None, on_load=lambda *chosen: loads.append(chosen))),
        ("two", Concurrency(2)),
    ):
        with Store.write(tmp_path / name, Manifest()) as store:
            play(work, toy.Sleeping(0.002, width=2), draw, store, pool, batch=batch)
            digests.append(store.digest())
    pool.close()
    assert digests[0] == digests[1]
    load, measured = loads[-1]
    assert load.takes > first(2, 2).takes, "a turn of three steps takes longer than a call"
    assert measured.turn > 0.002
    assert measured.call > 0.002
