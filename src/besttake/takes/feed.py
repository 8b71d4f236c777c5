"""Which replica plays which takes, as a plain state machine: one queue of takes, and how many each replica may hold.

`fleet` drives it with processes or Ray actors, `bench/cluster.py` with a virtual clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from besttake.takes.key import TakeKey
from besttake.takes.orders import End, Failed, Job
from besttake.takes.queue import Queue


class Feed:
    """Hands the jobs of ``queue`` to ``members`` replicas, each when it has joined."""

    def __init__(self, queue: Queue, members: int) -> None:
        self.queue = queue
        self._slots = [0] * members
        self._out: list[dict[TakeKey, Job]] = [{} for _ in range(members)]

    @property
    def over(self) -> bool:
        """Whether every take has come back."""
        return not self.queue and not any(self._out)

    def joined(self, member: int, slots: int) -> None:
        """``member`` is ready to play ``slots`` takes at once."""
        self._slots[member] = slots

    def give(self, member: int) -> list[Job]:
        """The jobs that ``member`` gets now.

        As many as it has slots and a few in reserve, so that it never waits for the next; but no more than its part of
        all that is left, so that replicas finish together.
        """
        slots, out, jobs = self._slots[member], self._out[member], list[Job]()
        left = len(self.queue) + sum(map(len, self._out))
        most = min(slots + max(2, slots // 4), -(-left // len(self._slots))) if slots else 0
        while len(out) < most and (job := self.queue.next(out.values())) is not None:
            out[job.key] = job
            jobs.append(job)
        return jobs

    def returned(self, member: int, answers: Sequence[End | Failed]) -> list[End | Failed]:
        """Takes came back from ``member``: those to keep (not one that was lost and is played again)."""
        own = self._out[member]
        return [answer for answer in answers if own.pop(key_of(answer), None) is not None]

    def died(self, member: int) -> list[Failed]:
        """``member`` is gone: its takes go back to the queue, but one that keeps killing replicas."""
        lost, self._out[member], self._slots[member] = list(self._out[member].values()), {}, 0
        return self.queue.give_back(lost, "the replica")


def key_of(answer: End | Failed) -> TakeKey:
    """The take that an answer is about."""
    return answer.take.key if isinstance(answer, End) else answer.key
