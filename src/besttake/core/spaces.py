"""One modality of retrieval on z-scored axes: its exact distances, and bounds that rule most candidates out.

What decides is always `Space.distances`: the root mean square of float32 z-differences, summed in float64, of one query
and one candidate, whatever is compared beside them. The bounds only say which candidates need not be compared, and
``core/README.md`` says why they cannot be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import orthonormal, rough_product
from besttake.core.search import F32, F64, I64

# Numbers of one block (16 MB in float64), and up to how many all z-scored rows are kept instead of made when needed.
_BLOCK = _STORED = 1 << 21
# Numbers of the pairs that are compared together: few enough for a core's own cache.
_PAIRS = 1 << 16
_SAMPLE = 2048
# Axes that a bound may have, and the variance that may lie outside of them. A modality of up to `_FEW` axes may use
# all of them, so that few must be nearly as good; for a wider one each axis costs more than a few pairs to compare.
_AXES, _FEW = (32, 64, 96, 128, 160, 192, 256), 384
_OUTSIDE_FEW, _OUTSIDE = 0.05, 0.2
# The unit of float32, its smallest number, and what bounds allow for axes that are orthonormal within `_ORTHONORMAL`.
_UNIT, _TINIEST, _ORTHONORMAL, _PROJECTED = 2.0**-24, 2.0**-149, 1e-12, 4e-6
_SMALLEST, _LARGEST = 1e-20, 1e30
# Up to so many numbers an embedding is decorrelated in a fixed order, which takes half a second.
_NARROW = 128


@dataclass(frozen=True)
class Rows:
    """A table (E, ...) whose rows are read when they are asked for, by ``read(rows)``."""

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


@dataclass(frozen=True)
class Prepared:
    """What is costly about a modality: the same for every query.

    ``mean`` (n,), ``keep`` (k,) the axes in which candidates differ, ``scale`` (k,) their deviations; ``size`` the
    largest norms of a z-scored row and of a row. ``basis`` (k, p) orthonormal, ``short`` (E, p + 3) the coordinates c
    of each z-scored row in it and the norm r of the rest, as [-2c, -2r, c c + r r, 1]; p = 0 where that is no bound
    worth having. ``norms`` (E,) are squared norms of z-scored rows.
    """

    mean: F64
    keep: I64
    scale: F64
    size: F64
    basis: F64
    short: F32
    norms: F32

    @classmethod
    def of(cls, values: Table, bounds: bool = True) -> Prepared:
        """Prepare ``values`` (E, ...), in blocks; without ``bounds`` for so few that all are compared."""
        mean, spread, largest = _moments(values)
        # What varies by rounding only would otherwise be blown up to unit variance.
        keep = np.flatnonzero(spread > 1e-6 * max(largest, 1e-6))
        plain = cls(mean, keep, spread[keep], np.zeros(2), np.zeros((len(keep), 0)), *np.zeros((2, 0, 0), np.float32))
        if not bounds or not len(keep):
            return plain
        basis = _basis(plain.place(_flat(values, _spread_out(len(values)))))
        width = basis.shape[1] + 3 if basis.shape[1] else 0
        short, norms = np.empty((len(values), width), np.float32), np.empty(len(values), np.float32)
        size = np.zeros(2)
        for first, flat in _blocks(values):
            rows = plain.place(flat).astype(np.float64)
            own = _squares(rows)[:, 0]
            norms[first : first + len(rows)] = own
            size = np.maximum(size, np.sqrt([own.max(), float(_squares(flat).max())]))
            if width:
                inside = _coordinates(rows, basis)
                parts = -2 * inside, _squares(inside), np.ones((len(rows), 1))
                short[first : first + len(rows)] = np.concatenate(parts, axis=1)
        return cls(mean, keep, plain.scale, size, basis, short, norms)

    @staticmethod
    def fit(values: Table, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Whether ``arrays`` can be what was prepared of ``values``: names, types, shapes, and finite numbers."""
        if set(arrays) != {field.name for field in fields(Prepared)}:
            return False
        own, width, count = Prepared(**arrays), prod(values.shape[1:]), len(values)
        k, p = len(own.keep), own.basis.shape[-1]
        shapes = {"mean": (width,), "keep": (k,), "scale": (k,), "size": (2,), "basis": (k, p)}
        long = (
            {"short": (count, p + 3 if p else 0), "norms": (count,)} if k else dict.fromkeys(("short", "norms"), (0, 0))
        )
        if any(arrays[name].shape != shape for name, shape in {**shapes, **long}.items()):
            return False
        wide = all(array.dtype == np.float64 for array in (own.mean, own.scale, own.size, own.basis))
        if not wide or own.keep.dtype != np.int64 or {own.short.dtype, own.norms.dtype} != {np.dtype(np.float32)}:
            return False
        inside = bool((np.diff(own.keep, prepend=-1) > 0).all() and (own.keep < width).all() and (own.scale > 0).all())
        return inside and all(bool(np.isfinite(array).all()) for array in arrays.values())

    def place(self, flat: NDArray[Any]) -> F32:
        """Rows (n, .) on the z-scored axes."""
        inside = flat if len(self.keep) == len(self.mean) else flat.take(self.keep, axis=1)
        centred: F64 = np.subtract(inside, self.mean[self.keep], dtype=np.float64)
        centred /= self.scale
        return centred.astype(np.float32)


class Space:
    """A modality of E candidates: ``values`` (E, ...) on z-scored axes, constant ones left out."""

    def __init__(self, values: Table, prepared: Prepared) -> None:
        self._values, self._prepared = values, prepared
        self.axes = len(prepared.keep)

    @cached_property
    def _stored(self) -> F32 | None:
        """All z-scored rows, where they are few, in the order of memory in which `_rms` adds them up."""
        few = len(self._values) * self.axes <= _STORED
        return np.asfortranarray(self._prepared.place(_read(self._values, slice(None)))) if few else None

    def _rows(self, rows: I64) -> F32:
        return self._prepared.place(_read(self._values, rows)) if self._stored is None else self._stored[rows]

    def place(self, queries: NDArray[Any]) -> F32:
        """Queries (B, ...) on the axes (B, k)."""
        return self._prepared.place(np.asarray(queries, np.float64).reshape(len(queries), -1))

    def distances(self, placed: F32, rows: I64) -> F64:
        """Root mean square z-difference of one query (k,), ``placed``, and the candidates ``rows``, ascending."""
        if not self.axes:
            return np.zeros(len(rows))
        size = len(rows) if self._stored is not None else max(1, _BLOCK // self.axes)
        # Rows are in order and distinct, so as many as there are means all of them: no copy.
        if self._stored is not None and len(rows) == len(self._stored):
            return _rms(self._stored - placed)
        parts = [_rms(self._rows(rows[i : i + size]) - placed) for i in range(0, len(rows), size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def pairs(self, placed: F32, query: I64, rows: I64) -> F64:
        """`distances` of pairs: of the queries (B, k) at ``query`` (n,) and the candidates ``rows`` (n,)."""
        result = np.zeros(len(rows))
        size = max(1, _PAIRS // max(1, self.axes))
        for i in range(0, len(rows) if self.axes else 0, size):
            known = self._rows(rows[i : i + size])
            result[i : i + size] = _rms(known - placed[query[i : i + size]])
        return result

    def bound(self, placed: F32, weight: float, whole: bool = False) -> Bound | None:
        """Bounds of ``weight`` times the distances of queries (B, k); None where numbers would leave float32.

        They are those of the prepared axes, or, tighter but of the width of a row, of the ``whole`` row.
        """
        ours, queries = self._prepared, placed.astype(np.float64)
        squares = _squares(queries)
        reach = np.sqrt(squares) + ours.size[0]
        factor, away = weight**2 / max(1, self.axes), float(reach.max(initial=0.0))
        if factor < _SMALLEST or not (away < 1e12 and factor * away**2 < _LARGEST):
            return None
        unsure = np.sqrt(factor) * _PROJECTED * reach[:, 0]
        axes = ours.basis.shape[1]
        if axes and not (whole and axes < self.axes):
            inside = _coordinates(queries, ours.basis)
            slack = 4 * _UNIT * (axes + 8) * reach**2
            parts = inside, np.ones((len(queries), 1)), _squares(inside) - slack
            return Bound(ours.short, (factor * np.concatenate(parts, axis=1)).astype(np.float32), None, None, unsure)
        scaled = np.zeros((len(queries), len(ours.mean)))
        scaled[:, ours.keep] = queries / ours.scale
        long = np.sqrt(_squares(scaled)) * ours.size[1]
        if not (ours.size[1] < _LARGEST and factor * float(long.max(initial=0.0)) < _LARGEST):
            return None
        lost = _TINIEST * np.sqrt(len(ours.mean)) * ours.size[1] / factor  # of `factors`, where scales are huge
        slack = 8 * _UNIT * (len(ours.mean) + 8) * long + 16 * _UNIT * reach**2 + lost
        per_query = factor * (squares + 2 * rough_product(scaled, ours.mean)[:, None] - slack)
        factors = (-2 * factor * scaled).astype(np.float32)
        per_row = (factor * ours.norms).astype(np.float32)
        return Bound(self._values, factors, per_query.astype(np.float32), per_row, unsure)


@dataclass(frozen=True)
class Bound:
    """Lower bounds of weighted distances, by one product per block: ``unsure`` (B,) below which they may be wrong."""

    _table: Table
    _queries: F32
    _per_query: F32 | None
    _per_row: F32 | None
    unsure: F64

    @property
    def width(self) -> int:
        """How many numbers of a candidate are read."""
        return int(self._queries.shape[1])

    def add(self, first: int, lows: F32) -> None:
        """Add the bounds of the candidates from ``first`` on to ``lows`` (B, n)."""
        last = first + lows.shape[1]
        rows = np.asarray(_read(self._table, slice(first, last)), np.float32)
        squares = rough_product(self._queries, rows.T)
        if self._per_query is not None and self._per_row is not None:
            squares += self._per_row[first:last]
            squares += self._per_query
        lows += _root(squares)

    def pairs(self, query: I64, rows: I64) -> F32:
        """The bounds of pairs: of the queries at ``query`` (n,) and the candidates ``rows`` (n,)."""
        squares = np.empty(len(rows), np.float32)
        size = max(1, _PAIRS // self._queries.shape[1])
        for i in range(0, len(rows), size):
            known = np.asarray(_read(self._table, rows[i : i + size]), np.float32)
            np.einsum("ij,ij->i", self._queries[query[i : i + size]], known, out=squares[i : i + size])
        if self._per_query is not None and self._per_row is not None:
            squares += self._per_row[rows]
            squares += self._per_query[query, 0]
        return _root(squares)


def _rms(gap: F32) -> F64:
    """The root mean square of each row (n, k) of ``gap``, which is overwritten; squares are added one after the other.

    In this order of memory numpy does so for several rows; a single one it would add up in pairs.
    """
    apart = gap if len(gap) != 1 else np.repeat(gap, 2, axis=0)
    np.multiply(apart, apart, out=apart)
    columns = apart.T if apart.flags.f_contiguous else apart.T.astype(np.float64, order="C")
    result: F64 = np.sqrt(np.add.reduce(columns, axis=0, dtype=np.float64) / apart.shape[1])
    return result[: len(gap)]


def _root(squares: F32) -> F32:
    """The root of each of ``squares`` (..., n), in place; 0, a bound that is always true, where there is none."""
    # With a row of zeros fmax takes a third of the time that it takes with one zero.
    np.fmax(squares, np.zeros(squares.shape[-1], np.float32), out=squares)
    return np.sqrt(squares, out=squares)


def _read(values: Table, rows: Any) -> NDArray[Any]:
    part = np.asarray(values[rows])
    return part.reshape(len(part), -1)


def _flat(values: Table, rows: Any) -> F64:
    flat: F64 = _read(values, rows).astype(np.float64)
    return flat


def _blocks(values: Table) -> Iterator[tuple[int, F64]]:
    size = max(1, _BLOCK // max(1, prod(values.shape[1:])))
    for first in range(0, len(values), size):
        yield first, _flat(values, slice(first, first + size))


def _spread_out(count: int) -> I64:
    return np.unique(np.linspace(0, count - 1, _SAMPLE).astype(np.int64))


def _moments(values: Table) -> tuple[F64, F64, float]:
    """``mean`` and ``std`` over the rows as numpy has them of the whole array, to the last bit, and the largest size.

    Numpy adds up rows one after the other, so that a sum can be begun with that of the rows before; only those of a
    single column are added in pairs.
    """
    width = prod(values.shape[1:])
    if width == 1:
        flat = _flat(values, slice(None))
        return flat.mean(axis=0), flat.std(axis=0), float(np.abs(flat).max())
    total, squares, largest = np.zeros(width), np.zeros(width), 0.0
    for _, flat in _blocks(values):
        largest = max(largest, float(flat.max(initial=0.0)), -float(flat.min(initial=0.0)))
        flat[0] += total
        total = np.add.reduce(flat, axis=0)
    mean = total / len(values)
    for _, flat in _blocks(values):
        np.subtract(flat, mean, out=flat)
        np.multiply(flat, flat, out=flat)
        flat[0] += squares
        squares = np.add.reduce(flat, axis=0)
    return mean, np.sqrt(squares / len(values)), largest


def _basis(sample: F32) -> F64:
    """Orthonormal axes (k, p) near which the z-scored ``sample`` (n, k) lies; p = 0 where it lies near none."""
    count, width = sample.shape
    rows = sample.astype(np.float64)
    most = [p for p in _AXES if 2 * p <= width and 4 * p <= count]
    if most:
        guess = np.random.Generator(np.random.Philox(0)).standard_normal((width, most[-1]))
        for _ in range(3):
            guess = orthonormal(rough_product(rows.T, rough_product(rows, guess)))
        inside = rough_product(rows, guess)
        spread = rough_product(inside.T, inside)
        variance, turn = np.linalg.eigh(spread)  # any order: bounds hold on any orthonormal axes
        outside = 1 - np.cumsum(variance[::-1]) / np.einsum("ij,ij->", rows, rows)
        fits = [p for p in most if outside[p - 1] <= (_OUTSIDE_FEW if width <= _FEW else _OUTSIDE)]
        basis = rough_product(guess, turn[:, ::-1][:, : fits[0] if fits else 0])
        basis = basis[:, _squares(basis.T)[:, 0] > 0.5]  # zero where the rows span fewer axes
        error = np.abs(rough_product(basis.T, basis) - np.eye(basis.shape[1])).sum(axis=0).max(initial=0.0)
        if fits and error <= _ORTHONORMAL:
            return np.ascontiguousarray(basis)
    return np.eye(width) if width <= _FEW else np.zeros((width, 0))


def _coordinates(rows: F64, basis: F64) -> F64:
    """Of z-scored ``rows`` (n, k) their coordinates (n, p + 1) in ``basis`` and the norm of the rest, as in float32."""
    whole = basis.shape[0] == basis.shape[1]
    inside = rows if whole else rough_product(rows, basis)
    rest = np.sqrt(np.maximum(_squares(rows) - _squares(inside), 0.0))
    return np.concatenate([inside, rest], axis=1).astype(np.float32).astype(np.float64)


def _squares(rows: F64) -> F64:
    """The squared norm (n, 1) of each of ``rows`` (n, .)."""
    squares: F64 = np.einsum("ij,ij->i", rows, rows)[:, None]
    return squares
