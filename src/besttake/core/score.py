"""How close a take stays to the demonstrations: the manifold score (Eq. 4), coverage, and the kernel below both.

The kernel is exact. A float32 matrix product only nominates: every library frame whose product lies within rounding of
the best is compared again by a float64 dot product of that one pair, ties going to the lowest library frame. Scores and
winners therefore depend on the two vectors alone, never on the batch, the blocking or the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

_QUERIES = 1024
_FRAMES = 4096
_BOUNDS = 16384
_PAIRS = 1024
_PENDING = 1 << 16
_PREFIX = 96
_WORTH_A_PREFIX = 256
_PROBE = 64
_SHARE = 0.3


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
        for first in range(0, len(frames), _FRAMES):
            if not np.isfinite(frames[first : first + _FRAMES]).all():
                raise ValueError("a library to search must be finite")
        if frames.shape[1] < _WORTH_A_PREFIX or frames.shape[0] < 4 * _PREFIX:
            return cls(frames)
        basis = _basis(frames)
        reduced = np.concatenate([_reduce(frames[i : i + _FRAMES], basis) for i in range(0, len(frames), _FRAMES)])
        tight = float(np.mean(reduced[:, -1] ** 2)) < 0.25
        return cls(frames, basis, reduced) if tight else cls(frames)

    def nearest(self, queries: NDArray[Any]) -> Trace:
        """The highest inner product of each row of ``queries`` (Q, d) with a library frame, and that frame."""
        rows = _rows(queries, self.library.shape[1])
        best, frame = np.full(len(rows), np.nan), np.full(len(rows), -1, np.int64)
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        pruned = self.basis is not None and len(finite) >= _PROBE
        first, size = 0, _PROBE if pruned else _QUERIES
        while first < len(finite):
            pick = finite[first : first + size]
            winners = _Winners(rows[pick], self.library)
            if pruned:
                pruned = self._pruned(rows[pick], winners)
            else:
                self._dense(rows[pick], winners)
            winners.settle()
            best[pick], frame[pick] = winners.best, winners.index
            first, size = first + len(pick), _PROBE if pruned else _QUERIES
        return Trace(best.astype(np.float32), frame)

    def sweep(self, queries: NDArray[Any]) -> tuple[Trace, F32]:
        """`nearest`, and in the same pass ``visited`` float32 (F,): the highest product of each frame with a query."""
        rows = _rows(queries, self.library.shape[1])
        if not len(rows) or not np.isfinite(rows).all():
            return self.nearest(rows), np.full(len(self.library), np.nan, np.float32)
        frames = len(self.library)
        best, frame, visited = np.empty(len(rows)), np.empty(len(rows), np.int64), np.full(frames, -np.inf)
        for first in range(0, len(rows), _QUERIES):
            block = rows[first : first + _QUERIES]
            winners = _Winners(block, self.library)
            for start in range(0, frames, _FRAMES):
                part = self.library[start : start + _FRAMES]
                products = block @ part.T
                winners.offer(products, start)
                columns = _Winners(part, block)
                columns.offer(products.T, 0)
                columns.settle()
                seen = visited[start : start + _FRAMES]
                np.maximum(seen, columns.best, out=seen)
            winners.settle()
            best[first : first + len(block)], frame[first : first + len(block)] = winners.best, winners.index
        return Trace(best.astype(np.float32), frame), visited.astype(np.float32)

    def _dense(self, queries: F32, winners: _Winners) -> None:
        room = np.empty(len(queries) * min(_FRAMES, len(self.library)), np.float32)
        for start in range(0, len(self.library), _FRAMES):
            part = self.library[start : start + _FRAMES]
            products = room[: len(queries) * len(part)].reshape(len(queries), len(part))
            winners.offer(np.matmul(queries, part.T, out=products), start)

    def _pruned(self, queries: F32, winners: _Winners) -> bool:
        """Search by the bound; False when it left so many frames over that the plain product is the better way.

        The queries of a block are neighbours in time and leave much the same frames over, so that one product of all
        queries with all frames left over is faster than single pairs, and never dearer than the plain product.
        """
        assert self.basis is not None
        assert self.reduced is not None
        short = _reduce(queries, self.basis)
        left_over = 0
        for start in range(0, len(self.reduced), _BOUNDS):
            bounds = short @ self.reduced[start : start + _BOUNDS].T
            winners.consider(np.arange(len(queries)), bounds.argmax(axis=1) + start)
            left = np.flatnonzero((bounds >= winners.threshold[:, None]).any(axis=0))
            left_over += len(left)
            if len(left) > _SHARE * bounds.shape[1]:
                winners.offer(queries @ self.library[start : start + _BOUNDS].T, start)
            elif len(left):
                winners.offer(queries @ self.library[start + left].T, start + left)
        return left_over <= _SHARE * len(self.library)


def nearest(queries: NDArray[Any], library: NDArray[Any]) -> Trace:
    """Search once: `Index.build` then `Index.nearest`. ``queries`` (Q, d), ``library`` (F, d), rows L2-normalised."""
    return Index.build(library).nearest(queries)


def manifold(trace: Trace, window: Bools | None = None) -> float:
    """Eq. 4: the mean of a take's best cosines over the frames of ``window`` (T,), all frames by default.

    NaN, an invalid score, for a take without frames in the window or with an embedding that is not finite.
    """
    best = trace.best if window is None else trace.best[window]
    return float(np.mean(best, dtype=np.float64)) if len(best) else float("nan")


def coverage(trace: Trace, visited: F32, demo: I64, step: NDArray[Any]) -> float:
    """`manifold` plus the best demonstration's visited share, later frames weighing more.

    ``s = mean_t max_f S[t, f] + max_j (sum_l l * max_t S[t, j, l]) / sum_l l``, l = 1..L_j counting the frames of demo
    j in order of ``step``. ``trace`` and ``visited`` (F,) come from one `Index.sweep` over the frames of the window;
    ``demo`` and ``step`` (F,) say whose frames the library's are. Compare takes on windows of equal length only.
    """
    order = np.lexsort((step, demo))
    owner = demo[order]
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    place = np.arange(len(owner)) - np.repeat(starts, np.diff(np.r_[starts, len(owner)])) + 1.0
    share = np.add.reduceat(place * visited[order].astype(np.float64), starts) / np.add.reduceat(place, starts)
    return manifold(trace) + float(share.max())


def episode_window(steps: NDArray[Any], end: int) -> Bools:
    """The frames (T,) until the episode ended: those seen at ``steps`` up to and with ``end``, the steps executed."""
    return np.asarray(steps) <= end


def full_window(steps: NDArray[Any], horizon: int) -> Bools:
    """The frames (T,) of the whole fixed horizon, whether or not the task was done before."""
    return np.asarray(steps) <= horizon


def common_window(steps: NDArray[Any], ends: Sequence[int]) -> Bools:
    """The frames (T,) until the first of the takes being compared ended; ``ends`` are the takes' steps executed."""
    return np.asarray(steps) <= min(ends)


class _Winners:
    """The best frame so far of each query, by float64 dot products of single pairs."""

    def __init__(self, queries: F32, library: F32) -> None:
        self._queries, self._library = queries, library
        self.best: F64 = np.full(len(queries), -np.inf)
        self.index: I64 = np.full(len(queries), np.iinfo(np.int64).max)
        # Rounding of a float32 product grows like the root of its length; the factor leaves room for blocked sums.
        length = np.sqrt(float(queries.shape[1])) * 2.0**-21
        self._slack: F32 = length * np.maximum(1.0, np.sqrt(np.einsum("ij,ij->i", queries, queries)))
        self._highest: F32 = np.full(len(queries), -np.inf, np.float32)
        self._pending: list[tuple[I64, I64, F32]] = []

    @property
    def threshold(self) -> F32:
        """What an approximate product must reach to be worth an exact one."""
        floor: F32 = self.best.astype(np.float32) - self._slack
        return floor

    def offer(self, products: F32, frames: int | I64) -> None:
        """Take up approximate products (Q, n) with library ``frames`` (n,), or with those from ``frames`` on."""
        self._highest = np.maximum(self._highest, products.max(axis=1))
        row, column = _where(products >= (self._highest - self._slack)[:, None])
        named = column + frames if isinstance(frames, int) else frames[column]
        self._pending.append((row, named, products[row, column]))
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
        for first in range(0, len(row), _PAIRS):
            r, f = row[first : first + _PAIRS], frame[first : first + _PAIRS]
            exact = (self._queries[r].astype(np.float64) * self._library[f]).sum(axis=1)
            order = np.lexsort((f, -exact, r))
            lead = order[np.r_[True, r[order][1:] != r[order][:-1]]]
            r, f, exact = r[lead], f[lead], exact[lead]
            wins = (exact > self.best[r]) | ((exact == self.best[r]) & (f < self.index[r]))
            self.best[r[wins]], self.index[r[wins]] = exact[wins], f[wins]


def _rows(queries: NDArray[Any], dim: int) -> F32:
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
        basis = _orthonormal(_orthonormal((sample.T @ (sample @ guess)).astype(np.float64)))
        guess = basis.astype(np.float32)
    return np.ascontiguousarray(guess)


def _orthonormal(block: F64) -> F64:
    """Orthonormal columns that span those of ``block``; columns that add nothing become zero.

    By products and a small eigenproblem, because LAPACK's QR takes many times as long on a busy machine.
    """
    values, turn = np.linalg.eigh(block.T @ block)
    scale = np.where(values > 1e-10 * values[-1], 1 / np.sqrt(np.maximum(values, 1e-300)), 0.0)
    basis: F64 = block @ (turn * scale)
    return basis


def _reduce(rows: F32, basis: F32) -> F32:
    inside = rows @ basis
    rest = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", inside, inside)
    # Rounded up, so that the bound stays one where the rest is all rounding.
    rest = np.sqrt(np.maximum(rest, 0.0) + 4e-6 * np.maximum(1.0, np.einsum("ij,ij->i", rows, rows)))
    return np.concatenate([inside, rest[:, None]], axis=1)
