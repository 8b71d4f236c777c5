"""What can be said of the torch encoders where torch is not installed; tests/integration/lerobot has the rest."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from besttake import registry
from besttake.encoders.pretrained import HALF, preprocess
from besttake.errors import MissingExtra

without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")


@without_torch
@pytest.mark.parametrize("uri", ["dinov2+siglip", "dinov2", "siglip"])
def test_a_missing_library_names_the_extra(uri):
    with pytest.raises(MissingExtra, match=r"pip install 'besttake\["):
        registry.encoder(uri)


def test_preprocessing_squeezes_the_whole_frame_and_scales_it():
    frame = np.zeros((1, 10, 20, 3), np.uint8)
    frame[:, :, 10:] = 255
    got = preprocess(frame, 8, HALF, HALF)
    assert got.shape == (1, 3, 8, 8)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got[0, 0, 4], [-1, -1, -1, -1, 1, 1, 1, 1], atol=0.2)
    np.testing.assert_array_equal(preprocess(np.full((1, 8, 8, 3), 255, np.uint8), 8, HALF, HALF), 1)
