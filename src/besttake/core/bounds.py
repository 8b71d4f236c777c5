"""The nearest candidate by bounds: those that a lower bound rules out are never compared.

The bounds are sums of `Bound`, one per modality, in float32. Whatever is compared is compared exactly, and a candidate
is left out only where its bound, with all that rounding can do to it, lies above what another one reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from besttake.core.search import F32, F64, I64, Bools
from besttake.core.spaces import Bound

Compare = Callable[[I64, I64], F64]
# Bounds that are computed at once.
_BLOCK = 1 << 20
# Numbers of candidates that may be read for them.
_NUMBERS = 1 << 22
# Candidates of each query that are compared first, of few queries more, and how many times as many come next.
_FIRST, _FIRST_OF_ALL, _MORE = 8, 32, 4
# Fewer pairs than this are compared as soon as bounded.
_WORTH_BOUNDS = 16
# More than sums and roots in float32 can be off, and than squares can lose below the smallest float32.
_ROUNDED, _LOST = 2.0**-18, 1e-20


@dataclass(frozen=True)
class Lows:
    """Lower bounds ``values`` (B, E) of distances, ``unsure`` (B,) by how much they may be above; inf: not allowed.

    ``finer`` has bounds whose sum is tighter and takes longer, for pairs; `unsure` holds for them, too.
    """

    values: F32
    unsure: F64
    finer: Callable[[], Sequence[Bound]]

    @classmethod
    def of(
        cls, bounds: Sequence[Bound], count: int, allowed: Sequence[Bools | None],
        finer: Callable[[], Sequence[Bound]],
    ) -> Lows:  # fmt: skip
        """The sums of ``bounds`` for ``count`` candidates, of which each query is ``allowed`` some (None: all)."""
        values = np.zeros((len(allowed), count), np.float32)
        columns = max(1, min(_BLOCK // max(1, len(allowed)), _NUMBERS // max((b.width for b in bounds), default=1)))
        for first in range(0, count, columns):
            for bound in bounds:
                bound.add(first, values[:, first : first + columns])
        for row, own in zip(values, allowed, strict=True):
            if own is not None:
                row[~own] = np.inf
        unsure = np.sum([bound.unsure for bound in bounds], axis=0) if bounds else np.zeros(len(allowed))
        return cls(values, unsure, finer)

    def limit(self, reached: F64) -> F32:
        """Above which bound (B,) a candidate cannot have a distance of ``reached`` (B,) or less."""
        limit: F32 = np.minimum((reached + self.unsure) * (1 + _ROUNDED) + _LOST, 3e38).astype(np.float32)
        return limit

    def left(self, reached: F64) -> tuple[I64, I64]:
        """The pairs (query, candidate) that may have a distance of ``reached`` (B,) or less."""
        may = self.values <= self.limit(reached)[:, None]
        row, candidate = np.divmod(np.flatnonzero(may), may.shape[1])
        return row, candidate

    def still(self, row: I64, candidate: I64, reached: F64) -> Bools:
        """Which pairs (n,) may have a distance of ``reached`` (B,) or less by the finer bounds, too."""
        low = np.zeros(len(row), np.float32)
        for bound in self.finer() if len(row) >= _WORTH_BOUNDS else ():
            low += bound.pairs(row, candidate)
        return low <= self.limit(reached)[row]


def nearest(lows: Lows, compare: Compare) -> tuple[I64, F64]:
    """The nearest candidate (B,) of each query and its row of ``compare`` (B, m); ties go to the lowest candidate.

    ``compare`` has a row (n, m) for each pair, its distance first. Of each query the candidates with the lowest bounds
    are compared first, then ever more of those that are still possible.
    """
    winner = lows.values.argmin(axis=1)
    best = compare(np.arange(len(winner)), winner)
    row, candidate = lows.left(best[:, 0])
    new = candidate != winner[row]
    row, candidate = row[new], candidate[new]
    size = max(_FIRST, _FIRST_OF_ALL // len(winner))
    while len(row):
        low = lows.values[row, candidate]
        order = np.lexsort((low, row))
        row, candidate, low = row[order], candidate[order], low[order]
        place = np.arange(len(row)) - np.searchsorted(row, row)
        now, later = np.flatnonzero(place < size), np.flatnonzero(place >= size)
        now = now[lows.still(row[now], candidate[now], best[:, 0])]
        compared = compare(row[now], candidate[now])
        order = np.lexsort((candidate[now], compared[:, 0], row[now]))
        lead = order[np.diff(row[now][order], prepend=-1) != 0]
        r, c, own = row[now][lead], candidate[now][lead], compared[lead]
        wins = (own[:, 0] < best[r, 0]) | ((own[:, 0] == best[r, 0]) & (c < winner[r]))
        best[r[wins]], winner[r[wins]] = own[wins], c[wins]
        later = later[low[later] <= lows.limit(best[:, 0])[row[later]]]
        row, candidate, size = row[later], candidate[later], _MORE * size
    return winner, best


def nearest_few(lows: Lows, compare: Compare, count: int) -> I64:
    """The ``count`` nearest candidates of a single query, ascending; ties go to the lowest candidates.

    ``compare`` has the distances (n,) of pairs.
    """
    likely = np.argpartition(lows.values[0], count - 1)[:count]
    reached = compare(np.zeros(count, np.int64), likely).max()
    _, left = lows.left(np.array([reached]))
    distance = compare(np.zeros(len(left), np.int64), left)
    few: I64 = np.sort(left[np.argsort(distance, kind="stable")[:count]])
    return few
