"""The engine with real workers, its schedule alone, and its writer: same takes whatever happens to workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy

from besttake.arms.base import TakeState
from besttake.takes.draws import Draw
from besttake.takes.engine import Queue, Schedule, Tally, Writer, play
from besttake.takes.jobs import Begin, Failed, Job, NeedsActions, Sampler
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.ray import hand_out
from besttake.takes.store import Store
from besttake.types import F32, Observation

MANIFEST = Manifest()


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    members = WorkerPool(2)
    yield members
    members.close()


def jobs(uri: str = "python:toy:make", goes_on: bool = True, starts: int = 6) -> list[Job]:
    keys = [TakeKey("p", uri, "walk", start, "base", seed) for start in range(starts) for seed in range(2)]
    return [Job(key, 12, (), "eye", 5, goes_on) for key in keys]


def played_by(factory: toy.Factory | None) -> list[Job]:
    return [replace(job, factory=factory) for job in jobs()]


class Nobody:
    """The engine's sampler where it has nothing to do."""

    def sample(self, requests: Sequence[TakeState]) -> list[F32]:
        raise AssertionError("asked for actions")


def draw(key: TakeKey) -> Draw:
    return Draw(0, key.task, key.start, key.seed)


def run(
    path: Path, work: list[Job], pool: WorkerPool, sampler: Sampler | None = None, slots: int = 2
) -> tuple[Tally, list[Row], str]:
    with Store.write(path, MANIFEST) as store:
        tally = play(work, sampler or toy.Noise(), draw, store, pool, slots=slots)
        return tally, store.rows(), store.digest()


def test_takes_do_not_depend_on_slots_or_workers(tmp_path: Path, pool: WorkerPool) -> None:
    digests = {run(tmp_path / f"b{slots}", jobs(), pool, slots=slots)[2] for slots in (1, 2, 8)}
    single = WorkerPool(1)
    digests.add(run(tmp_path / "one", jobs(), single)[2])
    single.close()
    assert len(digests) == 1


def test_takes_do_not_depend_on_who_samples(tmp_path: Path, pool: WorkerPool) -> None:
    _, _, engine = run(tmp_path / "engine", jobs(), pool)
    for slots in (1, 2, 8):
        tally, _, worker = run(tmp_path / f"worker{slots}", played_by(toy.Factory()), pool, Nobody(), slots=slots)
        assert worker == engine
        assert tally.done == 12


def test_a_sampler_that_cannot_be_made_fails_its_takes_with_its_reason(tmp_path: Path, pool: WorkerPool) -> None:
    tally, rows, _ = run(tmp_path / "run", played_by(toy.Factory(missing=True)), pool, Nobody())
    assert tally.failed == 12
    assert {row.error for row in rows} == {"FileNotFoundError: no weights here"}


def test_a_take_is_what_a_plain_loop_gives(tmp_path: Path, pool: WorkerPool) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        play(jobs(), toy.Noise(), draw, store, pool, slots=2)
        takes = [take for _, take in store.takes()]
    for take in takes:
        env = toy.make()
        env.reset(toy.Start("walk", take.key.start))
        actions = np.concatenate([draw(take.key).at(chunk).normal((3, 2)) for chunk in range(4)])
        states, success = [env.observe(()).state], None
        for t, action in enumerate(actions):
            if env.step(action).success and success is None:
                success = t + 1
            states.append(env.observe(()).state)
        assert np.array_equal(take.actions, actions)
        assert np.array_equal(take.states, np.stack(states))
        assert take.success_step == success
        assert take.frame_steps.tolist() == [0, 5, 10]
        assert take.calls == 4


def test_a_take_that_raises_is_recorded_with_its_reason_and_the_run_goes_on(tmp_path: Path, pool: WorkerPool) -> None:
    tally, rows, _ = run(tmp_path / "run", jobs("python:toy:make?bad=2"), pool)
    assert (tally.done, tally.failed) == (10, 2)
    failed = [row for row in rows if row.status == "error"]
    assert {row.key.start for row in failed} == {2}
    assert failed[0].error == "RuntimeError: the arm fell off"


def test_a_take_that_keeps_killing_its_worker_fails_alone(tmp_path: Path) -> None:
    own = WorkerPool(2)
    tally, rows, _ = run(tmp_path / "run", jobs("python:toy:make?poison=3", starts=5), own)
    own.close()
    assert (tally.done, tally.failed) == (8, 2)
    assert {row.key.start for row in rows if row.status == "error"} == {3}
    assert "died or hung 3 times" in str(next(row.error for row in rows if row.error))


def test_a_worker_that_dies_is_replaced_and_its_takes_come_out_the_same(tmp_path: Path, pool: WorkerPool) -> None:
    uri = f"python:toy:make?poison=3&once={tmp_path / 'died'}"
    own = WorkerPool(2)
    tally, _, _ = run(tmp_path / "hurt", jobs(uri), own)
    own.close()
    assert (tally.done, tally.failed) == (12, 0)
    assert (tmp_path / "died").exists()
    _, _, calm = run(tmp_path / "calm", jobs(uri), pool)
    with Store.open(tmp_path / "hurt") as store:
        assert store.digest() == calm


def test_a_stopped_worker_is_replaced_when_patience_ends_and_changes_nothing(tmp_path: Path, pool: WorkerPool) -> None:
    own = WorkerPool(2, patience=4.0)
    own.map(toy.halved, [2, 4, 6])
    stopped = own.pids[0]
    os.kill(stopped, signal.SIGSTOP)
    tally, _, hurt = run(tmp_path / "hurt", jobs(), own)
    assert stopped not in own.pids
    assert not os.path.exists(f"/proc/{stopped}")
    own.close()
    assert (tally.done, tally.failed) == (12, 0)
    assert tally.stalled >= 1, "more on a machine so busy that a new worker gives no answer in time either"
    assert hurt == run(tmp_path / "calm", jobs(), pool)[2]


@pytest.mark.parametrize("factory", [None, toy.Factory(moody=True)], ids=["in the engine", "in the worker"])
def test_a_policy_that_fails_on_one_take_spoils_no_other(
    tmp_path: Path, pool: WorkerPool, factory: toy.Factory | None
) -> None:
    tally, rows, _ = run(tmp_path / "run", played_by(factory), pool, toy.Moody() if factory is None else Nobody())
    assert (tally.done, tally.failed) == (8, 4)
    reasons = {row.key.start: row.error for row in rows if row.error}
    assert reasons[1] == "ValueError: cannot see"
    assert "not finite" in str(reasons[4])


def test_a_disk_error_stops_the_engine_and_is_raised_here(tmp_path: Path, pool: WorkerPool) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.stage = lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))  # type: ignore[method-assign]
        with pytest.raises(OSError, match="No space left"):
            play(jobs(), toy.Noise(), draw, store, pool, slots=2)


NONE = np.zeros((0, 1), np.float32)


def planned(count: int) -> list[Job]:
    return [Job(TakeKey("p", "e", "t", start, "base", 0), 4, (), "eye", 5, True) for start in range(count)]


def schedule(queue: Queue, workers: int = 2, slots: int = 4, width: int = 3) -> Schedule:
    return Schedule(queue, lambda key: Draw(0, key.task, key.start, key.seed), workers, slots, width)


def need(slot: int) -> NeedsActions:
    return NeedsActions(slot, Observation({}, NONE), 0, NONE)


def test_a_group_is_begun_ahead_only_when_it_is_whole() -> None:
    plan = schedule(Queue(planned(8)))
    orders = [order for worker in range(2) for lane in plan.fill(worker) for order in lane]
    assert len(orders) == plan.under_way == 8
    plan.note_replies(0, [need(slot) for slot in (0, 1)])
    first = plan.group()
    assert len(first) == 2, "nothing is sampled, so what waits is"
    plan.note_replies(0, [need(2)])
    assert plan.group() == [], "a group that is not whole waits for others while one is sampled"
    plan.note_replies(1, [need(0), need(1)])
    second = plan.group()
    assert len(second) == 3
    plan.note_replies(1, [need(2), need(3)])
    plan.note_replies(0, [need(3)])
    assert plan.group() == [], "two are under way"
    sent, failed = plan.note_sampled(first, [NONE] * 2)
    assert [worker for worker, _ in sent] == [0, 0]
    assert not failed
    assert len(plan.group()) == 3


def test_takes_of_a_worker_that_dies_while_they_are_sampled_are_played_again_from_their_start() -> None:
    queue = Queue(planned(4))
    plan = schedule(queue, workers=1)
    plan.fill(0)
    plan.note_replies(0, [need(slot) for slot in range(4)])
    group = plan.group()
    assert plan.take_back(0) == []
    assert len(queue) == 4
    again = [order for lane in plan.fill(0) for order in lane]
    assert all(isinstance(order, Begin) for order in again)
    assert plan.note_sampled(group, [NONE] * 3) == ([], []), "actions for the lost takes go to nobody"
    assert plan.under_way == 4


def test_replicas_that_are_there_share_what_is_left() -> None:
    queue, first, second = Queue(planned(30)), dict[TakeKey, Job](), dict[TakeKey, Job]()
    assert hand_out(queue, first, 0, []) == [], "it has not joined yet"
    assert len(hand_out(queue, first, 16, [first])) == 20, "its slots and four in reserve, whoever may join later"
    assert len(hand_out(queue, second, 64, [first, second])) == 10
    queue, first = Queue(planned(30)), {}
    assert len(hand_out(queue, first, 64, [first, {}, {}])) == 10, "a third, however many slots it has"


def test_takes_that_are_being_kept_when_ctrl_c_comes_are_kept_before_the_store_is_closed(tmp_path: Path) -> None:
    seen: list[Row] = []

    def slowly(row: Row) -> None:
        time.sleep(0.05)
        seen.append(row)

    store = Store.write(tmp_path / "run", Manifest())
    writer = Writer(store, slowly)
    with pytest.raises(KeyboardInterrupt), store, writer:
        for start in range(8):
            writer.put(Failed(0, TakeKey("p", "e", "t", start, "base", 0), "boom", 0.0))
        writer._threads[0] = _Interrupted(writer._threads[0])
    assert not any(thread.is_alive() for thread in writer._threads)
    assert (writer.failed, len(seen), writer._error) == (8, 8, None)
    with Store.open(tmp_path / "run") as store:
        assert len(store.rows()) == 8


class _Interrupted(threading.Thread):
    """A thread; the first who waits for its end is interrupted."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self._thread, self._waited = thread, False

    def join(self, timeout: float | None = None) -> None:
        if not self._waited:
            self._waited = True
            raise KeyboardInterrupt
        self._thread.join(timeout)

    def is_alive(self) -> bool:
        return self._thread.is_alive()
