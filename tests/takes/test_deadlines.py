"""How long a worker may be silent, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from besttake.takes.deadlines import Deadlines
from besttake.takes.messages import Act


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def silent_for(deadlines: Deadlines, clock: Clock, worker: int = 0, most: int = 100_000) -> int:
    """How many seconds pass, a look each, until ``worker`` is given up."""
    for second in range(1, most):
        clock.now += 1.0
        if worker in [late for late, _ in deadlines.overdue([])]:
            deadlines.replaced(worker)
            return second
    raise AssertionError("it was never given up")


def act(steps: int) -> list[Act]:
    return [Act(0, np.zeros((steps, 2), np.float32))]


def answer_after(deadlines: Deadlines, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now += 1.0
        deadlines.overdue([])
    deadlines.answered(0)


def watched(patience: float | None = None) -> tuple[Deadlines, Clock]:
    clock = Clock()
    return Deadlines(2, patience, clock), clock


def test_a_deadline_comes_from_the_slowest_step_that_was_seen() -> None:
    deadlines, clock = watched()
    deadlines.sent(0, act(10))
    answer_after(deadlines, clock, 100)  # 10 s per step
    deadlines.sent(0, act(50))
    assert silent_for(deadlines, clock) == 20 * 10 * 50 + 1


def test_no_deadline_is_under_five_minutes_and_the_first_has_half_an_hour() -> None:
    deadlines, clock = watched()
    deadlines.sent(0, act(10))
    answer_after(deadlines, clock, 1)
    deadlines.sent(0, act(10))
    assert silent_for(deadlines, clock) == 301
    deadlines.sent(0, act(10))
    assert silent_for(deadlines, clock) == 601, "the next one has twice as long"
    deadlines.sent(0, abs_of(3))
    assert silent_for(deadlines, clock) == 1801, "another kind of message has not been timed"


def abs_of(number: int) -> Callable[[], int]:
    return lambda: abs(number)


def test_the_users_patience_is_the_deadline_of_orders_and_other_work_has_ten_times_as_long() -> None:
    deadlines, clock = watched(patience=7)
    deadlines.sent(0, act(1000))
    assert silent_for(deadlines, clock) == 8
    deadlines.sent(0, act(1000))
    assert silent_for(deadlines, clock) == 8
    deadlines.sent(0, abs_of(3))
    assert silent_for(deadlines, clock) == 71


def test_a_machine_that_slept_gives_up_nobody() -> None:
    deadlines, clock = watched(patience=10)
    deadlines.sent(0, act(1))
    clock.now += 3600
    assert deadlines.overdue([]) == []
    assert silent_for(deadlines, clock) == 10
