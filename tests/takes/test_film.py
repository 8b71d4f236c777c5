from __future__ import annotations

import numpy as np
import pytest

from besttake.takes.film import Film


@pytest.mark.parametrize("count", [1, 2, 17, 300])
def test_small_frames_come_back_exactly(count: int) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (count, 64, 64, 3), np.uint8)
    assert np.array_equal(Film.pack(frames).unpack(), frames)


def test_frames_that_are_not_square_come_back_exactly() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 48, 100, 3), np.uint8)
    assert np.array_equal(Film.pack(frames).unpack(), frames)


def test_large_frames_come_back_nearly() -> None:
    ramp = np.linspace(0, 255, 256).astype(np.uint8)
    frames = np.stack([np.stack([np.roll(np.tile(ramp, (256, 1)), k)] * 3, axis=-1) for k in range(4)])
    far = np.abs(Film.pack(frames).unpack().astype(int) - frames).mean()
    assert far < 4


def test_no_frames_are_no_frames() -> None:
    assert Film.pack(np.zeros((0, 64, 64, 3), np.uint8)).unpack().shape == (0, 64, 64, 3)


def test_packing_twice_gives_the_same_bytes() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (9, 64, 64, 3), np.uint8)
    assert Film.pack(frames).data == Film.pack(frames).data


def test_a_film_of_lower_quality_is_smaller() -> None:
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 40, (4, 64, 64, 3), np.uint8)
    frames = np.clip(ramp[None, :, None, None].astype(int) + noise, 0, 255).astype(np.uint8)
    exact, rough = Film.pack(frames), Film.pack(frames, quality=60)
    assert len(rough.data) < len(exact.data) / 2
    assert 0 < np.abs(rough.unpack().astype(int) - frames).mean() < 20
