"""How many replicas, workers and takes suit a machine or a cluster."""

from __future__ import annotations

import pytest

from besttake.errors import PlanError
from besttake.takes.sizes import Layout, laid_out

GB = 1 << 30
BIG = {"CPU": 128.0, "GPU": 8.0, "memory": 512.0 * GB}


@pytest.mark.parametrize(
    ("nodes", "asked", "expected"),
    [
        ([BIG] * 8, (None, None, None), Layout(64, 16, 1.0, 64)),
        ([BIG] * 2, (None, None, 0.5), Layout(32, 8, 0.5, 32)),
        ([BIG], (None, 4, 0.1), Layout(32, 4, 0.1, 32)),  # cores are the limit
        ([{"CPU": 64.0, "GPU": 1.0}], (None, 1, 0.1), Layout(10, 1, 0.1, 10)),  # 1 // 0.1 is 9
        ([{"CPU": 16.0, "GPU": 3.0}] * 2, (None, None, 2), Layout(2, 16, 2, 2)),  # one on each, not three in all
        ([{"CPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}], (None, None, None), Layout(2, 8, 1.0, 2)),  # none on the head
        ([{"CPU": 0.0}, {"CPU": 8.0}, {"CPU": 8.0}], (None, None, None), Layout(2, 8, 0.0, 2)),
        ([{"CPU": 2.0}] * 2, (4, None, None), Layout(4, 1, 0.0, 4)),
        ([{"CPU": 16.0, "GPU": 1.0}] * 2, (3, None, None), Layout(3, 16, 1.0, 2)),  # the third waits for a node
        ([{"CPU": 64.0, "GPU": 1.0, "memory": 20.0 * GB}], (None, None, None), Layout(1, 20, 1.0, 1)),
        ([{"CPU": 64.0, "GPU": 1.0, "memory": 20.0 * GB}], (None, 40, None), Layout(1, 40, 1.0, 1)),
    ],
)
def test_replicas_lie_on_nodes_that_have_room_for_them(nodes, asked, expected) -> None:
    assert laid_out(nodes, *asked) == expected


def test_a_replica_that_fits_nowhere_and_a_share_that_ray_does_not_know_are_one_line_each() -> None:
    with pytest.raises(PlanError, match="no node .* with 200 workers and 1 GPUs; the largest has 128 cores and 8 GPUs"):
        laid_out([BIG], None, 200, None)
    with pytest.raises(PlanError, match="`gpus_per_replica` 1.5: a replica has a part of one GPU, or whole ones"):
        laid_out([BIG], None, None, 1.5)
