from __future__ import annotations

from bench.cluster import Costs, simulate

from besttake.takes.tempo import Measured, suited


def test_one_policy_is_busy_with_what_auto_chooses_and_eight_are_eight_times_as_fast() -> None:
    costs = Costs()
    load = suited(Measured(costs.replan * costs.step, costs.sample, costs.width), workers=16)
    one = simulate(1, load.workers, load.takes, costs, per_gpu=64)
    eight = simulate(8, 8 * load.workers, load.takes, costs, per_gpu=64)
    assert one.gpu > 0.92
    assert eight.rate / one.rate > 7.4


def test_the_writer_is_the_limit_where_it_is_slower_than_the_replicas() -> None:
    slow, quick = (simulate(2, 32, 48, Costs(keep=keep), per_gpu=60) for keep in (0.5, 0.004))
    assert slow.writer > 0.7
    assert slow.rate < 2 < quick.rate, "half a second a take is two a second at most"
