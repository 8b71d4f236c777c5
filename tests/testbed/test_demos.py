from __future__ import annotations

from besttake import registry
from besttake.demos.build import BuildHooks, build
from besttake.encoders.pixels import Pixels
from besttake.takes.pool import WorkerPool


def test_demonstrations_made_by_workers_are_those_made_here(tmp_path):
    source = registry.demos("testbed?demos_per_task=2&stride=8")
    here = build(source, Pixels(), tmp_path / "here")
    asked = []
    pool = WorkerPool(2)

    def share(function, items):
        asked.extend(items)
        return pool.map(function, items)

    try:
        shared = build(source, Pixels(), tmp_path / "shared", hooks=BuildHooks(each=share))
    finally:
        pool.close()
    assert [part.tasks for part in asked] == [("pick",), ("push",), ("drawer",), ("stack",)]
    assert shared.fingerprint == here.fingerprint
