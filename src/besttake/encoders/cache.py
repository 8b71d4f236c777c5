"""No frame is encoded twice: embeddings on disk, keyed by the frame's hash and the encoder's fingerprint.

One SQLite file per fingerprint. SQLite gives what a cache shared by runs needs: atomic writes, several processes at
once, and a file that a killed run leaves whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from besttake.encoders.base import Encoder
from besttake.errors import ComponentError
from besttake.files import cache_dir
from besttake.types import F32, U8

_QUERY_WIDTH = 500


def cached(encoder: Encoder) -> Encoder:
    """``encoder`` with the user's cache in front of it; a cheap one as it is."""
    return encoder if encoder.spec.cheap else CachedEncoder(encoder, cache_dir() / "embeddings")


class CachedEncoder:
    """``encoder`` behind a cache in ``directory``; ``encoded`` and ``reused`` count frames since it was made."""

    def __init__(self, encoder: Encoder, directory: Path | str) -> None:
        self._encoder, self.spec = encoder, encoder.spec
        self.encoded = self.reused = 0
        if not self.spec.fingerprint:
            raise ComponentError(f"{self.spec.name} has no fingerprint, so its embeddings cannot be cached")
        self.path = Path(directory) / f"{hashlib.sha256(self.spec.fingerprint.encode()).hexdigest()[:24]}.sqlite"
        with self._connect() as base:
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("CREATE TABLE IF NOT EXISTS frames (hash BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3) to float32 (B, dim); only frames never seen before reach the encoder."""
        keys = [frame_hash(image) for image in images]
        known = self._read(sorted(set(keys)))
        fresh = {key: row for row, key in enumerate(keys) if key not in known}
        if fresh:
            vectors = self._encoder.encode(images[list(fresh.values())])
            known.update(zip(fresh, vectors, strict=True))
            with self._connect() as base:
                rows = [(key, known[key].astype("<f4").tobytes()) for key in fresh]
                base.executemany("INSERT OR REPLACE INTO frames VALUES (?, ?)", rows)
        self.encoded += len(fresh)
        self.reused += len(keys) - len(fresh)
        return np.stack([known[key] for key in keys]) if keys else np.empty((0, self.spec.dim), np.float32)

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
        # A connection per use: it may then be shared by threads and survives a fork.
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as base, base:
                yield base
        except (OSError, sqlite3.Error) as error:
            raise ComponentError(
                f"embedding cache {self.path}: {error}; it can be deleted, frames are then encoded again"
            ) from None


def frame_hash(image: U8) -> bytes:
    """What a frame is known by: its shape and its pixels."""
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()
