"""The takes that wait to be played, who plays and who is sampled next: a plain state machine, no clock, no process.

`runner` drives it with real workers and a real policy. Each worker has slots and plays one take in each. A take either
waits for actions, is being sampled, or is with its worker.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from besttake.arms.base import Request
from besttake.errors import one_line
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.messages import Act, Answer, Begin, End, Failed, Job, Need, Order
from besttake.types import F32

AHEAD = 2
"""Groups that are under way at once: one is sampled while the next is made ready."""
_MOST = 64
"""Takes that are sampled at once at most, where the policy does not say how many."""
_LANES = 2
"""Takes that begin together and have an actor are answered together; the other lane is for the time between."""
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


@dataclass(frozen=True)
class Waiting:
    """A take that waits for actions, and its worker."""

    worker: int
    take: Begin


class Schedule:
    """The takes under way in ``workers`` workers of ``slots`` each.

    ``width`` takes are sampled at once; 0: as many as wait, up to 64. Only the first ``active`` workers get takes.
    """

    def __init__(self, queue: Queue, draw: Callable[[TakeKey], Draw], workers: int, slots: int, width: int = 0) -> None:
        self.queue, self.slots, self.width, self.active = queue, slots, width, workers
        self._draw = draw
        self._playing: list[dict[int, Begin]] = [{} for _ in range(workers)]
        self._needy: deque[Waiting] = deque()
        self._sampling = 0

    @property
    def under_way(self) -> int:
        """How many takes are under way."""
        return sum(map(len, self._playing))

    def fill(self, worker: int) -> list[list[Order]]:
        """What to send to ``worker`` so that its free slots play: a list of orders per lane."""
        playing = self._playing[worker]
        if worker >= self.active:
            return []
        lanes: list[list[Order]] = [[] for _ in range(_LANES)]
        for slot in range(self.slots if len(playing) < self.slots else 0):
            if slot in playing:
                continue
            job = self.queue.next(take.job for take in playing.values())
            if job is None:
                break
            playing[slot] = Begin(slot, job, Request(job.key.task, job.key.arm, self._draw(job.key)))
            lanes[slot % _LANES].append(playing[slot])
        return [lane for lane in lanes if lane]

    def answered(self, worker: int, answers: Sequence[Answer]) -> list[End | Failed]:
        """Note the answers of ``worker``; those of takes that are over."""
        over: list[End | Failed] = []
        for answer in answers:
            if isinstance(answer, Need):
                take = self._playing[worker][answer.slot]
                answer.update(take.request)
                self._needy.append(Waiting(worker, take))
            else:
                del self._playing[worker][answer.slot]
                over.append(answer)
        return over

    def died(self, worker: int) -> list[Failed]:
        """``worker`` is a new one: its takes go back to the queue, but one that keeps killing workers."""
        lost: list[Job] = [take.job for _, take in sorted(self._playing[worker].items())]
        self._playing[worker] = {}
        self._needy = deque(row for row in self._needy if row.worker != worker)
        return self.queue.give_back(lost, "the simulator")

    def group(self) -> list[Waiting]:
        """The takes to sample next, if any.

        Whatever waits while nothing is sampled; ahead of time only a whole group, so that no call is half empty.
        """
        count = min(len(self._needy), self.width or _MOST)
        whole = self._sampling < AHEAD and count == self.width and self.width > 0
        if not count or not (whole or self._sampling == 0):
            return []
        self._sampling += 1
        return [self._needy.popleft() for _ in range(count)]

    def sampled(
        self, group: Sequence[Waiting], blocks: Sequence[F32 | Exception]
    ) -> tuple[list[tuple[int, Act]], list[tuple[int, Failed]]]:
        """The actions of a group have come: orders by worker, and the takes that got none."""
        self._sampling -= 1
        orders: list[tuple[int, Act]] = []
        failed: list[tuple[int, Failed]] = []
        for row, block in zip(group, blocks, strict=True):
            slot = row.take.slot
            if self._playing[row.worker].get(slot) is not row.take:  # its worker died meanwhile
                continue
            if isinstance(block, Exception):
                del self._playing[row.worker][slot]
                failed.append((row.worker, Failed(slot, row.take.job.key, one_line(block), 0.0)))
            else:
                orders.append((row.worker, Act(slot, block)))
        return orders, failed
