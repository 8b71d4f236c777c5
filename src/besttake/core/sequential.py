"""Until decided: an exact test that may be looked at as often as one likes.

Two accounts bet against each null, {mean <= 0} for a YES and {mean >= w} for a NO. Under its null an account cannot
grow in expectation, so their sum, 2 at the start, reaches 2/alpha with a chance of at most alpha, whatever the
distribution of the bounded values and whenever one stops. One account bets a fixed fraction, the other what the
variance so far makes best for the starts that remain. The starts must come in random order across tasks.

A run that was judged once by the tests of a fixed sample and is then extended (`Looks`, `look_again`) has spent up to
alpha at its first look. All later looks together get half of alpha, so the whole errs in at most 1.5 alpha of runs;
in simulation (true gain 0, a look every 20 or 80 starts up to 400) 2-4 % chose to select at any look, where a
fixed-sample test at each look made 12-22 % do so. Where starts are given more takes after a look, their values change,
and with them the bets: that is another test, which gets half of what the one before had. So a run errs in at most
1.5 alpha while only starts are added, and in less than 2 alpha however its starts and takes are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from besttake.core.estimate import YesNo
from besttake.core.stats import Scale

HORIZON = 500
"""The starts that bets of a later look are laid out for. It must not depend on what was seen, so it is a constant."""


@dataclass
class Accounts:
    """Both accounts against one null: {mean <= m} with sign +1, {mean >= m} with sign -1, values in [lo, hi]."""

    m: float
    sign: int
    lo: float
    hi: float
    horizon: int
    fixed: float
    alpha: float = 0.05
    steady: float = field(default=1.0, init=False)
    adaptive: float = field(default=1.0, init=False)
    rejected: bool = field(default=False, init=False)
    seen: int = field(default=0, init=False)
    total: float = field(default=0.0, init=False)
    square: float = field(default=0.0, init=False)
    peak: float = field(default=2.0, init=False)

    def __post_init__(self) -> None:
        self.square = ((self.hi - self.lo) / 4) ** 2

    def update(self, x: float) -> bool:
        """Bet on the value of one more start; True once the null is rejected, for good."""
        reach = self.m - self.lo if self.sign > 0 else self.hi - self.m
        cap = 0.95 / reach if reach > 0 else inf
        variance = self.square / (self.seen + 1)
        self.seen += 1
        need = 2 / self.alpha - self.steady
        stake = 0.0
        # An account that is lost, or values that cannot vary, leave nothing to bet.
        if need > self.adaptive > 0 and variance > 0:
            left = max(1, self.horizon - self.seen + 1)
            stake = min(cap, sqrt(2 * log(need / self.adaptive) / (left * variance)))
        d = self.sign * (x - self.m)
        self.steady *= 1 + min(self.fixed, cap) * d
        self.adaptive *= 1 + stake * d
        self.total += x
        self.square += (x - self.total / self.seen) ** 2
        self.peak = max(self.peak, self.steady + self.adaptive)
        self.rejected = self.rejected or self.steady + self.adaptive >= 2 / self.alpha
        return self.rejected

    @property
    def p(self) -> float:
        """p-value against the null that holds whenever one looks."""
        return 2 / self.peak


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
) -> NDArray[np.float64]:
    """The sum of both accounts after each start, (T, ...), from 2 on: `Accounts` for many sequences and nulls at once.

    ``values`` (T, ...) in order, NaN where a sequence has no value (no bet is made); the others have the shape of one
    start or broadcast to it. Half of it is an e-value at any stopping time.
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
        steady = steady * (1 + stake_steady * d)
        adaptive = adaptive * (1 + np.where(bets, stake, 0.0) * d)
        seen = seen + valid
        total = total + value
        square = square + np.where(valid, (value - total / np.maximum(seen, 1)) ** 2, 0.0)
        sums[t] = steady + adaptive
    return sums


@dataclass
class SequentialTest:
    """Fed start by start; ``answer`` changes only at a look: after ``first`` starts, then every ``batch``.

    ``horizon`` is the most starts that will be run. ``fixed`` is the steady stake: see `fixed_stake`.
    """

    scale: Scale
    worth: float = 0.03
    horizon: int = 500
    fixed: float = 0.75
    alpha: float = 0.05
    first: int = 30
    batch: int = 10
    answer: YesNo = field(default="undecided", init=False)
    values: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._yes = self._against(0.0, 1)
        self._no = self._against(self.worth, -1)

    @property
    def estimate(self) -> float:
        """Mean so far. At stopping it is optimistic by one or two points: report `bounds` with it."""
        return float(np.mean(self.values)) if self.values else float("nan")

    def update(self, x: float) -> YesNo:
        """Take in one start; once decided the answer stays."""
        if not self.scale.lo - 1e-9 <= x <= self.scale.hi + 1e-9:
            raise ValueError(f"a value of {x} lies outside [{self.scale.lo}, {self.scale.hi}]")
        if self.answer != "undecided":
            return self.answer
        self.values.append(x)
        self._yes.update(x)
        self._no.update(x)
        count = len(self.values)
        if (count >= self.first and (count - self.first) % self.batch == 0) or count >= self.horizon:
            if self._no.rejected:
                self.answer = "no"
            elif self._yes.rejected and self.estimate >= self.worth - 1e-12:
                self.answer = "yes"
        return self.answer

    def bounds(self, level: float = 0.95, steps: int = 24) -> tuple[float, float]:
        """Bounds on the mean that hold at any stopping time: the means that the same bets have not rejected."""
        alpha = (1 - level) / 2
        return self._edge(1, alpha, steps), self._edge(-1, alpha, steps)

    def _edge(self, sign: int, alpha: float, steps: int) -> float:
        inside, outside = self.estimate, self.scale.lo if sign > 0 else self.scale.hi
        if not self.values or not self._rejects(outside, sign, alpha):
            return outside
        rejected = outside
        for _ in range(steps):
            middle = (inside + rejected) / 2
            if self._rejects(middle, sign, alpha):
                rejected = middle
            else:
                inside = middle
        return rejected

    def _rejects(self, m: float, sign: int, alpha: float) -> bool:
        accounts = self._against(m, sign, alpha)
        return any(accounts.update(x) for x in self.values)

    def _against(self, m: float, sign: int, alpha: float | None = None) -> Accounts:
        alpha = self.alpha if alpha is None else alpha
        return Accounts(m, sign, self.scale.lo, self.scale.hi, self.horizon, self.fixed, alpha)


def fixed_stake(question: Literal["gain", "headroom", "content"], seeds: int) -> float:
    """The steady stake that stops earliest in simulation: .75 for G and H with 3 seeds, 1 with 5, 2/3 for C."""
    if question == "content":
        return 2 / 3
    return 0.75 if seeds <= 3 else 1.0


@dataclass(frozen=True)
class Looks:
    """A run that was looked at before: ``order`` (S,) sorts the starts so that those of earlier looks come first.

    ``earlier``: how many starts there were at each earlier look, ascending. ``until``: the run goes on until it is
    decided, so that the test looks after every start (`besttake.core.until`). ``grown``: how often the starts had
    another number of takes at a look.
    """

    order: NDArray[np.int64]
    earlier: tuple[int, ...]
    until: bool = False
    grown: int = 0

    @property
    def anytime(self) -> bool:
        """Whether a test has to decide that holds whenever one looks."""
        return self.until or bool(self.earlier)

    @property
    def count(self) -> int:
        """How many times, this one included."""
        return len(self.earlier) + 1

    def left(self, alpha: float = 0.05) -> float:
        """What is left of alpha for a look after the first: half of it, and half of that whenever takes were added."""
        return alpha if self.until else alpha / 2 ** (self.grown + 1)


@dataclass(frozen=True)
class Later:
    """What a later look says: the answer and the p-values of both nulls, which hold over all later looks."""

    answer: YesNo
    p_not_above_zero: float
    p_not_below_worth: float


def look_again(
    values: ArrayLike,
    scale: Scale,
    worth: float,
    *,
    first: int,
    stake: float,
    ruling: ArrayLike | None = None,
    alpha: float = 0.025,
) -> Later:
    """The answer to one question at a later look, from per-start ``values`` (S,) in the order of `Looks`.

    ``first``: starts at the first look, which lay out the bets where they are many. ``ruling`` (S,): the values that a
    NO may rest on; all unless given. ``alpha``: what all later looks together may spend (`Looks.left`).
    """
    x, span = _in_range(values, scale)
    out = x if ruling is None else _in_range(ruling, scale)[0]
    horizon = max(HORIZON, 2 * first)
    yes = Accounts(0.0, 1, span.lo, span.hi, horizon, stake, alpha)
    no = Accounts(worth, -1, span.lo, span.hi, horizon, stake, alpha)
    for value in x:
        yes.update(float(value))
    for value in out:
        no.update(float(value))
    answer: YesNo = "undecided"
    if no.rejected:
        answer = "no"
    elif yes.rejected and x.mean() >= worth - 1e-12:
        answer = "yes"
    return Later(answer, yes.p, no.p)


def later_bounds(
    values: ArrayLike, scale: Scale, *, first: int, stake: float, level: float = 0.95
) -> tuple[float, float]:
    """Bounds on the mean that hold at every look, from per-start ``values`` (S,) in the order of `Looks`."""
    x, span = _in_range(values, scale)
    test = SequentialTest(span, horizon=max(HORIZON, 2 * first), fixed=stake)
    test.values = x.tolist()
    return test.bounds(level, steps=12)


def _in_range(values: ArrayLike, scale: Scale) -> tuple[NDArray[np.float64], Scale]:
    """The values that exist, and a scale that holds them: takes that are missing in one arm can widen it."""
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    if not x.size:
        return x, scale
    return x, Scale(min(scale.lo, float(x.min())), max(scale.hi, float(x.max())), scale.pseudo)
