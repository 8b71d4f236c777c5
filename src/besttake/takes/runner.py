"""The rollout engine: jobs in, takes out.

Simulators run in workers. A large policy is sampled here, for all takes that wait for actions at once; a small one is
in every worker, and its jobs name it as their actor. Each worker has a number of slots and plays one take in each. Its
slots form two lanes, and it gets orders for all slots of a lane together: while it simulates one lane, the policy is
sampled for the other, or the next orders are on their way. What a take contains depends on its key alone, never on
this schedule.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from besttake.arms.base import Request
from besttake.errors import one_line
from besttake.takes.draws import Draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.orders import Act, Begin, End, Failed, Job, Need, Order, Sampler, next_blocks
from besttake.takes.pool import Pool
from besttake.takes.store import Store

_LIVES = 3
_LANES = 2


@dataclass(frozen=True)
class Tally:
    """How many takes were played, how many failed, and how many workers gave no answer in time and were replaced."""

    done: int
    failed: int
    stalled: int = 0


def play(
    jobs: Sequence[Job],
    sampler: Sampler,
    draw: Callable[[TakeKey], Draw],
    store: Store,
    pool: Pool,
    *,
    batch: int,
    at_once: int | None = None,
    on_take: Callable[[Row], None] = lambda row: None,
) -> Tally:
    """Play ``jobs`` and keep their takes in ``store``.

    ``batch`` takes are under way at once, over all workers, and in one worker no more than ``at_once``.
    """
    slots, stalled = max(1, min(batch // pool.size, at_once or batch)), pool.stalled
    with _Keeper(store, on_take) as keeper:
        _Engine(deque(jobs), sampler, draw, pool, keeper, batch, slots).run()
    return Tally(keeper.done, keeper.failed, pool.stalled - stalled)


@dataclass
class _Engine:
    waiting: deque[Job]
    sampler: Sampler
    draw: Callable[[TakeKey], Draw]
    pool: Pool
    keeper: _Keeper
    batch: int
    slots: int

    def __post_init__(self) -> None:
        self.playing: list[dict[int, Begin]] = [{} for _ in range(self.pool.size)]
        self.busy: set[tuple[int, int]] = set()
        self.deaths: Counter[TakeKey] = Counter()

    def run(self) -> None:
        for worker in range(self.pool.size):
            self._send(worker, [])
        while any(self.playing):
            orders: dict[int, list[Order]] = {}
            needy: list[tuple[int, Begin]] = []
            for worker, answers in self.pool.receive():
                orders[worker] = []
                if answers is None:
                    self._bury(worker)
                    continue
                self.busy.discard((worker, answers[0].slot % _LANES))
                for answer in answers:
                    if isinstance(answer, Need):
                        take = self.playing[worker][answer.slot]
                        answer.update(take.request)
                        needy.append((worker, take))
                    else:
                        self._finish(worker, answer)
            blocks = next_blocks(self.sampler, [take.request for _, take in needy], self.batch)
            for (worker, take), block in zip(needy, blocks, strict=True):
                if isinstance(block, Exception):
                    self._finish(worker, Failed(take.slot, take.job.key, one_line(block), 0.0))
                else:
                    orders[worker].append(Act(take.slot, block))
            for worker, own in orders.items():
                self._send(worker, own)
            self.keeper.check()

    def _finish(self, worker: int, answer: End | Failed) -> None:
        del self.playing[worker][answer.slot]
        self.keeper.put(answer)

    def _send(self, worker: int, orders: list[Order]) -> None:
        """Send orders, and fill free slots of idle lanes with takes. One that may be killing workers plays alone."""
        playing = self.playing[worker]
        for slot in range(self.slots):
            if slot in playing or not self.waiting or (worker, slot % _LANES) in self.busy:
                continue
            alone = self._suspect(self.waiting[0]) or any(self._suspect(take.job) for take in playing.values())
            if alone and playing:
                break
            job = self.waiting.popleft()
            playing[slot] = Begin(slot, job, Request(job.key.task, job.key.arm, self.draw(job.key)))
            orders.append(playing[slot])
        for lane in range(_LANES):
            own = [order for order in orders if order.slot % _LANES == lane]
            if own:
                self.busy.add((worker, lane))
                self.pool.send(worker, own)

    def _suspect(self, job: Job) -> bool:
        return self.deaths[job.key] >= _LIVES - 1

    def _bury(self, worker: int) -> None:
        """A worker died: its takes go back to the front of the queue, but the one that keeps killing workers."""
        lost = [self.playing[worker][slot].job for slot in sorted(self.playing[worker])]
        self.playing[worker] = {}
        self.busy -= {(worker, lane) for lane in range(_LANES)}
        for job in reversed(lost):
            self.deaths[job.key] += 1
            if self.deaths[job.key] >= _LIVES and len(lost) == 1:
                self.keeper.put(Failed(0, job.key, f"the simulator died or hung {_LIVES} times on this take", 0.0))
            else:
                self.waiting.appendleft(job)


class _Keeper:
    """Writes takes in a thread of its own, in the order they finished, so that the engine never waits for the disk."""

    def __init__(self, store: Store, on_take: Callable[[Row], None]) -> None:
        self.store, self.on_take = store, on_take
        self.done = self.failed = 0
        self._queue: queue.Queue[End | Failed | None] = queue.Queue(maxsize=256)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)

    def __enter__(self) -> _Keeper:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()
        if kind is None:
            self.check()

    def put(self, answer: End | Failed) -> None:
        """Keep ``answer``."""
        self._queue.put(answer)

    def check(self) -> None:
        """Raise here what went wrong in the thread."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (answer := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                if isinstance(answer, End):
                    row = self.store.add(answer.take, answer.seconds)
                    self.done += 1
                else:
                    row = self.store.add_error(answer.key, answer.reason, answer.seconds)
                    self.failed += 1
                self.on_take(row)
            except BaseException as error:
                self._error = error
