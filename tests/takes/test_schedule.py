"""The schedule alone: no clock, no process."""

from __future__ import annotations

import numpy as np

from besttake.takes.draws import Draw
from besttake.takes.film import Film
from besttake.takes.key import TakeKey
from besttake.takes.messages import Begin, End, Job, Need
from besttake.takes.ray import hand_out
from besttake.takes.schedule import Queue, Schedule
from besttake.takes.take import Take
from besttake.types import Observation

NONE = np.zeros((0, 1), np.float32)


def jobs(count: int) -> list[Job]:
    return [Job(TakeKey("p", "e", "t", start, "base", 0), 4, (), "eye", 5, True) for start in range(count)]


def schedule(queue: Queue, workers: int = 2, slots: int = 4, width: int = 3) -> Schedule:
    return Schedule(queue, lambda key: Draw(0, key.task, key.start, key.seed), workers, slots, width)


def need(slot: int) -> Need:
    return Need(slot, Observation({}, NONE), 0, NONE)


def end(job: Job) -> End:
    return End(0, Take(job.key, None, NONE, NONE, Film(b"", 0, 0, 0, 0), np.zeros(0, np.int32)), 0.0)


def starts(group: list) -> list[int]:
    return [row.take.job.key.start for row in group]


def test_a_group_is_begun_ahead_only_when_it_is_whole() -> None:
    plan = schedule(Queue(jobs(8)))
    orders = [order for worker in range(2) for lane in plan.fill(worker) for order in lane]
    assert len(orders) == plan.under_way == 8
    plan.answered(0, [need(slot) for slot in (0, 1)])
    first = plan.group()
    assert len(first) == 2, "nothing is sampled, so what waits is"
    plan.answered(0, [need(2)])
    assert plan.group() == [], "a group that is not whole waits for others while one is sampled"
    plan.answered(1, [need(0), need(1)])
    second = plan.group()
    assert len(second) == 3
    plan.answered(1, [need(2), need(3)])
    plan.answered(0, [need(3)])
    assert plan.group() == [], "two are under way"
    sent, failed = plan.sampled(first, [NONE] * 2)
    assert [worker for worker, _ in sent] == [0, 0]
    assert not failed
    assert len(plan.group()) == 3


def test_takes_of_a_worker_that_dies_while_they_are_sampled_are_played_again_from_their_start() -> None:
    queue = Queue(jobs(4))
    plan = schedule(queue, workers=1)
    plan.fill(0)
    plan.answered(0, [need(slot) for slot in range(4)])
    group = plan.group()
    assert plan.died(0) == []
    assert len(queue) == 4
    again = [order for lane in plan.fill(0) for order in lane]
    assert all(isinstance(order, Begin) for order in again)
    assert plan.sampled(group, [NONE] * 3) == ([], []), "actions for the lost takes go to nobody"
    assert plan.under_way == 4


def test_replicas_that_are_there_share_what_is_left() -> None:
    queue, first, second = Queue(jobs(30)), dict[TakeKey, Job](), dict[TakeKey, Job]()
    assert hand_out(queue, first, 0, []) == [], "it has not joined yet"
    assert len(hand_out(queue, first, 16, [first])) == 20, "its slots and four in reserve, whoever may join later"
    assert len(hand_out(queue, second, 64, [first, second])) == 10
    queue, first = Queue(jobs(30)), {}
    assert len(hand_out(queue, first, 64, [first, {}, {}])) == 10, "a third, however many slots it has"
