"""Tests by betting, which stay valid however often one looks at them, start by start.

Two accounts bet against each null, {mean <= 0} for a YES and {mean >= w} for a NO. Under its null the expected wealth
of an account does not grow. The sum of both, 2 at the beginning, therefore reaches 2/alpha with a chance of at most
alpha, whatever the distribution of the bounded values and whenever one stops. One account bets a fixed fraction, the
other the fraction that is best for the remaining starts given the variance so far. Starts must come in random order
across tasks. The first null to be rejected gives the answer for good, so an answer depends only on the starts up to it.

A run until decided uses this test from its first start, with the whole alpha, and the live page shows its bounds. A run
that was judged by the tests of a fixed sample and is then extended (`RepeatedLooks`) has spent up to alpha at its first
look. This test decides what was open there, and all later looks together get half of alpha. If starts get more takes
after a look, their values change: that is a new test, with half the alpha of the one before. However starts and takes
are added, a run errs with a chance below 2 alpha.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.arithmetic import F64, I64
from besttake.core.stats import Finding, Scale, YesNo

HORIZON = 500
"""The number of starts for which bets are optimised, a constant because it must not depend on what was seen."""
_ENOUGH = 1e100
_ONE_SIDE = (1 - 0.95) / 2
FIRST = 20
"""No answer before this many starts, because the estimate is too rough to act on."""


@dataclass(frozen=True)
class RepeatedLooks:
    """The looks at the data of a cell. ``order`` (S,) sorts its starts so that those of earlier looks come first.

    ``earlier``: the number of starts at each earlier look, ascending. ``answered``: the questions that an earlier look
    answered, with their findings. ``until``: the run goes on until it is decided, and the test looks after every start.
    ``grown``: how many earlier looks had another number of takes per start.
    """

    order: I64
    earlier: tuple[int, ...] = ()
    until: bool = False
    grown: int = 0
    answered: Mapping[str, Finding] = field(default_factory=dict)

    @property
    def anytime(self) -> bool:
        """Whether the test has to be valid at any time."""
        return self.until or bool(self.earlier)

    @property
    def count(self) -> int:
        """The number of looks at the data, including this one."""
        return len(self.earlier) + 1

    def left(self, alpha: float = 0.05) -> float:
        """The alpha for looks after the first: half of it, and half again for each time that takes were added."""
        return alpha if self.until else alpha / 2 ** (self.grown + 1)


def fixed_stake(question: Literal["gain", "headroom", "content"], seeds: int) -> float:
    """The fixed stake that stops earliest in simulations: .75 for G and H with 3 seeds, 1 with 5, 2/3 for C."""
    if question == "content":
        return 2 / 3
    return 0.75 if seeds <= 3 else 1.0


def wealth(
    values: ArrayLike,
    null: ArrayLike,
    sign: ArrayLike,
    lo: ArrayLike,
    hi: ArrayLike,
    *,
    fixed: ArrayLike,
    alpha: ArrayLike = 0.05,
    horizon: int = HORIZON,
) -> F64:
    """The sum of both accounts after each start, (T, ...), for many sequences and nulls at once.

    ``values`` (T, ...) are in order, NaN where a sequence has no value and makes no bet. The other arguments broadcast
    to the shape of one start. Half of the sum is an e-value at any stopping time.
    """
    x = np.asarray(values, dtype=np.float64)
    m, direction, low, high, steady_stake, level = (
        np.asarray(part, dtype=np.float64) for part in (null, sign, lo, hi, fixed, alpha)
    )
    shape = np.broadcast_shapes(x.shape[1:], m.shape, direction.shape, low.shape, high.shape, level.shape)
    reach = np.where(direction > 0, m - low, high - m)
    cap = np.full(np.broadcast_shapes(reach.shape, shape), inf)
    np.divide(0.95, reach, out=cap, where=np.broadcast_to(reach > 0, cap.shape))
    stake_steady, target = np.minimum(steady_stake, cap), 2 / level
    steady, adaptive = np.ones(shape), np.ones(shape)
    seen, total = np.zeros(shape), np.zeros(shape)
    square = np.broadcast_to(((high - low) / 4) ** 2, shape).copy()
    sums = np.empty((len(x), *shape))
    for t in range(len(x)):
        valid = np.isfinite(x[t])
        value = np.where(valid, x[t], 0.0)
        variance = square / (seen + 1)
        need = target - steady
        bets = (need > adaptive) & (adaptive > 0) & (variance > 0)
        growth = np.log(np.where(bets, need, 1.0)) - np.log(np.where(bets, adaptive, 1.0))
        left = np.maximum(1.0, horizon - seen)
        stake = np.minimum(cap, np.sqrt(2 * growth / (left * np.where(bets, variance, 1.0))))
        d = np.where(valid, direction * (value - m), 0.0)
        # The cap keeps accounts that have long decided from overflowing.
        steady = np.minimum(steady * (1 + stake_steady * d), _ENOUGH)
        adaptive = np.minimum(adaptive * (1 + np.where(bets, stake, 0.0) * d), _ENOUGH)
        seen = seen + valid
        total = total + value
        square = square + np.where(valid, (value - total / np.maximum(seen, 1)) ** 2, 0.0)
        sums[t] = steady + adaptive
    return sums


@dataclass(frozen=True)
class Track:
    """The test of a question along T starts. ``yes`` and ``no``: after how many starts each is shown (T + 1: never).

    After each start: ``count`` (T,) of values, their ``mean`` (T,), and ``peak`` (T, 2), the highest sums of the
    accounts against {mean <= 0} and {mean >= w}.
    """

    yes: int
    no: int
    count: I64
    mean: F64
    peak: F64

    def answer(self, starts: int) -> YesNo:
        """The answer after the first ``starts`` starts."""
        if min(self.yes, self.no) > starts:
            return "open"
        return "no" if self.no <= self.yes else "yes"

    def p_values(self, starts: int) -> tuple[float, float]:
        """The p-values of both nulls after the first ``starts`` starts."""
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
    """Run the test of Q questions start by start on ``values`` (T, Q), NaN where a start has none.

    ``ruling`` (T, Q): the values that a NO may rest on (default: all). Scales and stakes must not depend on what was
    seen, or a later start could change an answer. ``horizon``: the number of starts for which bets are optimised.
    """
    x = np.asarray(values, dtype=np.float64)
    both = np.stack([x, x if ruling is None else np.asarray(ruling, dtype=np.float64)], axis=-1)
    first, count, mean, peak = follow(both, scales, stakes, worth, alpha=alpha, horizon=horizon)
    return [
        Track(int(first[q, 0]), int(first[q, 1]), count[:, q, 0], mean[:, q], peak[:, q]) for q in range(x.shape[1])
    ]


def follow(
    both: F64,
    scales: Sequence[Scale],
    stakes: Sequence[float],
    worth: float,
    *,
    alpha: float = 0.05,
    horizon: int = HORIZON,
) -> tuple[I64, I64, F64, F64]:
    """The number of starts (..., Q, 2) after which each question is a YES, and a NO; T + 1 for never.

    The last axis of the values ``both`` (T, ..., Q, 2) has those that a YES and those that a NO rests on. Also returns,
    after each start, the number of values, the mean of those for a YES, and the highest sum of the accounts.
    """
    lo, hi = np.array([s.lo for s in scales])[:, None], np.array([s.hi for s in scales])[:, None]
    nulls, signs = np.array([0.0, worth]), np.array([1.0, -1.0])
    sums = wealth(both, nulls, signs, lo, hi, fixed=np.asarray(stakes)[:, None], alpha=alpha, horizon=horizon)
    peak = np.maximum.accumulate(sums, axis=0)
    count = np.isfinite(both).cumsum(axis=0)
    mean = np.nancumsum(both[..., 0], axis=0) / np.maximum(count[..., 0], 1)
    shown = (peak >= 2 / alpha) & (count >= FIRST)
    shown[..., 0] &= mean >= worth - 1e-12
    never = len(both) + 1
    first = (
        np.where(shown.any(axis=0), shown.argmax(axis=0) + 1, never) if len(both) else np.full(both.shape[1:], never)
    )
    first[..., 1] = np.where([s.hi <= worth for s in scales], 0, first[..., 1])
    return first, count, mean, peak


def bounds(values: ArrayLike, scale: Scale, stake: float) -> tuple[float, float]:
    """95 % bounds on the mean of ``values`` (T,), valid at any stopping time: the means that the bets do not reject."""
    x = np.asarray(values, dtype=np.float64)
    if not x.size:
        return scale.lo, scale.hi
    low, high, middle = min(scale.lo, float(x.min())), max(scale.hi, float(x.max())), float(x.mean())
    inside, outside = np.array([middle, middle]), np.array([low, high])
    signs, alpha = np.array([1.0, -1.0]), _ONE_SIDE
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
