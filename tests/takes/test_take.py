from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from besttake.errors import RunError
from besttake.takes.key import TakeKey
from besttake.takes.take import Film, Take


@pytest.mark.parametrize("count", [1, 2, 17, 300])
def test_small_frames_come_back_exactly(count: int) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (count, 64, 64, 3), np.uint8)
    assert np.array_equal(Film.pack(frames).unpack(), frames)


def test_large_frames_come_back_nearly() -> None:
    ramp = np.linspace(0, 255, 256).astype(np.uint8)
    frames = np.stack([np.stack([np.roll(np.tile(ramp, (256, 1)), k)] * 3, axis=-1) for k in range(4)])
    far = np.abs(Film.pack(frames).unpack().astype(int) - frames).mean()
    assert far < 4


@pytest.mark.parametrize(
    "change",
    [{"width": 65}, {"height": 63}, {"columns": 2}, {"data": b"no picture"}, {"data": b""}, {"count": 40}],
    ids=lambda change: str(*change),
)
def test_a_picture_that_is_not_of_its_frames_is_one_line(change: dict[str, Any]) -> None:
    film = Film.pack(np.zeros((3, 64, 64, 3), np.uint8))
    with pytest.raises(RunError, match="pictures of a take are damaged") as error:
        replace(film, **change).unpack()
    assert "\n" not in str(error.value)


GOOD = Take(
    TakeKey("p", "e", "t", 0, "base", 0), 2, np.zeros((5, 2), np.float32), np.zeros((6, 3), np.float32),
    Film.pack(np.zeros((4, 8, 8, 3), np.uint8)), np.arange(4, dtype=np.int32), 1,
)  # fmt: skip


WRONG: list[dict[str, Any]] = [
    *({"key": TakeKey(*key)} for key in (("p", "e", "t", "0", "base", 0), ("p", "e", "t", 0, 5, 0), (1,) * 6)),  # type: ignore[arg-type]
    *({"success_step": step} for step in ("2", -1, 6, 1.5, True)),
    *({"layout": layout} for layout in ({"count": 3}, {"width": 0}, {"height": -8}, {"columns": 0}, {"columns": None})),
    *({"layout": {"columns": columns}} for columns in (1.5, [4], 10**9)),
    {"actions": np.zeros(5, np.float32)},
    {"actions": np.zeros((5, 2), np.int32)},
    {"states": np.zeros((), np.float32)},
    {"frame_steps": np.arange(3, dtype=np.int32)},
]


@pytest.mark.parametrize("change", WRONG)
def test_a_take_whose_parts_do_not_fit_is_refused_though_its_checksum_is_right(change: dict[str, Any]) -> None:
    assert Take.from_sealed(GOOD.to_bytes()).key == GOOD.key
    given = {**change}
    film = replace(GOOD.film, **given.pop("layout", {}))
    with pytest.raises(RunError, match="a take file is damaged"):
        Take.from_sealed(replace(GOOD, **{"film": film, **given}).to_bytes())
