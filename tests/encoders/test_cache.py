from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from besttake.encoders.cache import CachedEncoder
from besttake.errors import ComponentError
from besttake.testing import check_encoder
from besttake.types import EncoderSpec


class Means:
    """Unit vector of the three colour means; counts the frames that it is given."""

    def __init__(self, fingerprint="means-1"):
        self.spec = EncoderSpec("means", 3, fingerprint)
        self.seen = 0

    def encode(self, images):
        self.seen += len(images)
        means = images.reshape(len(images), -1, 3).mean(axis=1) + 1
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)


def pictures(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), np.uint8)


def test_a_cached_encoder_keeps_the_contract(tmp_path):
    check_encoder(CachedEncoder(Means(), tmp_path))


def test_a_second_run_over_the_same_frames_encodes_nothing(tmp_path):
    frames = pictures(1200)
    first, second = Means(), Means()
    before = CachedEncoder(first, tmp_path).encode(frames)
    again = CachedEncoder(second, tmp_path)
    np.testing.assert_array_equal(again.encode(frames), before)
    assert (first.seen, second.seen) == (1200, 0)
    assert (again.encoded, again.reused) == (0, 1200)


def test_a_frame_that_occurs_twice_in_a_batch_is_encoded_once(tmp_path):
    frames = pictures(4)[[0, 1, 0, 2, 1, 3]]
    inner = Means()
    cached = CachedEncoder(inner, tmp_path)
    np.testing.assert_array_equal(cached.encode(frames), Means().encode(frames))
    assert inner.seen == 4


def test_two_threads_never_use_an_encoder_at_the_same_time(tmp_path):
    """A replica embeds finished takes in one thread while another samples an arm that embeds."""

    class Fragile(Means):
        inside = met = 0

        def encode(self, images):
            self.inside += 1
            time.sleep(0.02)
            self.met = max(self.met, self.inside)
            self.inside -= 1
            return super().encode(images)

    inner = Fragile()
    cached = CachedEncoder(inner, tmp_path)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: cached.encode(pictures(2, seed)), range(4)))
    assert inner.met == 1


def test_another_fingerprint_does_not_see_these_embeddings(tmp_path):
    frames = pictures(3)
    CachedEncoder(Means(), tmp_path).encode(frames)
    other = Means("means-2")
    CachedEncoder(other, tmp_path).encode(frames)
    assert other.seen == 3


def _encode_some(directory, seed):
    CachedEncoder(Means(), directory).encode(pictures(50, seed))


def test_several_processes_write_one_cache(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_encode_some, args=(tmp_path, seed)) for seed in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    inner = Means()
    CachedEncoder(inner, tmp_path).encode(np.concatenate([pictures(50, 0), pictures(50, 1)]))
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert inner.seen == 0


def test_a_damaged_cache_and_an_encoder_without_a_fingerprint_are_said_plainly(tmp_path):
    path = CachedEncoder(Means(), tmp_path).path
    for other in tmp_path.iterdir():
        other.unlink()
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(ComponentError, match="it can be deleted"):
        CachedEncoder(Means(), tmp_path)
    with pytest.raises(ComponentError, match="no fingerprint"):
        CachedEncoder(Means(""), tmp_path)
