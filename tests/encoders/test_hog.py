from __future__ import annotations

import numpy as np
import pytest

from besttake.encoders.hog import Hog
from besttake.errors import ComponentError
from besttake.registry import encoder


def stripes(angle, side=64, colour=(255, 255, 255)):
    y, x = np.mgrid[:side, :side]
    wave = 0.5 + 0.5 * np.sin((x * np.cos(angle) + y * np.sin(angle)) * 0.8)
    return (wave[..., None] * np.array(colour)).astype(np.uint8)


def test_a_picture_has_the_same_bits_alone_and_in_a_batch():
    images = np.random.default_rng(1).integers(0, 256, (33, 64, 64, 3), dtype=np.uint8)
    whole = Hog().encode(images)
    np.testing.assert_array_equal(np.concatenate([Hog().encode(images[i : i + 1]) for i in range(33)]), whole)


def test_the_histogram_peaks_at_the_direction_of_the_gradient():
    for turn in (0, 2, 5):
        angle = (turn + 0.5) * np.pi / 9
        row = Hog().encode(stripes(angle)[None])[0]
        histogram = row[: 64 * 9].reshape(64, 9).sum(axis=0)
        # A gradient in the middle of a bin is shared by its two nearest marks.
        assert set(np.argsort(histogram)[-2:]) == {turn, (turn + 1) % 9}


def test_the_registry_makes_it_and_wrong_use_gives_one_line():
    assert encoder("hog?cells=4").spec.dim == 16 * 12
    assert encoder("hog").spec.fingerprint != encoder("hog?bins=6").spec.fingerprint
    for wrong in ("hog:fine", "hog?cells=x", "hog?bins=1"):
        with pytest.raises(ComponentError):
            encoder(wrong)
