"""The search below all scores: of each frame of a take, the library frame it is most like.

The kernel is exact. A float32 matrix product only nominates: every library frame whose product lies within rounding of
the best is compared again by a float64 dot product of that one pair, ties going to the lowest library frame. Scores and
winners therefore depend on the two vectors alone, never on the batch, the blocking or the number of threads. The steps
and why they are exact: ``core/README.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import orthonormal, rough_product

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Blocks small enough for flat memory: rows, library frames of a plain product, and those of a product of bounds.
QUERIES, FRAMES, BOUNDS = 1024, 4096, 16384
# Rows that are tried by the bound at a time, and the fraction of the frames it may leave over and still pay.
PROBE, MOST_LEFT = 64, 0.3
_PAIRS = _ROWS = 64
_PENDING = 1 << 16
_PREFIX, _WORTH_A_PREFIX = 96, 256


@dataclass(frozen=True)
class Trace:
    """Per frame of a take: ``best`` float32 (T,), the highest cosine, and ``frame`` int64 (T,), whose it is.

    Where the take's embedding is not finite, ``best`` is NaN and ``frame`` is -1.
    """

    best: F32
    frame: I64


@dataclass(frozen=True)
class Index:
    """A library slice prepared for search: ``library`` float32 (F, d) with L2-normalised rows.

    Where the frames lie near a subspace, ``basis`` (d, p) spans it and ``reduced`` (F, p + 1) holds each frame's
    coordinates there and the norm of the rest. By Cauchy-Schwarz ``[q_p, |q_r|] . [d_p, |d_r|] >= q . d``, so most
    frames are ruled out by a product of p + 1 instead of d numbers, exactly. Both are None where that cannot pay.
    """

    library: F32
    basis: F32 | None = None
    reduced: F32 | None = None

    @classmethod
    def build(cls, library: NDArray[Any]) -> Index:
        """Prepare ``library`` (F, d); ValueError when it is empty or not finite."""
        frames = library if library.dtype == np.float32 else library.astype(np.float32)
        if frames.ndim != 2 or frames.shape[0] == 0:
            raise ValueError("a library to search needs at least one frame")
        for first in range(0, len(frames), FRAMES):
            if not np.isfinite(frames[first : first + FRAMES]).all():
                raise ValueError("a library to search must be finite")
        if frames.shape[1] < _WORTH_A_PREFIX or frames.shape[0] < 4 * _PREFIX:
            return cls(frames)
        basis = _basis(frames)
        reduced = np.empty((len(frames), basis.shape[1] + 1), np.float32)
        for first in range(0, len(frames), FRAMES):
            reduced[first : first + FRAMES] = reduce(frames[first : first + FRAMES], basis)
        tight = float(np.mean(reduced[:, -1] ** 2)) < 0.25
        return cls(frames, basis, reduced) if tight else cls(frames)

    @property
    def arrays(self) -> dict[str, F32]:
        """What was prepared of the library: ``basis`` and ``reduced`` where they pay."""
        made = {"basis": self.basis, "reduced": self.reduced, "frames": np.array([len(self.library)], np.float32)}
        return {name: array for name, array in made.items() if array is not None}

    def nearest(self, queries: NDArray[Any]) -> Trace:
        """The highest inner product of each row of ``queries`` (Q, d) with a library frame, and that frame."""
        rows = rows_of(queries, self.library.shape[1])
        best, frame = np.full(len(rows), np.nan), np.full(len(rows), -1, np.int64)
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        pruned = self.basis is not None and len(finite) >= PROBE
        first, size = 0, PROBE if pruned else QUERIES
        while first < len(finite):
            pick = finite[first : first + size]
            winners = Winners(rows[pick], self.library)
            if pruned:
                pruned = self._pruned(rows[pick], winners)
            else:
                self._dense(rows[pick], winners)
            winners.settle()
            best[pick], frame[pick] = winners.best, winners.index
            first, size = first + len(pick), PROBE if pruned else QUERIES
        return Trace(best.astype(np.float32), frame)

    def _dense(self, queries: F32, winners: Winners) -> None:
        buffer = np.empty(len(queries) * min(FRAMES, len(self.library)), np.float32)
        for start in range(0, len(self.library), FRAMES):
            part = self.library[start : start + FRAMES]
            products = buffer[: len(queries) * len(part)].reshape(len(queries), len(part))
            winners.offer(rough_product(queries, part.T, out=products), start)

    def _pruned(self, queries: F32, winners: Winners) -> bool:
        """Search by the bound; False when it left so many frames over that the plain product is the better way.

        The queries of a block are neighbours in time and leave much the same frames over, so that one product of all
        queries with all frames left over is faster than single pairs, and never dearer than the plain product.
        """
        assert self.basis is not None
        assert self.reduced is not None
        short = reduce(queries, self.basis)
        left_over = 0
        for start in range(0, len(self.reduced), BOUNDS):
            bounds = rough_product(short, self.reduced[start : start + BOUNDS].T)
            left = not_ruled_out(bounds, start, winners)
            left_over += len(left)
            self.compare(queries, left, start, winners)
        return left_over <= MOST_LEFT * len(self.library)

    def compare(self, queries: F32, left: I64, start: int, winners: Winners) -> None:
        """Offer the products with the frames ``left`` over of those from ``start`` on."""
        width = min(BOUNDS, len(self.library) - start)
        if len(left) > MOST_LEFT * width:
            winners.offer(rough_product(queries, self.library[start : start + width].T), start)
        elif len(left):
            winners.offer(rough_product(queries, self.library[start + left].T), start + left)


class Winners:
    """The best frame so far of each query, by float64 dot products of single pairs."""

    def __init__(self, queries: F32, library: F32) -> None:
        self._queries, self._library = queries, library
        self.best: F64 = np.full(len(queries), -np.inf)
        self.index: I64 = np.full(len(queries), np.iinfo(np.int64).max)
        self._slack = rounding(queries)
        self._highest: F32 = np.full(len(queries), -np.inf, np.float32)
        self._pending: list[tuple[I64, I64, F32]] = []

    @property
    def threshold(self) -> F32:
        """What an approximate product must reach to be worth an exact one."""
        floor: F32 = self.best.astype(np.float32) - self._slack
        return floor

    def offer(self, products: F32, frames: int | I64) -> None:
        """Take up approximate products (Q, n) with library ``frames`` (n,), or with those from ``frames`` on."""
        for first in range(0, len(products), _ROWS):
            block, highest = products[first : first + _ROWS], self._highest[first : first + _ROWS]
            np.maximum(highest, block.max(axis=1), out=highest)
            row, column = _where(block >= (highest - self._slack[first : first + _ROWS])[:, None])
            named = column + frames if isinstance(frames, int) else frames[column]
            self._pending.append((row + first, named, block[row, column]))
        if sum(len(rows) for rows, _, _ in self._pending) > _PENDING:
            self.settle()

    def settle(self) -> None:
        """Compare exactly what was offered and is still within rounding of the highest."""
        if self._pending:
            row, frame, product = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
            self._pending.clear()
            near = product >= (self._highest - self._slack)[row]
            self.consider(row[near], frame[near])

    def consider(self, row: I64, frame: I64) -> None:
        """Compare pairs (query ``row``, library ``frame``) exactly."""
        if not len(row):
            return
        exact = np.empty(len(row))
        left, right = np.empty((2, min(_PAIRS, len(row)), self._queries.shape[1]))
        for first in range(0, len(row), _PAIRS):
            r, f = row[first : first + _PAIRS], frame[first : first + _PAIRS]
            a, b = left[: len(r)], right[: len(r)]
            a[:], b[:] = self._queries[r], self._library[f]
            np.multiply(a, b, out=a).sum(axis=1, out=exact[first : first + len(r)])
        order = np.lexsort((frame, -exact, row))
        lead = order[np.r_[True, np.diff(row[order]) != 0]]
        r, f, exact = row[lead], frame[lead], exact[lead]
        wins = (exact > self.best[r]) | ((exact == self.best[r]) & (f < self.index[r]))
        self.best[r[wins]], self.index[r[wins]] = exact[wins], f[wins]


def not_ruled_out(bounds: F32, start: int, winners: Winners) -> I64:
    """Which of the frames from ``start`` on may win by their ``bounds`` (Q, n), once each row's highest was tried."""
    winners.consider(np.arange(len(bounds)), bounds.argmax(axis=1) + start)
    return np.flatnonzero((bounds >= winners.threshold[:, None]).any(axis=0))


def rounding(rows: F32) -> F32:
    """By how much approximate products of ``rows`` (Q, d) with unit vectors may differ from exact ones, twice over."""
    # Rounding of a float32 product grows like the root of its length; the factor leaves room for blocked sums.
    length = np.sqrt(float(rows.shape[1])) * 2.0**-21
    slack: F32 = length * np.maximum(1.0, np.sqrt(np.einsum("ij,ij->i", rows, rows)))
    return slack


def rows_of(queries: NDArray[Any], dim: int) -> F32:
    """Queries (Q, d) as float32 rows; ValueError unless d is ``dim``."""
    rows = np.ascontiguousarray(queries, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise ValueError(f"queries of shape {rows.shape} do not fit a library of {dim} dimensions")
    return rows


def _where(mask: Bools) -> tuple[I64, I64]:
    """``np.nonzero``, twenty times faster for a sparse mask because it runs over one axis."""
    row, column = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return row, column


def _basis(frames: F32) -> F32:
    """An orthonormal basis (d, p) of nearly the leading subspace: any orthonormal one keeps the bound exact."""
    sample = frames[np.unique(np.linspace(0, len(frames) - 1, 2048).astype(np.int64))]
    guess = np.random.Generator(np.random.Philox(0)).standard_normal((frames.shape[1], _PREFIX), dtype=np.float32)
    for _ in range(3):
        spanned = rough_product(sample.T, rough_product(sample, guess))
        guess = orthonormal(spanned.astype(np.float64)).astype(np.float32)
    return np.ascontiguousarray(guess)


def reduce(rows: F32, basis: F32) -> F32:
    """Coordinates (n, p + 1) of ``rows`` (n, d) in ``basis`` (d, p), and the norm of what is outside it."""
    inside = rough_product(rows, basis)
    rest = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", inside, inside)
    # Rounded up, so that the bound stays one where the rest is all rounding.
    rest = np.sqrt(np.maximum(rest, 0.0) + 4e-6 * np.maximum(1.0, np.einsum("ij,ij->i", rows, rows)))
    return np.concatenate([inside, rest[:, None]], axis=1)
