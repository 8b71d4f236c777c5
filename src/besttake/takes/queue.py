"""The takes that wait to be played. Whoever plays takes gives back those it lost."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from besttake.takes.key import TakeKey
from besttake.takes.orders import Failed, Job

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
