"""Many replicas, one queue of takes, one writer.

Work goes to whoever is free (`queue.Feed`). A replica that dies gives its takes back and is replaced; takes are the
same bits whoever plays them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from besttake.errors import RolloutError
from besttake.takes.keeper import Keeper
from besttake.takes.key import Row
from besttake.takes.orders import End, Job, Sampler
from besttake.takes.pool import Pool
from besttake.takes.process import WorkerProcess
from besttake.takes.queue import Feed, Queue
from besttake.takes.replica import Broken, Course, Embedded, Joined, Message, News, Replica
from besttake.takes.runner import Tally
from besttake.takes.store import Store
from besttake.types import F32

_LIVES = 3
"""A replica that dies so often without a single take in between is not replaced again."""

_LONG = 60.0
"""Seconds after which we say who has joined, where not all have."""

Tell = Callable[[News], None]
OnVectors = Callable[[Mapping[bytes, F32], int], None]
"""Gets embeddings of frames by their hashes, and how many were made for it."""


class Member(Protocol):
    """A replica as its driver sees it. What it tells comes by the function that it was made with."""

    def send(self, message: Message) -> None:
        """Tell it what to play, give it takes (a list), or say that there are no more (None)."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class OwnMember(Replica):
    """The replica in this very process, with the sampler and the workers that are here anyway, and that stay."""

    _apart = False

    def __init__(self, sampler: Callable[[Course], Sampler], pool: Callable[[], Pool], tell: Tell) -> None:
        super().__init__(pool(), tell)
        self._make = sampler

    def send(self, message: Message) -> None:
        """Obey at once; its engine has a thread of its own."""
        self.obey(message)

    def _sampler_of(self, course: Course) -> Sampler:
        return self._make(course)


class ProcessMember:
    """A replica in a process of this machine, with the variables ``env`` (its GPU) and ``workers`` simulators."""

    def __init__(self, workers: int, patience: float | None, env: Mapping[str, str], tell: Tell) -> None:
        self._process = WorkerProcess("besttake.takes.replica", env)
        self._process.send((workers, patience))
        self._tell, self._closed = tell, False
        threading.Thread(target=self._listen, name="replica", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send a message; a dead replica is noticed by its silence."""
        self._process.send(message)

    def close(self) -> None:
        """Hang up, and kill it if it does not end."""
        self._closed = True
        self._process.end(patience=2.0)

    def _listen(self) -> None:
        while True:
            try:
                self._process.pipe.poll(None)  # a read alone gives up on a replica that is silent while it loads
                news: Any = self._process.pipe.recv()
            except Exception:  # it may have died in the middle of a message
                if not self._closed:
                    self._process.end()
                    self._tell(None)
                return
            self._tell(news)


class Fleet:
    """Replicas that play one course after the other. ``makers`` make each, and make it anew when it dies."""

    def __init__(self, makers: Sequence[Callable[[Tell], Member]], note: Callable[[str], None]) -> None:
        self._makers, self._note = makers, note
        self._news: queue.SimpleQueue[tuple[int, int, News]] = queue.SimpleQueue()
        self._made: Counter[int] = Counter()
        self._deaths: Counter[int] = Counter()
        self._joined: dict[int, Joined] = {}
        self._said, self._since = "", time.monotonic()
        self._owed: Counter[int] = Counter()
        self._on_vectors: OnVectors = lambda vectors, encoded: None
        self.members: list[Member] = [self._make(index) for index in range(len(makers))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()

    def play(
        self,
        course: Course,
        jobs: Sequence[Job],
        store: Store,
        on_take: Callable[[Row], None] = lambda row: None,
        on_vectors: OnVectors = lambda vectors, encoded: None,
    ) -> Tally:
        """Play ``jobs`` and keep their takes in ``store``; embeddings that a course asks for go to ``on_vectors``."""
        feed = Feed(Queue(jobs), len(self.members))
        self._owed, self._on_vectors = Counter(), on_vectors
        for member in self.members:
            member.send(course)
        with Keeper(store, on_take) as keeper:
            while not feed.over or self._owed.total():
                self._listen(feed, course, keeper)
                if not self._said:
                    self._say()
                for index, member in enumerate(self.members):
                    if more := feed.give(index):
                        member.send(more)
                keeper.check()
        for member in self.members:
            member.send(None)
        return Tally(keeper.done, keeper.failed)

    def _listen(self, feed: Feed, course: Course, keeper: Keeper) -> None:
        """Wait for news, and act on it."""
        try:
            index, made, news = self._news.get(timeout=_LONG)
        except queue.Empty:
            if not self._joined:
                self._note("no replica has started yet; are its GPU and its cores free?")
            return
        if made != self._made[index]:
            return  # of one that was replaced
        if isinstance(news, Joined):
            self._joined[index] = news
            feed.joined(index, news.takes)
            self._say()
        elif isinstance(news, Broken):
            raise RolloutError(f"replica {index + 1}: {news.reason}")
        elif isinstance(news, Embedded):
            self._owed[index] -= 1
            self._on_vectors(news.vectors, news.encoded)
        elif news is None:
            self._owed[index] = 0  # frames that nobody embedded are embedded where takes are scored
            for failed in feed.died(index):
                keeper.put(failed)
                self._deaths[index] = 0  # the take was to blame, and is out
            self._replace(index)
            self.members[index].send(course)
        else:
            self._deaths[index] = 0
            for answer in news:
                self._owed[index] += course.embeds and isinstance(answer, End)
            for answer in feed.returned(index, news):
                keeper.put(answer)

    def _say(self) -> None:
        """Say where the replicas are, when all have joined or should have."""
        joined, all_of_them = self._joined.values(), len(self.members)
        if not joined or (len(joined) < all_of_them and time.monotonic() < self._since + _LONG):
            return
        count = _counted(all_of_them, "replica")
        if len(joined) < all_of_them:
            count = f"{len(joined)} of {count}"
        nodes = _counted(len({each.node for each in joined}), "node")
        text = f"{count} on {nodes}, {_counted(sum(each.workers for each in joined), 'worker')}"
        if all(each.why for each in joined):
            first = min(self._joined)
            takes = sum(each.takes for each in joined)
            text = f"{text}, {takes} takes under way: in replica {first + 1} {self._joined[first].why}"
        if text != self._said:
            self._note(text)
        self._said = text

    def _make(self, index: int) -> Member:
        self._made[index] += 1
        made = self._made[index]
        return self._makers[index](lambda news: self._news.put((index, made, news)))

    def _replace(self, index: int) -> None:
        self._deaths[index] += 1
        was = self._joined.pop(index, None)
        where = "" if was is None else f" on {was.node}"
        if self._deaths[index] >= _LIVES:
            raise RolloutError(
                f"replica {index + 1}{where} died {_LIVES} times without a take in between; is memory short? Use fewer"
                " `replicas`, and run the same command again: finished takes are safe"
            )
        self._note(f"replica {index + 1}{where} died and is replaced; its takes are played again")
        self._said, self._since = "", time.monotonic()
        self.members[index].close()
        self.members[index] = self._make(index)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"
