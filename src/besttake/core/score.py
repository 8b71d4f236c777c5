"""How close a take stays to the demonstrations: the manifold score (Eq. 4), coverage, and the kernel below both.

The kernel is exact. A float32 matrix product only nominates: every library frame whose product lies within rounding of
the best is compared again by a float64 dot product of that one pair, ties going to the lowest library frame. Scores and
winners therefore depend on the two vectors alone, never on the batch, the blocking or the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
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
_PAIRS = 64
_ROWS = 64
_PENDING = 1 << 16
_PREFIX = 96
_WORTH_A_PREFIX = 256
_PROBE = 64
_BOUNDED = 4 * _PROBE
_SHARE = 0.3


@dataclass(frozen=True)
class Trace:
    """Per frame of a take: ``best`` float32 (T,), the highest cosine, and ``frame`` int64 (T,), whose it is.

    Where the take's embedding is not finite, ``best`` is NaN and ``frame`` is -1.
    """

    best: F32
    frame: I64


@dataclass(frozen=True)
class Demos:
    """Whose the F frames of a library are.

    ``order`` (F,) sorts them by demonstration and step, ``place`` (F,) counts them so within each, l = 1..L_j,
    ``starts`` (J,) says where each begins, ``total`` (J,) is the sum of its places. ``owner`` and ``weight`` (F,) are
    per frame of the library: its demonstration 0..J-1, and its place over the total.
    """

    order: I64
    place: F64
    starts: I64
    total: F64
    owner: I64
    weight: F64

    @classmethod
    def of(cls, demo: I64, step: NDArray[Any]) -> Demos:
        """From the demonstration and the step (F,) of each frame."""
        order = np.lexsort((step, demo))
        starts = np.flatnonzero(np.r_[True, np.diff(demo[order]) != 0])
        lengths = np.diff(np.r_[starts, len(order)])
        place: F64 = (np.arange(len(order)) - np.repeat(starts, lengths) + 1).astype(np.float64)
        total = np.add.reduceat(place, starts)
        owner, weight = np.empty(len(order), np.int64), np.empty(len(order))
        owner[order] = np.repeat(np.arange(len(starts)), lengths)
        weight[order] = place / np.repeat(total, lengths)
        return cls(order, place, starts, total, owner, weight)

    def places(self, picked: I64) -> tuple[I64, I64]:
        """Where in ``order`` the frames of the demonstrations ``picked`` are, and where each begins among them."""
        ends = np.r_[self.starts, len(self.order)]
        parts = [np.arange(ends[j], ends[j + 1]) for j in picked]
        return np.concatenate(parts), np.cumsum([0, *map(len, parts[:-1])])

    def add(self, visited: F32, first: int, shares: F64) -> None:
        """Add to ``shares`` (S, J) what ``visited`` (S, n) of the library's frames from ``first`` on is worth."""
        owner = self.owner[first : first + visited.shape[1]]
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(owner[order]) != 0])
        worth = visited[:, order] * self.weight[first + order]
        shares[:, owner[order][starts]] += np.add.reduceat(worth, starts, axis=1)


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

    def cover(
        self, takes: Sequence[NDArray[Any]], counts: Sequence[Sequence[int]], demos: Demos
    ) -> list[tuple[Trace, F64]]:
        """`nearest` of every take (T, d), and the share of the best demonstration that its first frames visited.

        ``shares[w] = max_j (sum_l l * max_{t < counts[w]} S[t, j, l]) / sum_l l`` for each take's own ``counts`` (W,),
        NaN where there are no such frames or one is not finite. One product serves rows and columns and only names the
        demonstrations that may be the best; only these are compared exactly. Where the bound of `Index` pays, it names
        them. Takes are searched together, and no take's result depends on the others.
        """
        rows = [_rows(take, self.library.shape[1]) for take in takes]
        sizes = [len(take) for take in rows]
        found: list[tuple[Trace, F64]] = []
        pruned = self.basis is not None and sum(sizes) >= _PROBE
        while (first := len(found)) < len(rows):
            swept = None
            if pruned:
                last = _batch(sizes, first, _QUERIES if first else _PROBE)
                batch = _Batch(rows[first:last], counts[first:last])
                swept = self._bounded(batch, demos)
                pruned = swept is not None
            if swept is None:
                last = _batch(sizes, first, _QUERIES)
                batch = _Batch(rows[first:last], counts[first:last])
                swept = self._swept(batch, demos)
            trace, upper = swept
            found += batch.results(trace, [_best(*one, demos, self.library) for one in batch.prefixes(upper)])
        return found

    def _swept(self, batch: _Batch, demos: Demos) -> tuple[Trace, F64]:
        """The trace of the batch's rows, and the share of each demonstration (S, J) at most, by one product."""
        winners = [_Winners(rows, self.library) for rows in batch.blocks(_QUERIES)]

        def offer(first: int, start: int, products: F32) -> bool:
            winners[first // _QUERIES].offer(products, start)
            return True

        shares = batch.shares(batch.rows, self.library, demos, (_QUERIES, _FRAMES), offer)
        assert shares is not None
        return _settled(winners), shares + batch.slack

    def _bounded(self, batch: _Batch, demos: Demos) -> tuple[Trace, F64] | None:
        """`_swept` by the bound, and by products where it leaves frames or demonstrations over.

        None when it leaves so many over that the plain product is the better way.
        """
        assert self.basis is not None
        assert self.reduced is not None
        winners = [_Winners(rows, self.library) for rows in batch.blocks(_PROBE)]
        seen = left_over = 0

        def rule_out(first: int, start: int, bounds: F32) -> bool:
            nonlocal seen, left_over
            for i in range(0, len(bounds), _PROBE):
                own = winners[(first + i) // _PROBE]
                left = _left(bounds[i : i + _PROBE], start, own)
                seen, left_over = seen + bounds.shape[1], left_over + len(left)
                if left_over > _SHARE * seen:
                    return False
                self._compare(batch.rows[first + i : first + i + _PROBE], left, start, own)
            return True

        short = _reduce(batch.rows, self.basis)
        upper = batch.shares(short, self.reduced, demos, (_BOUNDED, _BOUNDS), rule_out)
        if upper is None:
            return None
        upper += batch.slack
        enough = int(_SHARE * len(demos.starts))
        for rows, ends, most in batch.prefixes(upper):
            visits = _Visits(rows, ends, demos, self.library)
            for w, at_most in enumerate(most):
                if _climb(at_most, partial(visits.about, w), batch.slack, enough) is None:
                    return None
        return _settled(winners), upper

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
            left = _left(bounds, start, winners)
            left_over += len(left)
            self._compare(queries, left, start, winners)
        return left_over <= _SHARE * len(self.library)

    def _compare(self, queries: F32, left: I64, start: int, winners: _Winners) -> None:
        """Offer the products with the frames ``left`` over of those from ``start`` on."""
        width = min(_BOUNDS, len(self.library) - start)
        if len(left) > _SHARE * width:
            winners.offer(queries @ self.library[start : start + width].T, start)
        elif len(left):
            winners.offer(queries @ self.library[start + left].T, start + left)


def nearest(queries: NDArray[Any], library: NDArray[Any]) -> Trace:
    """Search once: `Index.build` then `Index.nearest`. ``queries`` (Q, d), ``library`` (F, d), rows L2-normalised."""
    return Index.build(library).nearest(queries)


def manifold(trace: Trace, window: Bools | None = None) -> float:
    """Eq. 4: the mean of a take's best cosines over the frames of ``window`` (T,), all frames by default.

    NaN, an invalid score, for a take without frames in the window or with an embedding that is not finite.
    """
    best = trace.best if window is None else trace.best[window]
    return float(np.mean(best, dtype=np.float64)) if len(best) else float("nan")


def coverage(trace: Trace, share: float, window: Bools | None = None) -> float:
    """`manifold` plus the best demonstration's visited share, later frames weighing more.

    ``s = mean_t max_f S[t, f] + max_j (sum_l l * max_t S[t, j, l]) / sum_l l``, l = 1..L_j counting the frames of demo
    j in order. The second term is the ``share`` of `Index.cover` for the frames of ``window``. Compare takes on windows
    of equal length only.
    """
    return manifold(trace, window) + share


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
        self._slack = _slack(queries)
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


class _Batch:
    """Takes that are searched together: ``rows`` (Q, d), zero where not finite.

    A take's rows fall into segments that end at its distinct counts, S in all. A segment stands for all rows of its
    take up to its end; rows from the first on that is not finite are in none.
    """

    def __init__(self, takes: Sequence[F32], counts: Sequence[Sequence[int]]) -> None:
        self.rows: F32 = np.concatenate(takes)
        self._counts = counts
        broken: Bools = np.logical_not(np.isfinite(self.rows).all(axis=1))
        self._broken = np.flatnonzero(broken)
        self.rows[self._broken] = 0
        self.slack = float(_slack(self.rows).max(initial=0.0))
        self._takes: list[tuple[int, int, list[int]]] = []
        last = 0
        for take, wanted in zip(takes, counts, strict=True):
            first, last = last, last + len(take)
            whole = int(np.argmax(np.r_[broken[first:last], True]))
            self._takes.append((first, last, sorted({count for count in wanted if 0 < count <= whole})))

    def blocks(self, size: int) -> list[F32]:
        """The rows in blocks of ``size``."""
        return [self.rows[first : first + size] for first in range(0, len(self.rows), size)]

    def shares(
        self, rows: F32, frames: F32, demos: Demos, size: tuple[int, int], offer: Callable[[int, int, F32], bool]
    ) -> F64 | None:
        """The visited share of each demonstration (S, J), by the products of ``rows`` (Q, p) and ``frames`` (F, p).

        The products come in blocks of at most ``size``. ``offer`` is shown each block, with its first row and its
        first frame; when it returns False, so that there is no use in going on, the answer is None.
        """
        spans = [(first + a, first + b) for first, _, ends in self._takes for a, b in pairwise((0, *ends))]
        goes_on = np.array([a > 0 for _, _, ends in self._takes for a in (0, *ends)[:-1]], bool)
        shares = np.zeros((len(spans), len(demos.starts)))
        high, wide = size
        room = np.empty(min(high, len(rows)) * min(wide, len(frames)), np.float32)
        for start in range(0, len(frames), wide):
            part = frames[start : start + wide]
            visited = np.full((len(spans), len(part)), -np.inf, np.float32)
            for first in range(0, len(rows), high):
                block = rows[first : first + high]
                products = np.matmul(block, part.T, out=room[: len(block) * len(part)].reshape(len(block), len(part)))
                if not offer(first, start, products):
                    return None
                for seen, (begin, end) in zip(visited, spans, strict=True):
                    own = products[max(begin - first, 0) : max(end - first, 0)]
                    if len(own):
                        np.maximum(seen, own.max(axis=0), out=seen)
            for s in np.flatnonzero(goes_on):
                np.maximum(visited[s], visited[s - 1], out=visited[s])
            demos.add(visited, start, shares)
        return shares

    def prefixes(self, upper: F64) -> Iterator[tuple[F32, list[int], F64]]:
        """Per take its rows, where its segments end (W,), and their rows (W, J) of ``upper`` (S, J)."""
        done = 0
        for first, last, ends in self._takes:
            yield self.rows[first:last], ends, upper[done : done + len(ends)]
            done += len(ends)

    def results(self, trace: Trace, shares: Sequence[Sequence[float]]) -> list[tuple[Trace, F64]]:
        """Per take its part of ``trace``, and the shares for its counts from those of its segments (W,)."""
        trace.best[self._broken], trace.frame[self._broken] = np.nan, -1
        found = []
        for (first, last, ends), wanted, known in zip(self._takes, self._counts, shares, strict=True):
            share = dict(zip(ends, known, strict=True))
            part = Trace(trace.best[first:last], trace.frame[first:last])
            found.append((part, np.array([share.get(count, np.nan) for count in wanted])))
        return found


class _Visits:
    """What shares of demonstrations a take visits with its first ``ends`` (W,) rows; the ends ascend."""

    def __init__(self, rows: F32, ends: Sequence[int], demos: Demos, library: F32) -> None:
        self._rows, self._ends, self._demos, self._library = rows, ends, demos, library
        self._about = np.full((len(ends), len(demos.starts)), np.nan)
        self._watched: _Watched | None = None

    def about(self, w: int, picked: I64) -> F64:
        """The shares of the demonstrations ``picked`` (n,) until the end ``w``, within rounding."""
        new = picked[np.isnan(self._about[w, picked])]
        if len(new):
            self._about[:, new] = self._measured(new)
        shares: F64 = self._about[w, picked]
        return shares

    def exactly(self, w: int, picked: I64) -> F64:
        """The shares of the demonstrations ``picked`` (n,) until the end ``w``; ends may not go back."""
        place, starts = self._demos.places(picked)
        visited = np.empty(len(place), np.float32)
        for first in range(0, len(place), _FRAMES):
            frames = self._demos.order[place[first : first + _FRAMES]]
            if self._watched is None or not np.array_equal(self._watched.frames, frames):
                self._watched = _Watched(frames, self._library, self._rows)
            visited[first : first + _FRAMES] = self._watched.until(self._ends[w])
        return np.add.reduceat(self._demos.place[place] * visited, starts) / self._demos.total[picked]

    def _measured(self, picked: I64) -> F64:
        place, starts = self._demos.places(picked)
        visited = np.full((len(self._ends), len(place)), -np.inf, np.float32)
        for first in range(0, len(place), _FRAMES):
            part = self._library[self._demos.order[place[first : first + _FRAMES]]]
            for row in range(0, self._ends[-1], _QUERIES):
                products = part @ self._rows[row : min(row + _QUERIES, self._ends[-1])].T
                for seen, (begin, end) in zip(visited[:, first:], pairwise((0, *self._ends)), strict=True):
                    own = products[:, max(begin - row, 0) : max(end - row, 0)]
                    if own.shape[1]:
                        seen[: len(part)] = np.maximum(seen[: len(part)], own.max(axis=1))
        np.maximum.accumulate(visited, axis=0, out=visited)
        shares: F64 = np.add.reduceat(visited * self._demos.place[place], starts, axis=1) / self._demos.total[picked]
        return shares


class _Watched:
    """The highest product of library ``frames`` (n,) with the first rows of a take, ever more of them."""

    def __init__(self, frames: I64, library: F32, rows: F32) -> None:
        self.frames, self._part, self._rows, self._seen = frames, library[frames], rows, 0
        self._winners = _Winners(self._part, rows)

    def until(self, end: int) -> F64:
        """The highest (n,) with the rows before ``end``, exactly."""
        for row in range(self._seen, end, _QUERIES):
            self._winners.offer(self._part @ self._rows[row : min(row + _QUERIES, end)].T, row)
        self._winners.settle()
        self._seen = end
        return self._winners.best


def _best(rows: F32, ends: Sequence[int], upper: F64, demos: Demos, library: F32) -> list[float]:
    """The highest share that the first ``ends`` (W,) rows visit, exactly, where shares are at most ``upper`` (W, J)."""
    visits = _Visits(rows, ends, demos, library)
    found = [_climb(most, partial(visits.exactly, w), 0.0, len(most)) for w, most in enumerate(upper)]
    return [share for share in found if share is not None]


def _settled(winners: Sequence[_Winners]) -> Trace:
    """The trace of all rows of consecutive ``winners``."""
    for block in winners:
        block.settle()
    best = np.concatenate([np.zeros(0), *(block.best for block in winners)])
    return Trace(best.astype(np.float32), np.concatenate([np.zeros(0, np.int64), *(block.index for block in winners)]))


def _left(bounds: F32, start: int, winners: _Winners) -> I64:
    """Which of the frames from ``start`` on may win by their ``bounds`` (Q, n), once each row's highest was tried."""
    winners.consider(np.arange(len(bounds)), bounds.argmax(axis=1) + start)
    return np.flatnonzero((bounds >= winners.threshold[:, None]).any(axis=0))


def _batch(sizes: Sequence[int], first: int, most: int) -> int:
    """Where the takes from ``first`` on that are searched together end: `_PROBE` rows at least, more up to ``most``."""
    total, last = sizes[first], first + 1
    while last < len(sizes) and (total < _PROBE or total + sizes[last] <= most):
        total, last = total + sizes[last], last + 1
    return last


def _climb(upper: F64, measure: Callable[[I64], F64], slack: float, most: int) -> float | None:
    """What the best share is at least, where shares are at most ``upper`` (J,) and ``measure`` errs by ``slack``.

    The most promising is measured first, then twice as many each time, until no other can be the best; ``upper`` is
    lowered to what was measured. None when more than ``most`` would have to be.
    """
    best, size, closed = -np.inf, 1, np.zeros(len(upper), bool)
    while len(left := np.flatnonzero((upper >= best) & ~closed)):
        pick = left[np.argsort(-upper[left], kind="stable")[:size]]
        closed[pick] = True
        if closed.sum() > most:
            return None
        share = measure(pick)
        upper[pick] = share + slack
        best, size = max(best, float(share.max()) - slack), 2 * size
    return best


def _slack(rows: F32) -> F32:
    """By how much approximate products of ``rows`` (Q, d) with unit vectors may differ from exact ones, twice over."""
    # Rounding of a float32 product grows like the root of its length; the factor leaves room for blocked sums.
    length = np.sqrt(float(rows.shape[1])) * 2.0**-21
    slack: F32 = length * np.maximum(1.0, np.sqrt(np.einsum("ij,ij->i", rows, rows)))
    return slack


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
