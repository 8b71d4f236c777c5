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
from besttake.takes.orders import Act, Answer, Begin, End, Failed, Job, Need, Order
from besttake.takes.pool import Pool
from besttake.takes.sampling import Sampler, next_blocks
from besttake.takes.store import Store
from besttake.takes.take import Take

_LIVES = 3
_LANES = 2


@dataclass(frozen=True)
class Tally:
    """How far a run is."""

    done: int
    failed: int
    total: int


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
    with _Keeper(store, on_take) as keeper:
        engine = _Engine(jobs, sampler, draw, pool, keeper, batch, at_once)
        engine.run()
    return Tally(keeper.done, keeper.failed, len(jobs))


@dataclass(frozen=True)
class _UnderWay:
    """A take that is being played."""

    job: Job
    request: Request


class _Engine:
    def __init__(
        self,
        jobs: Sequence[Job],
        sampler: Sampler,
        draw: Callable[[TakeKey], Draw],
        pool: Pool,
        keeper: _Keeper,
        batch: int,
        at_once: int | None,
    ) -> None:
        self.waiting = deque(jobs)
        self.sampler, self.draw, self.pool, self.keeper, self.batch = sampler, draw, pool, keeper, batch
        self.slots = max(1, min(batch // pool.size, at_once or batch))
        self.playing: list[dict[int, _UnderWay]] = [{} for _ in range(pool.size)]
        self.busy: set[tuple[int, int]] = set()
        self.deaths: Counter[TakeKey] = Counter()

    def run(self) -> None:
        for worker in range(self.pool.size):
            self._send(worker, [])
        while any(self.playing):
            orders: dict[int, list[Order]] = {}
            needy: list[tuple[int, Need]] = []
            for worker, answers in self.pool.receive():
                orders[worker] = []
                if answers is None:
                    self._bury(worker)
                else:
                    self.busy.discard((worker, answers[0].slot % _LANES))
                    needy += [(worker, need) for a in answers if (need := self._settle(worker, a)) is not None]
            for worker, order in self._feed(needy):
                orders[worker].append(order)
            for worker, own in orders.items():
                self._send(worker, own)
            self.keeper.check()

    def _settle(self, worker: int, answer: Answer) -> Need | None:
        """Take note of an answer, and hand it on when it asks for actions."""
        if isinstance(answer, Need):
            answer.update(self.playing[worker][answer.slot].request)
            return answer
        del self.playing[worker][answer.slot]
        self.keeper.put(answer)
        return None

    def _feed(self, needy: Sequence[tuple[int, Need]]) -> list[tuple[int, Order]]:
        """Sample for everyone who waits, at most ``batch`` takes a call."""
        orders: list[tuple[int, Order]] = []
        waiting = [self.playing[worker][need.slot] for worker, need in needy]
        blocks = next_blocks(self.sampler, [take.request for take in waiting], self.batch)
        for (worker, need), take, block in zip(needy, waiting, blocks, strict=True):
            if isinstance(block, Exception):
                self.keeper.put(Failed(need.slot, take.job.key, one_line(block), 0.0))
                del self.playing[worker][need.slot]
            else:
                orders.append((worker, Act(need.slot, block)))
        return orders

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
            draw = self.draw(job.key)
            playing[slot] = _UnderWay(job, Request(job.key.task, job.key.arm, draw))
            orders.append(Begin(slot, job, draw))
        for lane in range(_LANES):
            own = [order for order in orders if order.slot % _LANES == lane]
            if own:
                self.busy.add((worker, lane))
                self.pool.send(worker, own)

    def _suspect(self, job: Job) -> bool:
        return self.deaths[job.key] >= _LIVES - 1

    def _bury(self, worker: int) -> None:
        """A worker died: its takes go back to the front of the queue, but the one that keeps killing workers."""
        lost = [take.job for _, take in sorted(self.playing[worker].items(), key=lambda item: item[0])]
        self.playing[worker] = {}
        self.busy -= {(worker, lane) for lane in range(_LANES)}
        for job in reversed(lost):
            self.deaths[job.key] += 1
            if self.deaths[job.key] >= _LIVES and len(lost) == 1:
                self.keeper.put(Failed(0, job.key, f"the simulator's process died {_LIVES} times on this take", 0.0))
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
                self._keep(answer)
            except BaseException as error:
                self._error = error

    def _keep(self, answer: End | Failed) -> None:
        if isinstance(answer, End):
            take: Take = answer.take
            row = self.store.add(take, answer.seconds)
            self.done += 1
        else:
            row = self.store.add_error(answer.key, answer.reason, answer.seconds)
            self.failed += 1
        self.on_take(row)
