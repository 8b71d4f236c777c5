"""How much of a demonstration a take visits: the second half of the score `coverage`, with the trace of the first.

One product of frames serves rows (the trace) and columns (what was visited). It only names the demonstrations that may
be the best; these are compared exactly, pair by pair, as in `besttake.core.search`. ``core/README.md`` says what is
bounded and why the result is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core import search
from besttake.core.arithmetic import rough_product
from besttake.core.search import F32, F64, I64, Bools, Index, Trace, Winners

_BOUNDED = 4 * search.PROBE


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

    def add(self, visited: F32, first: int, fractions: F64) -> None:
        """Add to ``fractions`` (S, J) what ``visited`` (S, n) of the library's frames from ``first`` on is worth."""
        owner = self.owner[first : first + visited.shape[1]]
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(owner[order]) != 0])
        worth = visited[:, order] * self.weight[first + order]
        fractions[:, owner[order][starts]] += np.add.reduceat(worth, starts, axis=1)


def cover(
    index: Index, takes: Sequence[NDArray[Any]], counts: Sequence[Sequence[int]], demos: Demos
) -> list[tuple[Trace, F64]]:
    """`nearest` of every take (T, d), and the fraction of the best demonstration that its first frames visited.

    ``fractions[w] = max_j (sum_l l * max_{t < counts[w]} S[t, j, l]) / sum_l l`` for each take's own ``counts`` (W,),
    NaN where there are no such frames or one is not finite. One product serves rows and columns and only names the
    demonstrations that may be the best; only these are compared exactly. Where the bound of `Index` pays, it names
    them. Takes are searched together, and no take's result depends on the others.
    """
    rows = [search.rows_of(take, index.library.shape[1]) for take in takes]
    sizes = [len(take) for take in rows]
    done: list[tuple[Trace, F64]] = []
    pruned = index.basis is not None and sum(sizes) >= search.PROBE
    while (first := len(done)) < len(rows):
        last = _batch(sizes, first, search.PROBE if pruned and not first else search.QUERIES)
        batch = _Batch(rows[first:last], counts[first:last])
        swept = _bounded(index, batch, demos) if pruned else _swept(index, batch, demos)
        if swept is None:  # the bound does not pay: these takes again, and all others, by plain products
            pruned = False
            continue
        trace, upper = swept
        done += batch.results(trace, [_best(*one, demos, index.library) for one in batch.prefixes(upper)])
    return done


def _swept(index: Index, batch: _Batch, demos: Demos) -> tuple[Trace, F64]:
    """The trace of the batch's rows, and the fraction of each demonstration (S, J) at most, by one product."""
    winners = [Winners(rows, index.library) for rows in batch.blocks(search.QUERIES)]

    def offer(first: int, start: int, products: F32) -> bool:
        winners[first // search.QUERIES].offer(products, start)
        return True

    fractions = batch.fractions(batch.rows, index.library, demos, (search.QUERIES, search.FRAMES), offer)
    assert fractions is not None
    return _settled(winners), fractions + batch.slack


def _bounded(index: Index, batch: _Batch, demos: Demos) -> tuple[Trace, F64] | None:
    """`_swept` by the bound, and by products where it leaves frames or demonstrations over.

    None when it leaves so many over that the plain product is the better way.
    """
    assert index.basis is not None
    assert index.reduced is not None
    winners = [Winners(rows, index.library) for rows in batch.blocks(search.PROBE)]
    seen = left_over = 0

    def rule_out(first: int, start: int, bounds: F32) -> bool:
        nonlocal seen, left_over
        for i in range(0, len(bounds), search.PROBE):
            own = winners[(first + i) // search.PROBE]
            left = search.not_ruled_out(bounds[i : i + search.PROBE], start, own)
            seen, left_over = seen + bounds.shape[1], left_over + len(left)
            if left_over > search.MOST_LEFT * seen:
                return False
            index.compare(batch.rows[first + i : first + i + search.PROBE], left, start, own)
        return True

    short = search.reduce(batch.rows, index.basis)
    upper = batch.fractions(short, index.reduced, demos, (_BOUNDED, search.BOUNDS), rule_out)
    if upper is None:
        return None
    upper += batch.slack
    enough = int(search.MOST_LEFT * len(demos.starts))
    for rows, ends, most in batch.prefixes(upper):
        visits = _Visits(rows, ends, demos, index.library)
        for w, at_most in enumerate(most):
            if _climb(at_most, partial(visits.about, w), batch.slack, enough) is None:
                return None
    return _settled(winners), upper


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
        self.slack = float(search.rounding(self.rows).max(initial=0.0))
        self._takes: list[tuple[int, int, list[int]]] = []
        last = 0
        for take, wanted in zip(takes, counts, strict=True):
            first, last = last, last + len(take)
            whole = int(np.argmax(np.r_[broken[first:last], True]))
            self._takes.append((first, last, sorted({count for count in wanted if 0 < count <= whole})))

    def blocks(self, size: int) -> list[F32]:
        """The rows in blocks of ``size``."""
        return [self.rows[first : first + size] for first in range(0, len(self.rows), size)]

    def fractions(
        self, rows: F32, frames: F32, demos: Demos, size: tuple[int, int], offer: Callable[[int, int, F32], bool]
    ) -> F64 | None:
        """The visited fraction of each demonstration (S, J), by the products of ``rows`` (Q, p) and ``frames`` (F, p).

        The products come in blocks of at most ``size``. ``offer`` is shown each block, with its first row and its
        first frame; when it returns False, so that there is no use in going on, the answer is None.
        """
        spans = [(first + a, first + b) for first, _, ends in self._takes for a, b in pairwise((0, *ends))]
        goes_on = np.array([a > 0 for _, _, ends in self._takes for a in (0, *ends)[:-1]], bool)
        fractions = np.zeros((len(spans), len(demos.starts)))
        high, wide = size
        buffer = np.empty(min(high, len(rows)) * min(wide, len(frames)), np.float32)
        for start in range(0, len(frames), wide):
            part = frames[start : start + wide]
            visited = np.full((len(spans), len(part)), -np.inf, np.float32)
            for first in range(0, len(rows), high):
                block = rows[first : first + high]
                products = buffer[: len(block) * len(part)].reshape(len(block), len(part))
                rough_product(block, part.T, out=products)
                if not offer(first, start, products):
                    return None
                for seen, (begin, end) in zip(visited, spans, strict=True):
                    own = products[max(begin - first, 0) : max(end - first, 0)]
                    if len(own):
                        np.maximum(seen, own.max(axis=0), out=seen)
            for s in np.flatnonzero(goes_on):
                np.maximum(visited[s], visited[s - 1], out=visited[s])
            demos.add(visited, start, fractions)
        return fractions

    def prefixes(self, upper: F64) -> Iterator[tuple[F32, list[int], F64]]:
        """Per take its rows, where its segments end (W,), and their rows (W, J) of ``upper`` (S, J)."""
        done = 0
        for first, last, ends in self._takes:
            yield self.rows[first:last], ends, upper[done : done + len(ends)]
            done += len(ends)

    def results(self, trace: Trace, fractions: Sequence[Sequence[float]]) -> list[tuple[Trace, F64]]:
        """Per take its part of ``trace``, and the fractions for its counts from those of its segments (W,)."""
        trace.best[self._broken], trace.frame[self._broken] = np.nan, -1
        parts = []
        for (first, last, ends), wanted, known in zip(self._takes, self._counts, fractions, strict=True):
            fraction = dict(zip(ends, known, strict=True))
            part = Trace(trace.best[first:last], trace.frame[first:last])
            parts.append((part, np.array([fraction.get(count, np.nan) for count in wanted])))
        return parts


class _Visits:
    """What fractions of demonstrations a take visits with its first ``ends`` (W,) rows; the ends ascend."""

    def __init__(self, rows: F32, ends: Sequence[int], demos: Demos, library: F32) -> None:
        self._rows, self._ends, self._demos, self._library = rows, ends, demos, library
        self._about = np.full((len(ends), len(demos.starts)), np.nan)
        self._watched: _Watched | None = None

    def about(self, w: int, picked: I64) -> F64:
        """The fractions of the demonstrations ``picked`` (n,) until the end ``w``, within rounding."""
        new = picked[np.isnan(self._about[w, picked])]
        if len(new):
            self._about[:, new] = self._measured(new)
        fractions: F64 = self._about[w, picked]
        return fractions

    def exactly(self, w: int, picked: I64) -> F64:
        """The fractions of the demonstrations ``picked`` (n,) until the end ``w``; ends may not go back."""
        place, starts = self._demos.places(picked)
        visited = np.empty(len(place), np.float32)
        for first in range(0, len(place), search.FRAMES):
            frames = self._demos.order[place[first : first + search.FRAMES]]
            if self._watched is None or not np.array_equal(self._watched.frames, frames):
                self._watched = _Watched(frames, self._library, self._rows)
            visited[first : first + search.FRAMES] = self._watched.until(self._ends[w])
        return np.add.reduceat(self._demos.place[place] * visited, starts) / self._demos.total[picked]

    def _measured(self, picked: I64) -> F64:
        place, starts = self._demos.places(picked)
        visited = np.full((len(self._ends), len(place)), -np.inf, np.float32)
        for first in range(0, len(place), search.FRAMES):
            part = self._library[self._demos.order[place[first : first + search.FRAMES]]]
            for row in range(0, self._ends[-1], search.QUERIES):
                products = rough_product(part, self._rows[row : min(row + search.QUERIES, self._ends[-1])].T)
                for seen, (begin, end) in zip(visited[:, first:], pairwise((0, *self._ends)), strict=True):
                    own = products[:, max(begin - row, 0) : max(end - row, 0)]
                    if own.shape[1]:
                        seen[: len(part)] = np.maximum(seen[: len(part)], own.max(axis=1))
        np.maximum.accumulate(visited, axis=0, out=visited)
        fractions: F64 = np.add.reduceat(visited * self._demos.place[place], starts, axis=1) / self._demos.total[picked]
        return fractions


class _Watched:
    """The highest product of library ``frames`` (n,) with the first rows of a take, ever more of them."""

    def __init__(self, frames: I64, library: F32, rows: F32) -> None:
        self.frames, self._part, self._rows, self._seen = frames, library[frames], rows, 0
        self._winners = Winners(self._part, rows)

    def until(self, end: int) -> F64:
        """The highest (n,) with the rows before ``end``, exactly."""
        for row in range(self._seen, end, search.QUERIES):
            rows = self._rows[row : min(row + search.QUERIES, end)]
            self._winners.offer(rough_product(self._part, rows.T), row)
        self._winners.settle()
        self._seen = end
        return self._winners.best


def _best(rows: F32, ends: Sequence[int], upper: F64, demos: Demos, library: F32) -> list[float]:
    """The highest fraction that the first ``ends`` (W,) rows visit, exactly; none exceeds its ``upper`` (W, J)."""
    visits = _Visits(rows, ends, demos, library)
    best = [_climb(most, partial(visits.exactly, w), 0.0, len(most)) for w, most in enumerate(upper)]
    return [fraction for fraction in best if fraction is not None]


def _settled(winners: Sequence[Winners]) -> Trace:
    """The trace of all rows of consecutive ``winners``."""
    for block in winners:
        block.settle()
    best = np.concatenate([np.zeros(0), *(block.best for block in winners)])
    return Trace(best.astype(np.float32), np.concatenate([np.zeros(0, np.int64), *(block.index for block in winners)]))


def _batch(sizes: Sequence[int], first: int, most: int) -> int:
    """Where the takes from ``first`` on that are searched together end: `PROBE` rows at least, more up to ``most``."""
    total, last = sizes[first], first + 1
    while last < len(sizes) and (total < search.PROBE or total + sizes[last] <= most):
        total, last = total + sizes[last], last + 1
    return last


def _climb(upper: F64, measure: Callable[[I64], F64], slack: float, most: int) -> float | None:
    """What the best fraction is at least, where fractions are at most ``upper`` (J,) and ``measure`` errs by ``slack``.

    The most promising is measured first, then twice as many each time, until no other can be the best; ``upper`` is
    lowered to what was measured. None when more than ``most`` would have to be.
    """
    best, size, closed = -np.inf, 1, np.zeros(len(upper), bool)
    while len(left := np.flatnonzero((upper >= best) & ~closed)):
        pick = left[np.argsort(-upper[left], kind="stable")[:size]]
        closed[pick] = True
        if closed.sum() > most:
            return None
        fraction = measure(pick)
        upper[pick] = fraction + slack
        best, size = max(best, float(fraction.max()) - slack), 2 * size
    return best
