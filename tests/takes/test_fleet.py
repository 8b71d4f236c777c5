"""Many replicas of a policy play the same takes as one."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import toy

from besttake.encoders.cache import frame_hash
from besttake.errors import RolloutError
from besttake.takes.draws import Draw
from besttake.takes.film import Film
from besttake.takes.fleet import Fleet, OwnMember, ProcessMember
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.orders import End, Failed, Job
from besttake.takes.pool import LocalPool
from besttake.takes.replica import Course, Embedded, Embedder, Joined, Message, News
from besttake.takes.runner import Tally, play
from besttake.takes.store import Store, load_take
from besttake.takes.take import Take
from besttake.types import F32


def jobs(uri: str = "python:toy:make", starts: int = 12) -> list[Job]:
    keys = [TakeKey("p", uri, "walk", start, "base", seed) for start in range(starts) for seed in range(2)]
    return [Job(key, 12, (), "eye", 5, True) for key in keys]


def draw(key: TakeKey) -> Draw:
    return Draw(0, key.task, key.start, key.seed)


def replicas(count: int, pool: LocalPool, recipe: toy.Recipe, notes: list[str]) -> Fleet:
    own = partial(OwnMember, lambda course: recipe.load(), lambda: pool)
    return Fleet([own, *(partial(ProcessMember, 1, None, {}) for _ in range(count - 1))], notes.append)


def by_one(path: Path, work: list[Job], recipe: toy.Recipe, pool: LocalPool, batch: int = 4) -> str:
    with Store.write(path, Manifest()) as store:
        play(work, recipe.load(), draw, store, pool, batch=batch)
        return store.digest()


def by(fleet: Fleet, path: Path, work: list[Job], recipe: toy.Recipe, on_take=lambda row: None) -> tuple[Tally, str]:
    with Store.write(path, Manifest()) as store:
        tally = fleet.play(Course(recipe, toy.make().spec, draw, 4), work, store, on_take)
        return tally, store.digest()


@pytest.mark.slow
def test_replicas_play_the_takes_of_one_course_after_the_other_with_the_same_bits(tmp_path: Path) -> None:
    recipe, pool, notes = toy.Recipe(), LocalPool(1), list[str]()
    with replicas(3, pool, recipe, notes) as fleet:
        first = by(fleet, tmp_path / "first", jobs(starts=6), recipe)
        tally, digest = by(fleet, tmp_path / "second", jobs(), recipe)
    assert first[1] == by_one(tmp_path / "one", jobs(starts=6), recipe, pool)
    assert (tally.done, tally.failed) == (24, 0)
    assert digest == by_one(tmp_path / "two", jobs(), recipe, pool)
    assert set(notes) <= {"3 replicas on 1 node, 3 workers"}
    pool.close()


def test_a_replica_may_be_silent_for_longer_than_a_message_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("besttake.takes.process._STALLED", 1)
    news: queue.SimpleQueue[object] = queue.SimpleQueue()
    member = ProcessMember(1, None, {}, news.put)  # it loads a large policy, say
    try:
        with pytest.raises(queue.Empty):
            news.get(timeout=1.3)
    finally:
        member.close()


def test_a_replica_that_is_killed_costs_no_take(tmp_path: Path) -> None:
    recipe, work, notes = toy.Recipe(seconds=0.02), jobs("python:toy:make?slow=0.01", starts=8), list[str]()
    with Fleet([partial(ProcessMember, 1, None, {}) for _ in range(2)], notes.append) as fleet:
        victim = fleet.members[0]
        killed: list[int] = []
        assert isinstance(victim, ProcessMember)

        def kill(row: Row) -> None:
            if not killed:
                os.kill(victim.pid, signal.SIGKILL)
                killed.append(victim.pid)

        tally, digest = by(fleet, tmp_path / "hurt", work, recipe, kill)
        assert fleet.members[0] is not victim
    assert (tally.done, tally.failed) == (16, 0)
    assert any("died and is replaced; its takes are played again" in note for note in notes)
    pool = LocalPool(2)
    assert digest == by_one(tmp_path / "one", work, toy.Recipe(), pool)
    pool.close()


class Fragile:
    """A replica that answers at once, and dies of start 0."""

    def __init__(self, tell: Callable[[News], None]) -> None:
        self._tell = tell

    def send(self, message: Message) -> None:
        if isinstance(message, Course):
            self._tell(Joined("here", 1, 1, 4))
        elif message:
            dies = any(job.key.start == 0 for job in message)
            self._tell(None if dies else [Failed(0, job.key, "played", 0.0) for job in message])

    def close(self) -> None:
        pass


def test_a_take_that_kills_every_replica_is_given_up_and_the_others_are_played(tmp_path: Path) -> None:
    with Fleet([Fragile], lambda note: None) as fleet, Store.write(tmp_path / "run", Manifest()) as store:
        fleet.play(Course(toy.Recipe(), toy.make().spec, draw, 4), jobs(starts=4), store)
        errors = {(row.key.start, row.key.seed): row.error for row in store.rows()}
    assert errors == {
        (start, seed): "played" if start else "the replica died or hung 3 times on this take"
        for start in range(4) for seed in range(2)
    }  # fmt: skip


class Absent:
    """A replica that waits for a place for ever."""

    def __init__(self, tell: Callable[[News], None]) -> None:
        pass

    def send(self, message: Message) -> None:
        pass

    def close(self) -> None:
        pass


def test_those_who_are_there_play_all_takes_and_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr("besttake.takes.fleet._LONG", 0.0)
    with Fleet([Absent, Fragile], notes.append) as fleet, Store.write(tmp_path / "run", Manifest()) as store:
        work = [job for job in jobs(starts=4) if job.key.start]
        tally = fleet.play(Course(toy.Recipe(), toy.make().spec, draw, 4), work, store)
    assert tally.failed == len(work)
    assert notes == ["1 of 2 replicas on 1 node, 1 worker"]


def test_a_policy_that_a_replica_cannot_load_is_one_line(tmp_path: Path) -> None:
    pool = LocalPool(1)
    with (
        replicas(2, pool, toy.Recipe(), []) as fleet,
        pytest.raises(RolloutError, match="replica 2: FileNotFoundError: no weights here"),
    ):
        by(fleet, tmp_path / "run", jobs("python:toy:make?slow=0.05"), toy.Recipe(missing=True))
    pool.close()


def test_replicas_end_with_their_fleet() -> None:
    with Fleet([partial(ProcessMember, 1, None, {})], lambda text: None) as fleet:
        member = fleet.members[0]
        assert isinstance(member, ProcessMember)
    for _ in range(600):
        if not os.path.exists(f"/proc/{member.pid}"):
            return
        time.sleep(0.1)
    raise AssertionError("it still runs")


def test_frames_are_embedded_by_the_replica_that_played_them_and_none_is_missing(tmp_path: Path) -> None:
    recipe, work = toy.Recipe(seconds=0.01, eye=True), jobs(starts=8)
    vectors: dict[bytes, F32] = {}
    with (
        Fleet([partial(ProcessMember, 1, None, {}) for _ in range(2)], lambda text: None) as fleet,
        Store.write(tmp_path / "run", Manifest()) as store,
    ):
        course = Course(recipe, toy.make().spec, draw, 4, embeds=True)
        tally = fleet.play(course, work, store, on_vectors=lambda made, encoded: vectors.update(made))
        assert tally.done == 16
        frames = [frame for row in store.rows() for frame in load_take(store.path, row).frames()]
    assert {*vectors} == {*map(frame_hash, frames)}
    for frame in frames:
        np.testing.assert_array_equal(vectors[frame_hash(frame)], toy.Eye().encode(frame[None])[0])


class Embedding(Fragile):
    """A replica that plays at once, and the first time dies while it embeds the frames of what it played."""

    lives: ClassVar[list[int]] = []

    def __init__(self, tell: Callable[[News], None]) -> None:
        super().__init__(tell)
        self.lives.append(0)

    def send(self, message: Message) -> None:
        if not isinstance(message, list):
            super().send(message)
            return
        for job in message:
            numbers = np.full((3, 2), job.key.start, np.float32)
            film = Film.pack(np.zeros((3, 8, 8, 3), np.uint8))
            self._tell([End(0, Take(job.key, None, numbers, numbers, film, np.arange(3, dtype=np.int32)), 0.1)])
        if len(self.lives) == 1:
            self._tell(None)
            return
        for job in message:
            self._tell(Embedded({bytes([job.key.start, job.key.seed]): np.ones(2, np.float32)}))


def test_a_replica_that_dies_while_it_embeds_costs_no_take_and_nobody_waits_for_it(tmp_path: Path) -> None:
    Embedding.lives.clear()
    vectors: dict[bytes, F32] = {}
    with Fleet([Embedding], lambda note: None) as fleet, Store.write(tmp_path / "run", Manifest()) as store:
        course = Course(toy.Recipe(eye=True), toy.make().spec, draw, 4, embeds=True)
        work = jobs(starts=8)
        tally = fleet.play(course, work, store, on_vectors=lambda made, encoded: vectors.update(made))
        kept = [(row.key.start, row.key.seed) for row in store.rows()]
    assert tally.done == len(work)
    assert sorted(kept) == [(start, seed) for start in range(8) for seed in range(2)]
    assert 0 < len(vectors) < len(work), "what it did not embed is left to those who score"
    assert len(Embedding.lives) == 2


def test_a_sampler_without_an_encoder_embeds_nothing_and_nobody_waits_for_it(tmp_path: Path) -> None:
    pool = LocalPool(1)
    with replicas(1, pool, toy.Recipe(), []) as fleet, Store.write(tmp_path / "run", Manifest()) as store:
        course = Course(toy.Recipe(), toy.make().spec, draw, 4, embeds=True)
        assert fleet.play(course, jobs(starts=2), store).done == 4
    pool.close()


def test_takes_that_wait_to_be_embedded_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder slower than the simulators: takes beyond the limit are answered at once, with nothing."""
    frames = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    key = TakeKey("p", "e", "t", 0, "base", 0)
    numbers = np.zeros((3, 2), np.float32)
    take = Take(key, None, numbers, numbers, Film.pack(frames), np.arange(3, dtype=np.int32))
    go_on, heard = threading.Event(), queue.SimpleQueue[Any]()

    class Slow:
        def encode(self, images: Any) -> Any:
            go_on.wait(120)
            return np.zeros((len(images), 2), np.float32)

    monkeypatch.setattr("besttake.takes.replica._MOST_WAITING", 4 * len(take.film.data))
    embedder = Embedder(Slow(), heard.put, counts=True)
    for _ in range(20):
        embedder.add(take)
    early = [heard.get(timeout=60) for _ in range(15)]
    assert not any(news.vectors for news in early)
    go_on.set()
    embedder.end()
    late = [heard.get(timeout=60) for _ in range(5)]
    assert all(news.vectors for news in late)
