from __future__ import annotations

import numpy as np
import pytest

from besttake.encoders.skip import SkippingEncoder
from besttake.types import EncoderSpec


class Means:
    spec = EncoderSpec("means", 3, "means-1")

    def __init__(self):
        self.seen = 0

    def encode(self, images):
        self.seen += len(images)
        means = images.reshape(len(images), -1, 3).mean(axis=1) + 1
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)


def film(levels):
    """Frames whose red is the level and whose green is 100."""
    frames = np.zeros((len(levels), 4, 4, 3), np.uint8)
    frames[..., 0] = np.asarray(levels)[:, None, None]
    frames[..., 1] = 100
    return frames


def test_still_frames_share_an_embedding_and_moving_ones_do_not():
    inner = Means()
    skipping = SkippingEncoder(inner, threshold=1, audit=1000)
    got = skipping.encode(film([50, 50, 51, 90, 90, 140]))
    np.testing.assert_array_equal(got, Means().encode(film([50, 50, 50, 90, 90, 140])))
    assert skipping.report().skipped == 3
    assert inner.seen == 3 + 1


def test_a_slow_drift_is_measured_against_the_last_encoded_frame_so_it_cannot_run_away():
    skipping = SkippingEncoder(Means(), threshold=1)
    got = skipping.encode(film(range(60)))
    assert np.abs(got - Means().encode(film(range(60)))).max() < 0.03
    assert 0 < skipping.report().skipped < 59


def test_the_error_of_skipping_is_measured_on_audited_frames():
    skipping = SkippingEncoder(Means(), threshold=30, audit=1)
    skipping.encode(film([50, 60]))
    exact = Means().encode(film([50, 60]))
    report = skipping.report()
    assert report.audited == 1
    assert report.worst_error == pytest.approx(1 - float(exact[0] @ exact[1]), abs=1e-6)
