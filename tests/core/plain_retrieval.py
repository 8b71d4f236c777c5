"""Retrieval written out: every candidate is compared with every query, and all are held in memory.

This is the brute force that `besttake.core.retrieve` must agree with to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.retrieve import Candidates, Match, RetrievalConfig, targets

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class PlainRetriever:
    """`besttake.core.retrieve.Retriever` as it was: every candidate is compared with every query."""

    def __init__(self, candidates: Candidates, config: RetrievalConfig | None = None) -> None:
        self.candidates, self.config = candidates, config or RetrievalConfig()
        self.target = targets(candidates.demo, candidates.step, self.config)
        self._spaces = (
            _Standard(np.asarray(candidates.embeddings)),
            _Standard(np.asarray(candidates.chunks)),
            None if candidates.states is None else _Standard(np.asarray(candidates.states)),
        )
        self._returns = _Standard(candidates.chunks[self.target])

    def query(
        self,
        embeddings: NDArray[Any],
        chunks: NDArray[Any] | None = None,
        states: NDArray[Any] | None = None,
        phases: Sequence[bool | None] | None = None,
        exclude: Sequence[int | None] | None = None,
    ) -> list[Match]:
        """The match of each row, as that of `Retriever.query`."""

        def row(b: int) -> list[Any]:
            return [None if v is None else v[b] for v in (embeddings, chunks, states, phases, exclude)]

        return [self._one(*row(b)) for b in range(len(embeddings))]

    def _one(self, image: Any, chunk: Any, state: Any, phase: bool | None, exclude: int | None) -> Match:
        config, known = self.config, self.candidates
        allowed = np.ones(len(known.demo), bool) if exclude is None else known.demo != exclude
        if config.gripper_gating and phase is not None and known.open is not None:
            gated = allowed & (known.open == phase)
            allowed = gated if gated.any() else allowed
        rows = np.flatnonzero(allowed)
        near = self._spaces[0].distances(image, rows)
        if config.rerank:
            likely = np.sort(np.argsort(near, kind="stable")[: config.rerank])
            rows, near = rows[likely], near[likely]
        parts = [near] + [
            np.full(len(rows), np.nan) if space is None or value is None else space.distances(value, rows)
            for space, value in zip(self._spaces[1:], (chunk, state), strict=True)
        ]
        weights = np.array([0.0 if np.isnan(p).any() else w for p, w in zip(parts, config.weights, strict=True)])
        if weights.sum() == 0:
            weights = np.array([1.0, 0.0, 0.0])
        terms = [p * w for p, w in zip(parts, weights, strict=True) if w > 0]
        distance = np.sum(terms, axis=0) / weights.sum()
        if config.reliability and chunk is not None:
            distance = distance + config.reliability * self._returns.distances(chunk, rows)
        win = int(np.argmin(distance))
        own = (float(parts[0][win]), float(parts[1][win]), float(parts[2][win]))
        return self._match(int(rows[win]), float(distance[win]), own)

    def _match(self, row: int, distance: float, parts: tuple[float, float, float]) -> Match:
        known, target = self.candidates, int(self.target[row])
        steps = int(known.step[row]), int(known.step[target])
        return Match(int(known.demo[row]), row, *steps, known.chunks[target], distance, parts)


class _Standard:
    """A modality on z-scored axes: rows (E, n) float32, constant axes left out."""

    def __init__(self, values: NDArray[Any]) -> None:
        flat = values.reshape(len(values), -1).astype(np.float64)
        self._mean, spread = flat.mean(axis=0), flat.std(axis=0)
        # What varies by rounding only would otherwise be blown up to unit variance.
        self._keep = np.flatnonzero(spread > 1e-6 * max(float(np.abs(flat).max(initial=0.0)), 1e-6))
        self._scale = spread[self._keep]
        self._rows = self._place(flat)

    def _place(self, flat: F64) -> F32:
        placed: F32 = ((flat - self._mean)[..., self._keep] / self._scale).astype(np.float32)
        return placed

    def distances(self, value: NDArray[Any], rows: I64) -> F64:
        """Root mean square z-difference of one query and the candidates ``rows``."""
        if not self._rows.shape[1]:
            return np.zeros(len(rows))
        # Of all rows, whichever are asked for, because numpy adds up a copy of some of them in another order.
        gap = self._rows - self._place(np.asarray(value, np.float64).reshape(-1))
        return np.sqrt(np.mean(gap * gap, axis=1, dtype=np.float64))[rows]
