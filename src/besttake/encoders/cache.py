"""No frame is encoded twice: embeddings on disk, keyed by the frame's hash and the encoder's fingerprint.

One SQLite file per fingerprint. SQLite gives what a cache shared by runs needs: atomic writes, several processes at
once, and a file that a killed run leaves whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from besttake.encoders.base import Encoder
from besttake.errors import ComponentError, one_line
from besttake.files import cache_dir
from besttake.types import F32, U8

T = TypeVar("T")
_QUERY_WIDTH = 500
_BLOCK = 32
"""Frames that are encoded between two writes: what a killed process loses at most."""


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
        for block in batched(fresh.items(), _BLOCK):
            vectors = self._encoder.encode(images[[row for _, row in block]])
            new = {key: vector for (key, _), vector in zip(block, vectors, strict=True)}
            with self._connect() as base:
                rows = [(key, _packed(key, vector)) for key, vector in new.items()]
                base.executemany("INSERT OR REPLACE INTO frames VALUES (?, ?)", rows)
            known.update(new)
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
    """The vector of a row; None where the row is damaged or without a checksum, so that its frame is encoded again."""
    if not isinstance(blob, bytes) or len(blob) != 4 * dim + 4:
        return None
    data, check = blob[:-4], int.from_bytes(blob[-4:], "little")
    return np.frombuffer(data, "<f4").astype(np.float32) if zlib.crc32(key + data) == check else None


def frame_hash(image: U8) -> bytes:
    """What a frame is known by: its shape and its pixels."""
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()
