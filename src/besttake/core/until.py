"""Until decided: the answer to a question as starts come in, looked at after every one.

The starts come in a random order that is fixed before the first take. After each start both tests of
`besttake.core.sequential` are looked at, from `FIRST` starts on: NO once {mean >= w} is rejected, YES once {mean <= 0}
is rejected and the mean so far is at least w. The first of the two is the answer, for good, so it depends on the starts
up to it alone: not on how many came after, nor on how they were grouped in rounds. Because the test holds at any
stopping time, a false YES or NO has a chance of at most alpha over the whole run, however it is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from besttake.core.estimate import YesNo
from besttake.core.sequential import HORIZON, wealth
from besttake.core.stats import Scale

F64 = NDArray[np.float64]
FIRST = 20
"""No answer before this many starts: sooner, the estimate is too rough to act on."""


@dataclass(frozen=True)
class Track:
    """A question along T starts in order. ``yes`` and ``no``: after how many starts each is the answer (T + 1: never).

    ``count`` (T,) values so far, ``mean`` (T,) of them, and ``peak`` (T, 2), the most that the accounts against
    {mean <= 0} and {mean >= w} have reached.
    """

    yes: int
    no: int
    count: NDArray[np.int64]
    mean: F64
    peak: F64

    def answer(self, starts: int) -> YesNo:
        """The answer after the first ``starts`` starts."""
        if min(self.yes, self.no) > starts:
            return "undecided"
        return "no" if self.no <= self.yes else "yes"

    def p_values(self, starts: int) -> tuple[float, float]:
        """Of both nulls, after the first ``starts`` starts."""
        if starts < 1:
            return 1.0, 1.0
        above, below = np.minimum(1.0, 2 / self.peak[starts - 1])
        return float(above), float(below)


def tracks(
    values: ArrayLike,
    scales: Sequence[Scale],
    stakes: Sequence[float],
    worth: float,
    *,
    ruling: ArrayLike | None = None,
    alpha: float = 0.05,
    horizon: int = HORIZON,
) -> list[Track]:
    """The tracks of Q questions with ``values`` (T, Q) in the order of the run, NaN where a start has none.

    ``ruling`` (T, Q): the values that a NO may rest on; all unless given. Scales and stakes may not depend on what
    was seen, or a later start could change an answer that was given. ``horizon``: the starts that bets cover.
    """
    x = np.asarray(values, dtype=np.float64)
    both = np.stack([x, x if ruling is None else np.asarray(ruling, dtype=np.float64)], axis=-1)
    if not len(x):
        empty = np.zeros(0)
        return [Track(1, 1 if s.hi > worth else 0, empty.astype(np.int64), empty, np.zeros((0, 2))) for s in scales]
    lo, hi = np.array([s.lo for s in scales])[:, None], np.array([s.hi for s in scales])[:, None]
    nulls, signs = np.array([0.0, worth]), np.array([1.0, -1.0])
    sums = wealth(both, nulls, signs, lo, hi, fixed=np.asarray(stakes)[:, None], alpha=alpha, horizon=horizon)
    peak = np.maximum.accumulate(sums, axis=0)
    count = np.isfinite(both).cumsum(axis=0)
    mean = np.nancumsum(x, axis=0) / np.maximum(count[..., 0], 1)
    shown = (peak >= 2 / alpha) & (count >= FIRST)
    shown[..., 0] &= mean >= worth - 1e-12
    first = np.where(shown.any(axis=0), shown.argmax(axis=0) + 1, len(x) + 1)
    no = np.where([s.hi <= worth for s in scales], 0, first[:, 1])
    return [Track(int(first[q, 0]), int(no[q]), count[:, q, 0], mean[:, q], peak[:, q]) for q in range(x.shape[1])]


def bounds(values: ArrayLike, scale: Scale, stake: float, *, level: float = 0.95) -> tuple[float, float]:
    """Bounds on the mean of ``values`` (T,) that hold at any stopping time: the means that the bets do not reject."""
    x = np.asarray(values, dtype=np.float64)
    if not x.size:
        return scale.lo, scale.hi
    low, high, middle = min(scale.lo, float(x.min())), max(scale.hi, float(x.max())), float(x.mean())
    inside, outside = np.array([middle, middle]), np.array([low, high])
    signs, alpha = np.array([1.0, -1.0]), (1 - level) / 2
    steps = np.linspace(0.0, 1.0, 17)
    for _ in range(3):
        means = inside + (outside - inside) * steps[:, None]
        sums = wealth(x[:, None, None], means, signs, low, high, fixed=stake, alpha=alpha)
        rejected = sums.max(axis=0) >= 2 / alpha
        rejected[0] = False
        for side in range(2):
            if rejected[:, side].any():
                first = int(rejected[:, side].argmax())
                inside[side], outside[side] = means[first - 1, side], means[first, side]
            else:
                inside[side] = outside[side]
    return min(float(outside[0]), middle), max(float(outside[1]), middle)


def bounds_along(
    values: ArrayLike, scale: Scale, stake: float, at: ArrayLike, *, level: float = 0.95, grid: int = 121
) -> F64:
    """Bounds (len(at), 2) after the first ``at`` values, on a grid of means: for a figure. `bounds` is finer."""
    x, counts = np.asarray(values, dtype=np.float64), np.asarray(at, dtype=np.int64)
    low, high = min(scale.lo, float(x.min(initial=0))), max(scale.hi, float(x.max(initial=0)))
    means, signs = np.linspace(low, high, grid), np.array([1.0, -1.0])[:, None]
    sums = wealth(x[:, None, None], means, signs, low, high, fixed=stake, alpha=(1 - level) / 2)
    rejected = np.maximum.accumulate(sums, axis=0) >= 4 / (1 - level)
    ends = np.empty((len(counts), 2))
    for i, count in enumerate(counts):
        below, above = rejected[count - 1] if count > 0 else np.zeros((2, grid), dtype=bool)
        middle = float(x[:count].mean()) if count > 0 else 0.0
        ends[i, 0] = min(means[(~below).argmax()], middle)
        ends[i, 1] = max(means[grid - 1 - (~above)[::-1].argmax()], middle)
    return ends
