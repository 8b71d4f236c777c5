"""How many replicas, workers and takes suit a machine or a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from besttake.errors import PlanError
from besttake.takes import sizes
from besttake.takes.sizes import ReplicaLayout, laid_out, memory, takes_per_worker, worker_count

GB = 1 << 30
BIG = {"CPU": 128.0, "GPU": 8.0, "memory": 512.0 * GB}


@pytest.mark.parametrize(
    ("nodes", "asked", "expected"),
    [
        ([BIG] * 8, (None, None, None), ReplicaLayout(64, 16, 1.0, 64)),
        ([BIG], (None, 4, 0.1), ReplicaLayout(32, 4, 0.1, 32)),  # cores are the limit
        ([{"CPU": 64.0, "GPU": 1.0}], (None, 1, 0.1), ReplicaLayout(10, 1, 0.1, 10)),  # 1 // 0.1 is 9
        (
            [{"CPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}],
            (None, None, None),
            ReplicaLayout(2, 8, 1.0, 2),
        ),  # none on the head
        ([{"CPU": 16.0, "GPU": 1.0}] * 2, (3, None, None), ReplicaLayout(3, 16, 1.0, 2)),  # the third waits for a node
        ([{"CPU": 64.0, "GPU": 1.0, "memory": 20.0 * GB}], (None, None, None), ReplicaLayout(1, 20, 1.0, 1)),
    ],
)
def test_replicas_lie_on_nodes_that_have_room_for_them(nodes, asked, expected) -> None:
    assert laid_out(nodes, *asked) == expected


def test_a_replica_that_fits_nowhere_and_a_share_that_ray_does_not_know_are_one_line_each() -> None:
    with pytest.raises(PlanError, match="no node .* with 200 workers and 1 GPUs; the largest has 128 cores and 8 GPUs"):
        laid_out([BIG], None, 200, None)
    for share in (1.5, 0.00001):
        with pytest.raises(PlanError, match=f"`gpus_per_replica` {share:g}: a replica has a part of one GPU"):
            laid_out([BIG], None, None, share)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups of this process that are made of plain files; none yet."""
    monkeypatch.setattr(sizes, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(sizes, "_ALL_GROUPS", tmp_path / "all")
    return tmp_path


def written(place: Path, **files: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name.replace("__", ".")).write_text(text)


def test_memory_that_a_group_may_still_use_includes_what_files_hold(groups: Path) -> None:
    machine = memory()
    assert machine > 64 << 20
    written(groups, own="0::/job\n")
    place = groups / "all" / "job"
    stat = f"anon 5\ninactive_file {24 << 20}\nactive_file 7\n"
    written(place, memory__max=f"{64 << 20}\n", memory__current=f"{60 << 20}\n", memory__stat=stat)
    assert memory() == 28 << 20
    written(place, memory__max="max\n")
    assert memory() > 28 << 20
    written(place, memory__max=f"{62 << 20}\n")
    assert worker_count("auto") == 1


@pytest.mark.parametrize(
    ("asked", "workers", "width", "at_once", "acting", "expected"),
    [
        ("auto", 64, 8, None, False, 2),
        ("auto", 2, 8, None, False, 10),
        ("auto", 2, 8, 2, False, 2),  # LIBERO: a worker holds two simulators
        ("auto", 2, 0, None, False, 16),
        ("auto", 4, 0, None, True, 16),
        (7, 2, 8, None, False, 3),
        (1, 4, 8, None, False, 1),
    ],
)
def test_takes_in_progress_keep_workers_and_policy_busy(asked, workers, width, at_once, acting, expected) -> None:
    assert takes_per_worker(asked, workers, width, at_once, acting=acting) == expected
