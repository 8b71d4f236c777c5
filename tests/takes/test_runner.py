from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy

from besttake.arms.base import Request
from besttake.errors import RolloutError
from besttake.takes.draws import Draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.messages import Job, Sampler
from besttake.takes.pool import LocalPool
from besttake.takes.runner import Tally, play
from besttake.takes.store import Store
from besttake.types import F32

MANIFEST = Manifest()


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    members = LocalPool(2)
    yield members
    members.close()


def jobs(uri: str = "python:toy:make", goes_on: bool = True, starts: int = 6) -> list[Job]:
    keys = [TakeKey("p", uri, "walk", start, "base", seed) for start in range(starts) for seed in range(2)]
    return [Job(key, 12, (), "eye", 5, goes_on) for key in keys]


def played_by(actor: toy.Actor | None) -> list[Job]:
    return [replace(job, actor=actor) for job in jobs()]


class Nobody:
    """The engine's sampler where it has nothing to do."""

    def sample(self, requests: Sequence[Request]) -> list[F32]:
        raise AssertionError("asked for actions")


def draw(key: TakeKey) -> Draw:
    return Draw(0, key.task, key.start, key.seed)


def run(
    path: Path, work: list[Job], pool: LocalPool, sampler: Sampler | None = None, batch: int = 4
) -> tuple[Tally, list[Row], str]:
    with Store.write(path, MANIFEST) as store:
        tally = play(work, sampler or toy.Noise(), draw, store, pool, batch=batch)
        return tally, store.rows(), store.digest()


def test_takes_do_not_depend_on_batch_or_workers(tmp_path: Path, pool: LocalPool) -> None:
    digests = {run(tmp_path / f"b{batch}", jobs(), pool, batch=batch)[2] for batch in (1, 3, 16)}
    single = LocalPool(1)
    digests.add(run(tmp_path / "one", jobs(), single)[2])
    single.close()
    assert len(digests) == 1


def test_takes_do_not_depend_on_who_samples(tmp_path: Path, pool: LocalPool) -> None:
    _, _, engine = run(tmp_path / "engine", jobs(), pool)
    for batch in (1, 3, 16):
        tally, _, worker = run(tmp_path / f"worker{batch}", played_by(toy.Actor()), pool, Nobody(), batch=batch)
        assert worker == engine
        assert tally.done == 12


def test_an_actor_that_cannot_be_made_fails_its_takes_with_its_reason(tmp_path: Path, pool: LocalPool) -> None:
    tally, rows, _ = run(tmp_path / "run", played_by(toy.Actor(missing=True)), pool, Nobody())
    assert tally.failed == 12
    assert {row.error for row in rows} == {"FileNotFoundError: no weights here"}


def test_work_that_raises_or_kills_its_worker_is_told(tmp_path: Path) -> None:
    own = LocalPool(2)
    with pytest.raises(RolloutError, match="died or gave no answer 3 times"):
        own.map(toy.halved, [2, 13])
    own.close()
    other = LocalPool(1)
    with pytest.raises(ValueError, match="7 is odd"):
        other.map(toy.halved, [7])
    other.close()


def test_a_take_is_what_a_plain_loop_gives(tmp_path: Path, pool: LocalPool) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        play(jobs(), toy.Noise(), draw, store, pool, batch=4)
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


def test_a_take_that_raises_is_recorded_with_its_reason_and_the_run_goes_on(tmp_path: Path, pool: LocalPool) -> None:
    tally, rows, _ = run(tmp_path / "run", jobs("python:toy:make?bad=2"), pool)
    assert (tally.done, tally.failed) == (10, 2)
    failed = [row for row in rows if row.status == "error"]
    assert {row.key.start for row in failed} == {2}
    assert failed[0].error == "RuntimeError: the arm fell off"


def test_a_take_that_keeps_killing_its_worker_fails_alone(tmp_path: Path) -> None:
    own = LocalPool(2)
    tally, rows, _ = run(tmp_path / "run", jobs("python:toy:make?poison=3", starts=5), own)
    own.close()
    assert (tally.done, tally.failed) == (8, 2)
    assert {row.key.start for row in rows if row.status == "error"} == {3}
    assert "died or hung 3 times" in str(next(row.error for row in rows if row.error))


def test_a_worker_that_dies_is_replaced_and_its_takes_come_out_the_same(tmp_path: Path, pool: LocalPool) -> None:
    uri = f"python:toy:make?poison=3&once={tmp_path / 'died'}"
    own = LocalPool(2)
    tally, _, _ = run(tmp_path / "hurt", jobs(uri), own)
    own.close()
    assert (tally.done, tally.failed) == (12, 0)
    assert (tmp_path / "died").exists()
    _, _, calm = run(tmp_path / "calm", jobs(uri), pool)
    with Store.open(tmp_path / "hurt") as store:
        assert store.digest() == calm


def test_a_worker_killed_from_outside_changes_nothing(tmp_path: Path, pool: LocalPool) -> None:
    own = LocalPool(2)
    killer = threading.Timer(0.6, lambda: os.kill(own.pids[0], signal.SIGKILL))
    killer.start()
    _, _, hurt = run(tmp_path / "hurt", jobs("python:toy:make?slow=0.01"), own)
    killer.join()
    own.close()
    _, _, calm = run(tmp_path / "calm", jobs("python:toy:make?slow=0.01"), pool)
    assert hurt == calm


def test_a_stopped_worker_is_replaced_when_patience_ends_and_changes_nothing(tmp_path: Path, pool: LocalPool) -> None:
    own = LocalPool(2, patience=4.0)
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


def test_a_worker_killed_in_the_middle_of_its_answer_is_replaced(tmp_path: Path) -> None:
    own = LocalPool(1)
    assert own.map(toy.cut_short, [str(tmp_path / "died")]) == ["whole"]
    own.close()


def test_workers_that_cannot_start_are_one_line_and_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("besttake.takes.process._CODE", "raise SystemExit(1)")
    monkeypatch.setattr("besttake.takes.pool._WAIT", 0.01)
    with closing(LocalPool(2)) as own, pytest.raises(RolloutError, match="is memory short"):
        own.map(toy.halved, [2, 4])


@pytest.mark.parametrize("actor", [None, toy.Actor(moody=True)], ids=["in the engine", "in the worker"])
def test_a_policy_that_fails_on_one_take_spoils_no_other(
    tmp_path: Path, pool: LocalPool, actor: toy.Actor | None
) -> None:
    tally, rows, _ = run(tmp_path / "run", played_by(actor), pool, toy.Moody() if actor is None else Nobody())
    assert (tally.done, tally.failed) == (8, 4)
    reasons = {row.key.start: row.error for row in rows if row.error}
    assert reasons[1] == "ValueError: cannot see"
    assert "not finite" in str(reasons[4])


def test_a_disk_error_stops_the_engine_and_is_raised_here(tmp_path: Path, pool: LocalPool) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.stage = lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))  # type: ignore[method-assign]
        with pytest.raises(OSError, match="No space left"):
            play(jobs(), toy.Noise(), draw, store, pool, batch=4)
