"""Pictures come from workers by memory that both share, and it is nobody's when they have ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy

from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.memory import Place, created
from besttake.takes.messages import Answer, Job, Need
from besttake.takes.pool import LocalPool
from besttake.takes.runner import play
from besttake.takes.store import Store
from besttake.types import Observation


def need(slot: int, *pictures: np.ndarray) -> Need:
    seen = Observation({f"eye {i}": picture for i, picture in enumerate(pictures)}, np.zeros(2, np.float32))
    return Need(slot, seen, 0, np.zeros((1, 2), np.float32))


def seen(answer: Answer) -> dict[str, np.ndarray]:
    assert isinstance(answer, Need)
    return dict(answer.observation.images)


def pictures(size: int, count: int = 2) -> list[np.ndarray]:
    return list(np.random.default_rng(size).integers(0, 256, (count, size, size, 3), np.uint8))


def test_pictures_are_the_same_on_the_other_side_and_stay_when_the_slot_is_used_again() -> None:
    with created() as (memory, _):
        assert memory is not None
        one, other = pictures(256), pictures(200)
        sent = memory.put([need(3, *one), need(5, *other)])
        assert all(isinstance(place, Place) for a in sent for place in seen(a).values())
        first, second = memory.get(sent)
        memory.put([need(3, *other)])
        for answer, own in ((first, one), (second, other)):
            for picture, was in zip(seen(answer).values(), own, strict=True):
                np.testing.assert_array_equal(picture, was)
                assert picture.flags.writeable


@pytest.mark.parametrize(
    "answer",
    [
        need(0, *pictures(16)),
        need(64, *pictures(256)),
        need(0, *pictures(900)),
        need(0, pictures(256)[0] / 255),
        need(0),
    ],
    ids=["small", "too many slots", "too large", "no bytes", "none"],
)
def test_what_does_not_fit_goes_through_the_pipe(answer: Need) -> None:
    with created() as (memory, _):
        assert memory is not None
        assert memory.put([answer])[0] is answer
        assert memory.get([answer])[0] is answer


def draw(key: TakeKey) -> Draw:
    return Draw(0, key.task, key.start, key.seed)


def test_takes_that_look_at_pictures_are_the_same_whoever_samples_and_the_memory_has_no_name(tmp_path: Path) -> None:
    keys = [TakeKey("p", "python:toy:make?size=160", "walk", start, "base", 0) for start in range(8)]
    work = [Job(key, 12, ("eye",), "eye", 5, True) for key in keys]
    pool, digests = LocalPool(2), []
    for name, actor in (("here", None), ("worker", toy.Actor(looking=True))):
        with Store.write(tmp_path / name, Manifest()) as store:
            tally = play([replace(job, actor=actor) for job in work], toy.Looking(), draw, store, pool, batch=6)
            digests.append((tally.done, store.digest()))
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in pool.pids]
    pool.close()
    assert digests[0] == digests[1]
    assert digests[0][0] == 8
    for text in maps:
        assert "/memfd:besttake (deleted)" in text
        assert "/dev/shm" not in text
