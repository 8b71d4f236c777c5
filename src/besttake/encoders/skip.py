"""Skipping near-identical consecutive frames: only on request, and with the error it makes.

A frame that differs from the last encoded one by less than ``threshold`` grey levels on average takes its embedding.
Every ``audit``-th skipped frame is encoded all the same, and the distance to what it would have been given is kept,
so that a report can say what the saving cost. Rows then depend on their neighbours, which is why this is never on by
itself and why the fingerprint names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from besttake.encoders.base import Encoder
from besttake.errors import ComponentError
from besttake.types import F32, U8


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
