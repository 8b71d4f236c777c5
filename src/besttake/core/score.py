"""How close a take stays to the demonstrations: the manifold score (Eq. 4), coverage, and windows of a take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import F32, F64, I64, Bools, rough_product
from besttake.core.search import FRAMES, QUERIES, Index, Trace, Winners, lengths, rounding, usable


def manifold(trace: Trace, window: Bools | None = None) -> float:
    """Eq. 4: the mean over the frames of ``window`` (T,), by default all, of the highest cosine to a library frame.

    NaN, an invalid score, for a take without frames in the window or with an embedding that is not finite.
    """
    best = trace.best if window is None else trace.best[window]
    return float(np.mean(best, dtype=np.float64)) if len(best) else float("nan")


def coverage(trace: Trace, visited: float, window: Bools | None = None) -> float:
    """`manifold` plus the visited fraction of the best demonstration, in which later frames weigh more.

    ``s = mean_t max_f S[t, f] + max_j (sum_l l * max_t S[t, j, l]) / sum_l l``, where l = 1..L_j counts the frames of
    demonstration j in order. The second term is ``visited``, from `cover` for the frames of ``window``. Only compare
    takes on windows of equal length.
    """
    return manifold(trace, window) + visited


def window_until(steps: NDArray[Any], end: int) -> Bools:
    """A mask (T,) of the frames to score: those whose entry in ``steps`` is at most ``end``.

    ``end`` is the number of steps until the episode ended (window `episode`), of the whole fixed horizon (`full`), or
    until the first of the compared takes ended (`common`).
    """
    return np.asarray(steps) <= end


@dataclass(frozen=True)
class Demos:
    """Which of J demonstrations each of the F frames of a library belongs to.

    ``owner`` (F,) is the demonstration 0..J-1 of each frame, ``weight`` (F,) its place l = 1..L_j in the demonstration
    divided by the sum of these. ``order`` (F,) sorts the frames by demonstration and step, and ``starts`` (J + 1,)
    tells where each demonstration begins in that order, and where the last one ends.
    """

    order: I64
    starts: I64
    owner: I64
    weight: F64

    @classmethod
    def of(cls, demo: I64, step: NDArray[Any]) -> Demos:
        """Group frames by the demonstration ``demo`` and ``step`` (F,) of each."""
        order = np.lexsort((step, demo))
        starts = np.r_[np.flatnonzero(np.r_[True, np.diff(demo[order]) != 0]), len(order)]
        lengths = np.diff(starts)
        place = (np.arange(len(order)) - np.repeat(starts[:-1], lengths) + 1).astype(np.float64)
        owner, weight = np.empty(len(order), np.int64), np.empty(len(order))
        owner[order] = np.repeat(np.arange(len(lengths)), lengths)
        weight[order] = place / np.repeat(lengths * (lengths + 1) / 2, lengths)
        return cls(order, starts, owner, weight)

    def frames(self, demo: int) -> I64:
        """The rows (L,) of a demonstration's frames, in order."""
        return self.order[self.starts[demo] : self.starts[demo + 1]]

    def add(self, visited: F32, first: int, fractions: F64) -> None:
        """Add the weighted cosines ``visited`` (S, n) of library frames from ``first`` on to ``fractions`` (S, J)."""
        owner = self.owner[first : first + visited.shape[1]]
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(owner[order]) != 0])
        worth = visited[:, order] * self.weight[first + order]
        fractions[:, owner[order][starts]] += np.add.reduceat(worth, starts, axis=1)


def cover(
    index: Index, takes: Sequence[NDArray[Any]], counts: Sequence[Sequence[int]], demos: Demos
) -> list[tuple[Trace, F64]]:
    """`Index.nearest` of every take (T, d), and the fraction of the best demonstration that its first frames visited.

    ``fractions[w] = max_j (sum_l l * max_{t < counts[w]} S[t, j, l]) / sum_l l`` with the ``counts`` (W,) of each take;
    NaN where there are no such frames or one is not finite.
    """
    return [_covered(index, index.rows(take), ends, demos) for take, ends in zip(takes, counts, strict=True)]


def _covered(index: Index, rows: F32, counts: Sequence[int], demos: Demos) -> tuple[Trace, F64]:
    """`cover` of one take. Each block's product serves the trace, by its rows, and the fractions, by its columns."""
    broken = np.logical_not(usable(rows))
    ends = sorted({count for count in counts if 0 < count <= np.argmax(np.r_[broken, True])})
    rows = np.where(broken[:, None], np.float32(0), rows)
    blocks = [slice(first, first + QUERIES) for first in range(0, len(rows), QUERIES)]
    winners = [Winners(rows[block], index.library, index.longest) for block in blocks]
    rough = np.zeros((len(ends), len(demos.starts) - 1))
    for start in range(0, len(index.library), FRAMES):
        part = index.library[start : start + FRAMES]
        visited = np.full((len(ends), len(part)), -np.inf, np.float32)
        for block, nearest in zip(blocks, winners, strict=True):
            products = rough_product(rows[block], part.T)
            nearest.offer(products, start)
            for seen, (begin, end) in zip(visited, pairwise((0, *ends)), strict=True):
                few = products[max(begin - block.start, 0) : max(end - block.start, 0)]
                np.maximum(seen, few.max(axis=0, initial=-np.inf), out=seen)
        demos.add(np.maximum.accumulate(visited, axis=0), start, rough)
    best, frame = np.full(len(rows), np.nan), np.full(len(rows), -1, np.int64)
    for block, nearest in zip(blocks, winners, strict=True):
        best[block], frame[block] = nearest.settle()
    best[broken], frame[broken] = np.nan, -1
    slack, fraction = 2 * float(rounding(rows, index.longest).max(initial=0.0)), dict[int, float]()
    for end, sums in zip(ends, rough, strict=True):
        likely = np.flatnonzero(sums >= sums.max() - slack).tolist()
        fraction[end] = max(_visited(index, rows[:end], demos.frames(j)) for j in likely)
    return Trace(best.astype(np.float32), frame), np.array([fraction.get(count, np.nan) for count in counts])


def _visited(index: Index, rows: F32, frames: I64) -> float:
    """The exact fraction of the demonstration with ``frames`` (L,), in order, that ``rows`` visit."""
    length = float(lengths(rows).max())
    visited = np.empty(len(frames), np.float32)
    for first in range(0, len(frames), FRAMES):
        part = index.library[frames[first : first + FRAMES]]
        winners = Winners(part, rows, length)
        for start in range(0, len(rows), QUERIES):
            winners.offer(rough_product(part, rows[start : start + QUERIES].T), start)
        visited[first : first + FRAMES] = winners.settle()[0]
    place = np.arange(1.0, len(frames) + 1)
    return float(np.add.reduceat(place * visited, [0])[0] / place.sum())
