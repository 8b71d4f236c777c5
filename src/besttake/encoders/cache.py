"""A cache of embeddings, so that no frame is encoded twice, even by other runs and processes.

Embeddings are stored by the hash of the frame, in one SQLite file per fingerprint of an encoder. Several processes can
use it at once, and a killed run does not damage it.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from besttake.encoders.base import Encoder, embeddings_of
from besttake.errors import ComponentError, one_line
from besttake.files import cache_dir
from besttake.threads import PatientCaller
from besttake.types import F32, U8

_QUERY_WIDTH = 500
_BLOCK = 32
"""Frames that are encoded between two writes, the most that a killed process loses."""


def cached(encoder: Encoder, patience: float | None = None) -> Encoder:
    """Add the user's cache to ``encoder``, unless it is cheap; ``patience`` limits each call of the encoder."""
    return encoder if encoder.spec.cheap else CachedEncoder(encoder, cache_dir() / "embeddings", patience)


class CachedEncoder:
    """``encoder`` with a cache in ``directory``; ``encoded`` and ``reused`` count frames since its creation."""

    def __init__(self, encoder: Encoder, directory: Path | str, patience: float | None = None) -> None:
        self._encoder, self.spec = encoder, encoder.spec
        self._caller = PatientCaller(f"the encoder {self.spec.name}", patience)
        self.encoded = self.reused = 0
        if not self.spec.fingerprint:
            raise ComponentError(f"{self.spec.name} has no fingerprint, so its embeddings cannot be cached")
        self._one_at_a_time = threading.Lock()
        self.path = Path(directory) / f"{hashlib.sha256(self.spec.fingerprint.encode()).hexdigest()[:24]}.sqlite"
        with self._connect() as base:
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("CREATE TABLE IF NOT EXISTS frames (hash BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3) to float32 (B, dim); only frames that are not in the cache reach the encoder."""
        keys = [frame_hash(image) for image in images]
        known = self._read(sorted(set(keys)))
        fresh = {key: row for row, key in enumerate(keys) if key not in known}
        missing = list(fresh)
        for first in range(0, len(missing), _BLOCK):
            block = missing[first : first + _BLOCK]
            with self._one_at_a_time:  # the engine samples in two threads
                vectors = embeddings_of(self._encoder, images[[fresh[key] for key in block]], self._caller)
            new = dict(zip(block, vectors, strict=True))
            self._write(new)
            known.update(new)
        self.encoded += len(fresh)
        self.reused += len(keys) - len(fresh)
        return np.stack([known[key] for key in keys]) if keys else np.empty((0, self.spec.dim), np.float32)

    def _write(self, vectors: Mapping[bytes, F32]) -> None:
        # Values that are not finite may have been an accident, so these frames are encoded again next time.
        rows = [(key, row.astype("<f4").tobytes()) for key, row in vectors.items() if np.isfinite(row).all()]
        with self._connect() as base:
            base.executemany("INSERT OR REPLACE INTO frames VALUES (?, ?)", rows)

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, F32]:
        vectors: dict[bytes, F32] = {}
        with self._connect() as base:
            for first in range(0, len(keys), _QUERY_WIDTH):
                part = keys[first : first + _QUERY_WIDTH]
                marks = ",".join("?" * len(part))
                for key, blob in base.execute(f"SELECT hash, vector FROM frames WHERE hash IN ({marks})", part):
                    if len(blob) == 4 * self.spec.dim:
                        vectors[key] = np.frombuffer(blob, "<f4").astype(np.float32)
        return vectors

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        # One connection per use, so that threads and forked processes can share the cache.
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as base, base:
                yield base
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's messages can be damaged, too
            raise ComponentError(
                f"embedding cache {self.path}: {one_line(error, 200)}; it can be deleted, frames are then encoded again"
            ) from None


def frame_hash(image: U8) -> bytes:
    """A hash of the shape and the pixels of a frame."""
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()
