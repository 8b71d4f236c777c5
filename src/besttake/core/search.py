"""Nearest neighbours, exactly: which library frame each frame of a take is most like, and which candidate is nearest.

Scores need the highest cosine of every frame of a take (`Index`, Eq. 4), retrieval the candidate with the smallest
distance in z-scored features (`Space`, `nominate`). Both searches take two steps. A float32 product nominates: it runs
block by block, so that a memory-mapped library need not fit into memory, and keeps everything that rounding does not
rule out. What is left is compared in float64, pair by pair, with ties to the lowest row. The result therefore depends
on the vectors alone, and not on the CPU, the threads, the batch or the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import F32, F64, I64, Bools, rough_product

# Rows of takes and frames of the library in one product; rows and pairs that are compared together.
QUERIES, FRAMES, _ROWS, _PAIRS = 1024, 4096, 64, 64
_PENDING = 1 << 16
# Numbers in one block of candidates, and numbers up to which z-scored candidates are stored.
_BLOCK = _STORED = 1 << 21
# The unit roundoff of float32, its smallest number, and the longest vectors whose products stay within its range.
_UNIT, _TINIEST, _LONGEST = 2.0**-24, 2.0**-149, 1e18
_SMALLEST, _LARGEST = 1e-20, 1e30


@dataclass(frozen=True)
class Trace:
    """For each frame of a take, the highest cosine ``best``, float32 (T,), and its library ``frame``, int64 (T,).

    Where the take's embedding is not finite, ``best`` is NaN and ``frame`` is -1.
    """

    best: F32
    frame: I64


@dataclass(frozen=True)
class Index:
    """Library frames to search: ``library`` float32 (F, d), maybe memory-mapped, with rows up to ``longest``."""

    library: F32
    longest: float

    @classmethod
    def build(cls, library: NDArray[Any]) -> Index:
        """Check ``library`` (F, d); ValueError when it is empty or not finite."""
        frames = library if library.dtype == np.float32 else library.astype(np.float32)
        if frames.ndim != 2 or frames.shape[0] == 0:
            raise ValueError("a library to search needs at least one frame")
        longest = max(lengths(frames[i : i + FRAMES]).max() for i in range(0, len(frames), FRAMES))
        if not longest <= _LONGEST:  # also if it is NaN
            raise ValueError("a library to search must be finite")
        return cls(frames, float(longest))

    def nearest(self, queries: NDArray[Any]) -> Trace:
        """The highest inner product of each row of ``queries`` (Q, d) with a library frame, and that frame."""
        rows = self.rows(queries)
        best, frame = np.full(len(rows), np.nan), np.full(len(rows), -1, np.int64)
        whole = np.flatnonzero(usable(rows))
        for first in range(0, len(whole), QUERIES):
            pick = whole[first : first + QUERIES]
            winners = Winners(rows[pick], self.library, self.longest)
            for start in range(0, len(self.library), FRAMES):
                winners.offer(rough_product(rows[pick], self.library[start : start + FRAMES].T), start)
            best[pick], frame[pick] = winners.settle()
        return Trace(best.astype(np.float32), frame)

    def rows(self, queries: NDArray[Any]) -> F32:
        """Queries (Q, d) as float32 rows; ValueError unless they have the library's d."""
        rows = np.ascontiguousarray(queries, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.library.shape[1]:
            raise ValueError(
                f"queries of shape {rows.shape} do not fit a library of {self.library.shape[1]} dimensions"
            )
        return rows


class Winners:
    """The best frame so far of each query (Q, d), in a library whose rows have lengths up to ``longest``."""

    def __init__(self, queries: F32, library: F32, longest: float) -> None:
        self._queries, self._library = queries, library
        self._best: F64 = np.full(len(queries), -np.inf)
        self._frame: I64 = np.full(len(queries), np.iinfo(np.int64).max)
        self._slack = (2 * rounding(queries, longest)).astype(np.float32)
        self._highest: F32 = np.full(len(queries), -np.inf, np.float32)
        self._pending: list[tuple[I64, I64, F32]] = []

    def offer(self, products: F32, start: int) -> None:
        """Nominate frames by rough products (Q, n) with the library's frames from ``start`` on."""
        for first in range(0, len(products), _ROWS):
            block, highest = products[first : first + _ROWS], self._highest[first : first + _ROWS]
            np.maximum(highest, block.max(axis=1), out=highest)
            near = block >= (highest - self._slack[first : first + _ROWS])[:, None]
            row, column = np.divmod(np.flatnonzero(near), near.shape[1])  # np.nonzero is slow for two axes
            self._pending.append((row + first, column + start, block[row, column]))
        if sum(len(rows) for rows, _, _ in self._pending) > _PENDING:
            self.settle()

    def settle(self) -> tuple[F64, I64]:
        """The best product (Q,) of each query and its frame, by float64 products of the nominated pairs."""
        if self._pending:
            row, frame, rough = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
            self._pending.clear()
            near = rough >= (self._highest - self._slack)[row]
            row, frame = row[near], frame[near]
            exact = self._products(row, frame)
            order = np.lexsort((frame, -exact, row))
            lead = order[np.diff(row[order], prepend=-1) != 0]
            row, frame, exact = row[lead], frame[lead], exact[lead]
            wins = (exact > self._best[row]) | ((exact == self._best[row]) & (frame < self._frame[row]))
            self._best[row[wins]], self._frame[row[wins]] = exact[wins], frame[wins]
        return self._best, self._frame

    def _products(self, row: I64, frame: I64) -> F64:
        exact = np.empty(len(row))
        left, right = np.empty((2, min(_PAIRS, len(row)), self._queries.shape[1]))
        for first in range(0, len(row), _PAIRS):
            r, f = row[first : first + _PAIRS], frame[first : first + _PAIRS]
            a, b = left[: len(r)], right[: len(r)]
            a[:], b[:] = self._queries[r], self._library[f]
            np.multiply(a, b, out=a).sum(axis=1, out=exact[first : first + len(r)])
        return exact


def usable(rows: F32) -> Bools:
    """Which of ``rows`` (Q, d) are finite and short enough for finite products."""
    within: Bools = lengths(rows) <= _LONGEST
    return within


def rounding(rows: F32, longest: float) -> F64:
    """The largest error (Q,) of a float32 product of ``rows`` (Q, d) with a vector of length up to ``longest``."""
    width = rows.shape[1]
    off: F64 = (width + 8) * (_UNIT * longest * lengths(rows) + _TINIEST)
    return off


@dataclass(frozen=True)
class Rows:
    """A table (E, ...) whose rows are read on demand, by ``read(rows)``."""

    read: Callable[[I64], NDArray[Any]]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """One row by its number, or several by a slice or an array."""
        if isinstance(rows, slice):
            return self.read(np.arange(len(self))[rows])
        many = np.asarray(rows, np.int64)
        return self.read(many) if many.ndim else self.read(many[None])[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


Table = NDArray[Any] | Rows


class Space:
    """One modality of E candidates: ``values`` (E, ...) on z-scored axes, without those in which they do not differ.

    The distance between a query and a candidate is the root mean square of their float32 z-differences, summed in
    float64 in the order of the axes.
    """

    def __init__(self, values: Table) -> None:
        few = prod(values.shape) <= _STORED
        self._values: Table = np.asarray(values) if few else values
        self._mean, spread, largest = _moments(self._values)
        # Axes that vary only by rounding would otherwise be scaled up to unit variance.
        self._keep = np.flatnonzero(spread > 1e-6 * max(largest, 1e-6))
        self._scale, self.axes = spread[self._keep], len(self._keep)
        # Fortran order is the order in which `_rms` sums.
        self._stored = np.asfortranarray(self.place(self._values)) if few else None

    def place(self, values: Table) -> F32:
        """Queries or candidates (n, ...) z-scored on the axes, (n, k)."""
        flat = np.asarray(values).reshape(len(values), -1)
        inside = flat if self.axes == len(self._mean) else flat.take(self._keep, axis=1)
        centred: F64 = np.subtract(inside, self._mean[self._keep], dtype=np.float64)
        centred /= self._scale
        return centred.astype(np.float32)

    def distances(self, placed: F32, rows: I64) -> F64:
        """The distances (n,) between one ``placed`` query (k,) and the candidates ``rows`` (n,), ascending."""
        if not self.axes:
            return np.zeros(len(rows))
        if self._stored is not None:  # rows are distinct: as many as there are means all of them, without a copy
            return _rms((self._stored if len(rows) == len(self._stored) else self._stored[rows]) - placed)
        size = max(1, _BLOCK // self.axes)
        parts = [rows[first : first + size] for first in range(0, len(rows), size)]
        return np.concatenate([_rms(self.place(self._values[part]) - placed) for part in parts])

    @cached_property
    def _sizes(self) -> tuple[F64, float, float]:
        """The squared lengths (E,) of z-scored candidates, and the longest of them and of the candidates."""
        squares, longest = np.empty(len(self._values)), 0.0
        for first, flat in _blocks(self._values):
            squares[first : first + len(flat)] = lengths(self.place(flat)) ** 2
            longest = max(longest, float(lengths(flat).max()))
        return squares, float(np.sqrt(squares.max())), longest

    def add_lows(self, placed: F32, weight: float, lows: F32) -> F64:
        """Add lower bounds on ``weight`` times the distances of queries (B, k) to ``lows`` (B, E).

        Returns by how much the bounds may be off (B,). ``|z - q|^2 = |z|^2 - 2 z.q + |q|^2``, and z.q is the product of
        the raw candidate and the query divided by the scale. Nothing is added if numbers would leave float32.
        """
        squares, far, longest = self._sizes
        scaled, width = np.zeros((len(placed), len(self._mean))), len(self._mean)
        scaled[:, self._keep] = placed / self._scale
        query = lengths(placed)[:, None]
        reach, long = query + far, lengths(scaled)[:, None] * longest
        factor = weight**2 / max(1, self.axes)
        fits = max(longest, factor * reach.max() ** 2, factor * long.max()) < _LARGEST
        if factor < _SMALLEST or reach.max() > 1e12 or not fits:
            return np.zeros(len(placed))
        lost = _TINIEST * np.sqrt(width) * longest / factor  # underflow of `factors` where scales are huge
        slack = 8 * _UNIT * (width + 8) * long + 16 * _UNIT * reach**2 + lost
        factors = (-2 * factor * scaled).astype(np.float32)
        per_query = (factor * (query**2 + 2 * (scaled * self._mean).sum(axis=1)[:, None] - slack)).astype(np.float32)
        per_row = (factor * squares).astype(np.float32)
        for first, flat in _blocks(self._values, len(placed)):
            rough = rough_product(factors, flat.astype(np.float32, copy=False).T)
            rough += per_row[first : first + len(flat)]
            rough += per_query
            lows[:, first : first + len(flat)] += np.sqrt(np.fmax(rough, 0, out=rough), out=rough)
        unsure: F64 = np.sqrt(factor) * 4e-6 * reach[:, 0]
        return unsure


def nominate(low: F32, unsure: float, distances: Callable[[I64], F64], count: int) -> I64:
    """The candidates, ascending, that may be among the ``count`` nearest to a query.

    ``low`` (E,) are lower bounds on their distances, up to ``unsure`` and rounding; inf for what is no candidate.
    """
    likely = np.sort(np.argpartition(low, count - 1)[:count])
    reached = float(distances(likely).max())
    # The margins exceed the error of float32 sums and roots, and what squares lose below the smallest float32.
    return np.flatnonzero(low <= np.float32(min((reached + unsure) * (1 + 2.0**-18) + 1e-20, 3e38)))


def lengths(rows: NDArray[Any]) -> F64:
    """The Euclidean length (n,) of each of ``rows`` (n, d), in float64."""
    long: F64 = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return long


def _rms(gap: F32) -> F64:
    """The root mean square of each row (n, k) of ``gap``, which is overwritten; squares are summed one by one.

    In this memory order numpy sums several rows so; a single row, which it would sum pairwise, is therefore doubled.
    """
    apart = gap if len(gap) != 1 else np.repeat(gap, 2, axis=0)
    np.multiply(apart, apart, out=apart)
    columns = apart.T if apart.flags.f_contiguous else apart.T.astype(np.float64, order="C")
    result: F64 = np.sqrt(np.add.reduce(columns, axis=0, dtype=np.float64) / apart.shape[1])
    return result[: len(gap)]


def _blocks(values: Table, columns: int = 1) -> Iterator[tuple[int, NDArray[Any]]]:
    """The rows of ``values`` (E, ...) in blocks (n, w), each with its first row; n * ``columns`` is bounded as well."""
    size = max(1, _BLOCK // max(1, columns, prod(values.shape[1:])))
    for first in range(0, len(values), size):
        part = np.asarray(values[first : first + size])
        yield first, part.reshape(len(part), -1)


def _moments(values: Table) -> tuple[F64, F64, float]:
    """numpy's ``mean`` and ``std`` over the rows, to the last bit, and the largest absolute value, block by block.

    numpy sums rows one by one, so a block can start with the sum of the blocks before. Only a single column is summed
    pairwise.
    """
    width = prod(values.shape[1:])
    if width == 1:
        flat = np.asarray(values).reshape(-1, 1).astype(np.float64)
        return flat.mean(axis=0), flat.std(axis=0), float(np.abs(flat).max())
    total, squares, largest = np.zeros(width), np.zeros(width), 0.0
    for _, part in _blocks(values):
        largest = max(largest, float(part.max(initial=0.0)), -float(part.min(initial=0.0)))
        flat = part.astype(np.float64)
        flat[0] += total
        total = np.add.reduce(flat, axis=0)
    mean = total / len(values)
    for _, part in _blocks(values):
        flat = np.subtract(part, mean, dtype=np.float64)
        np.multiply(flat, flat, out=flat)
        flat[0] += squares
        squares = np.add.reduce(flat, axis=0)
    return mean, np.sqrt(squares / len(values)), largest
