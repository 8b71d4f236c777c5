"""The takes that wait to be played, and which replica has which. Whoever plays takes gives back those it lost."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from besttake.takes.key import TakeKey
from besttake.takes.orders import End, Failed, Job

LIVES = 3
"""A take that was lost so often, the last time alone, is given up."""


class Queue:
    """Jobs in their order; threads may add to it. It knows which takes may be killing whoever plays them."""

    def __init__(self, jobs: Iterable[Job] = (), *, ended: bool = True) -> None:
        self._jobs = deque(jobs)
        self._deaths: Counter[TakeKey] = Counter()
        self._changed = threading.Condition()
        self._ended = ended

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """More jobs, behind the others."""
        with self._changed:
            self._jobs.extend(jobs)
            self._changed.notify_all()

    def end(self) -> None:
        """No more jobs will be added."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait for a job; False when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._jobs))
            return bool(self._jobs)

    def next(self, beside: Iterable[Job]) -> Job | None:
        """A job to play beside others, if there is one: a suspect plays alone."""
        with self._changed:
            others = list(beside)
            if not self._jobs or (others and any(map(self.suspect, (self._jobs[0], *others)))):
                return None
            return self._jobs.popleft()

    def suspect(self, job: Job) -> bool:
        """Whether the take may be killing whoever plays it."""
        return self._deaths[job.key] >= LIVES - 1

    def give_back(self, lost: Sequence[Job], who: str) -> list[Failed]:
        """Put jobs back in front, whose player (``who``) died; the answer for one that keeps killing players."""
        given_up: list[Failed] = []
        with self._changed:
            for job in reversed(lost):
                self._deaths[job.key] += 1
                if self._deaths[job.key] >= LIVES and len(lost) == 1:
                    given_up.append(Failed(0, job.key, f"{who} died or hung {LIVES} times on this take", 0.0))
                else:
                    self._jobs.appendleft(job)
            self._changed.notify_all()
        return given_up


class Feed:
    """Hands the jobs of ``queue`` to ``members`` replicas, each when it has joined, and knows who has which.

    A plain state machine: `fleet` drives it with processes or Ray actors, `bench/cluster.py` with a virtual clock.
    """

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
        keys = [answer.take.key if isinstance(answer, End) else answer.key for answer in answers]
        return [answer for answer, key in zip(answers, keys, strict=True) if own.pop(key, None) is not None]

    def died(self, member: int) -> list[Failed]:
        """``member`` is gone: its takes go back to the queue, but one that keeps killing replicas."""
        lost, self._out[member], self._slots[member] = list(self._out[member].values()), {}, 0
        return self.queue.give_back(lost, "the replica")
