"""Encoders that avoid work: a cache on disk, and on request the skipping of near-identical frames.

`CachedEncoder` encodes no frame twice: embeddings on disk, keyed by the frame's hash and the encoder's fingerprint.

One SQLite file per fingerprint. SQLite gives what a cache shared by runs needs: atomic writes, several processes at
once, and a file that a killed run leaves whole.

With `SkippingEncoder`, a frame that differs from the last encoded one by less than ``threshold`` grey levels on average
takes its embedding. Every ``audit``-th skipped frame is encoded all the same to measure the error, so that a report can
say what the saving cost. Rows then depend on their neighbours; therefore it is off unless requested, and part of the
fingerprint.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from besttake.encoders.base import Encoder
from besttake.errors import ComponentError, one_line
from besttake.files import cache_dir
from besttake.types import F32, U8

T = TypeVar("T")
_QUERY_WIDTH = 500
_BLOCK = 32
"""Frames that are encoded between two writes: what a killed process loses at most."""
_VERSION = 2
"""Embeddings of version 1 are not used: their last bits depended on the batch."""


def cached(encoder: Encoder) -> Encoder:
    """Put the user's cache in front of ``encoder``, unless it is cheap."""
    return encoder if encoder.spec.cheap else CachedEncoder(encoder, cache_dir() / "embeddings")


class CachedEncoder:
    """``encoder`` behind a cache in ``directory``; ``encoded`` and ``reused`` count frames since it was made."""

    def __init__(self, encoder: Encoder, directory: Path | str) -> None:
        self._encoder, self.spec = encoder, encoder.spec
        self.encoded = self.reused = 0
        if not self.spec.fingerprint:
            raise ComponentError(f"{self.spec.name} has no fingerprint, so its embeddings cannot be cached")
        self._one_at_a_time = threading.Lock()
        self.path = Path(directory) / f"{_known_by(self.spec.fingerprint)}.sqlite"
        with self._connect() as base:
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("CREATE TABLE IF NOT EXISTS frames (hash BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3) to float32 (B, dim); only frames never seen before reach the encoder."""
        keys = [frame_hash(image) for image in images]
        known = self._read(sorted(set(keys)))
        fresh = {key: row for row, key in enumerate(keys) if key not in known}
        for block in batched(fresh.items(), _BLOCK):
            with self._one_at_a_time:  # takes are sampled in one thread while those that ended are embedded in another
                vectors = self._encoder.encode(images[[row for _, row in block]])
            new = {key: vector for (key, _), vector in zip(block, vectors, strict=True)}
            self._keep(new)
            known.update(new)
        self.encoded += len(fresh)
        self.reused += len(keys) - len(fresh)
        return np.stack([known[key] for key in keys]) if keys else np.empty((0, self.spec.dim), np.float32)

    def add(self, vectors: Mapping[bytes, F32], encoded: int) -> None:
        """Store embeddings by frame hash that the same encoder made elsewhere; ``encoded`` of them were new there."""
        sound = {key: v for key, v in vectors.items() if v.shape == (self.spec.dim,) and np.isfinite(v).all()}
        fresh = {key: sound[key] for key in sound.keys() - self._read(sorted(sound)).keys()}
        if fresh:
            self._keep(fresh)
        self.encoded += encoded

    def _keep(self, vectors: Mapping[bytes, F32]) -> None:
        with self._connect() as base:
            rows = [(key, _packed(key, vector)) for key, vector in vectors.items()]
            base.executemany("INSERT OR REPLACE INTO frames VALUES (?, ?)", rows)

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, F32]:
        vectors: dict[bytes, F32] = {}
        with self._connect() as base:
            for first in range(0, len(keys), _QUERY_WIDTH):
                part = keys[first : first + _QUERY_WIDTH]
                marks = ",".join("?" * len(part))
                for key, blob in base.execute(f"SELECT hash, vector FROM frames WHERE hash IN ({marks})", part):
                    vector = _unpacked(key, blob, self.spec.dim)
                    if vector is not None:
                        vectors[key] = vector
        return vectors

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        # A connection per use: it may then be shared by threads and survives a fork.
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as base, base:
                yield base
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # damage can be in SQLite's own texts, too
            raise ComponentError(
                f"embedding cache {self.path}: {one_line(error, 200)}; it can be deleted, frames are then encoded again"
            ) from None


def _known_by(fingerprint: str) -> str:
    return hashlib.sha256(f"{_VERSION} {fingerprint}".encode()).hexdigest()[:24]


class Arrivals:
    """Writes embeddings made elsewhere to a `CachedEncoder` in a background thread, so that nobody waits for the disk.

    Everything that has arrived is written at once. What cannot be stored is encoded again when needed.
    """

    def __init__(self, encoder: CachedEncoder) -> None:
        self._encoder = encoder
        self._queue: queue.SimpleQueue[tuple[Mapping[bytes, F32], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="arrivals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def add(self, vectors: Mapping[bytes, F32], encoded: int) -> None:
        """Queue embeddings for `CachedEncoder.add`."""
        self._queue.put((vectors, encoded))

    def _work(self) -> None:
        ended = False
        while not ended:
            arrived, vectors, encoded = [self._queue.get()], dict[bytes, F32](), 0
            while not self._queue.empty():
                arrived.append(self._queue.get())
            for one in arrived:
                if one is None:
                    ended = True
                else:
                    vectors.update(one[0])
                    encoded += one[1]
            with contextlib.suppress(ComponentError):
                self._encoder.add(vectors, encoded)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """``items`` in lists of at most ``size``."""
    left = iter(items)
    while block := list(islice(left, size)):
        yield block


def _packed(key: bytes, vector: F32) -> bytes:
    """A row of the cache: the vector and a checksum of it and its key."""
    data = vector.astype("<f4").tobytes()
    return data + zlib.crc32(key + data).to_bytes(4, "little")


def _unpacked(key: bytes, blob: Any, dim: int) -> F32 | None:
    """The vector of a row; None if the row is damaged, so that its frame is encoded again."""
    if not isinstance(blob, bytes) or len(blob) != 4 * dim + 4:
        return None
    data, check = blob[:-4], int.from_bytes(blob[-4:], "little")
    return np.frombuffer(data, "<f4").astype(np.float32) if zlib.crc32(key + data) == check else None


def frame_hash(image: U8) -> bytes:
    """A hash of the shape and the pixels of a frame."""
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()


@dataclass(frozen=True)
class SkipReport:
    """How many frames were skipped, how many of those were checked, and 1 - cosine of the checked ones."""

    frames: int
    skipped: int
    audited: int
    mean_error: float
    worst_error: float


class SkippingEncoder:
    """``encoder`` that reuses an embedding while frames hardly change."""

    def __init__(self, encoder: Encoder, threshold: float, audit: int = 16) -> None:
        if not threshold > 0 or audit < 1:
            raise ComponentError(f"skip={threshold}: expected a number of grey levels above 0, and audit at least 1")
        self._encoder, self._threshold, self._audit = encoder, threshold, audit
        self._frames = self._skipped = 0
        self._errors: list[float] = []
        mark = f"{encoder.spec.fingerprint}+skip{threshold:g}"
        note = f"consecutive frames closer than {threshold:g} grey levels share an embedding"
        self.spec = replace(encoder.spec, fingerprint=mark, notes=(*encoder.spec.notes, note))

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3), in the order they were filmed, to float32 (B, dim)."""
        source = self._sources(images)
        kept = np.unique(source)
        audited = np.flatnonzero(source != np.arange(len(images)))[:: self._audit]
        vectors = self._encoder.encode(images[np.concatenate([kept, audited])])
        out: F32 = vectors[np.searchsorted(kept, source)]
        true = vectors[len(kept) :]
        self._errors += [float(1 - np.dot(a, b)) for a, b in zip(out[audited], true, strict=True)]
        out[audited] = true
        self._frames += len(images)
        self._skipped += len(images) - len(kept)
        return out

    def report(self) -> SkipReport:
        """What has been skipped so far, and what it cost."""
        errors = self._errors or [0.0]
        return SkipReport(self._frames, self._skipped, len(self._errors), float(np.mean(errors)), float(np.max(errors)))

    def _sources(self, images: U8) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """For each frame, the index of the frame whose embedding it takes."""
        source = np.arange(len(images))
        for row in range(1, len(images)):
            last = source[row - 1]
            if np.abs(images[row].astype(np.int16) - images[last].astype(np.int16)).mean() < self._threshold:
                source[row] = last
        return source
