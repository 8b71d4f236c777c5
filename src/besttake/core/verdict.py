"""Is something worth acting on? The rule by which every question of a diagnosis is answered.

A question is about a mean over starts and a smallest effect worth acting on, w: YES when {mean <= 0} is rejected and
the estimate is at least w, NO when {mean >= w} is rejected, else OPEN. The two nulls are disjoint, so each one-sided
test uses the whole alpha = .05; the tests hold for few mixed starts (`stats.p_not_above`).

An answer that was given stays. It was valid, with its level, when it was given, and taking it back because one more
start came in would invite people to start over, which is the very peeking that the level guards against. So a later
look at more starts settles only what was open, by the test of `besttake.core.sequential`. The finding then holds both
estimates: that of all starts, and that of the look at which it was answered.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.estimate import Estimate, Finding, YesNo
from besttake.core.sequential import HORIZON, Looks, Track, bounds, tracks
from besttake.core.stats import Rng, Scale, mean_interval, p_not_above, p_not_below


def ask(
    values: ArrayLike,
    scale: Scale,
    worth: float,
    *,
    ruling: ArrayLike | None = None,
    alpha: float = 0.05,
    rng: Rng = 0,
    draws: int = 10_000,
) -> Finding:
    """Is the mean over starts of ``values`` (S,) worth it? The first look at a fixed sample.

    ``ruling`` (S,): the values that a NO may rest on; all unless given. ``draws`` of the bootstrap and of each test.
    """
    x = _existing(values)
    estimate = mean_interval(x, scale, rng=rng, draws=draws)
    if estimate.value is None:
        return Finding("open", estimate)
    above = p_not_above(x, 0.0, scale.lo, rng=rng, draws=draws)
    out = x if ruling is None else _existing(ruling)
    below = p_not_below(out, worth, scale.hi, rng=rng, draws=draws) if scale.hi > worth else 0.0
    answer: YesNo = "open"
    if above <= alpha and estimate.value >= worth - 1e-12:
        answer = "yes"
    elif below <= alpha:
        answer = "no"
    return _finding(answer, estimate, (above, below), x, scale)


def ask_again(
    values: ArrayLike,
    scale: Scale,
    worth: float,
    looks: Looks,
    stake: float,
    *,
    name: str = "",
    ruling: ArrayLike | None = None,
    alpha: float = 0.05,
) -> Finding:
    """`ask` where one looks more than once: ``values`` (S,) in the order of the run, which ``looks`` sorts.

    A run until decided has bounds for its interval that hold whenever one looks. An extended run has the interval of
    its present starts.
    """
    every = np.asarray(values, dtype=np.float64)[looks.order]
    out = every if ruling is None else np.asarray(ruling, dtype=np.float64)[looks.order]
    x = _existing(every)
    estimate = estimate_again(values, scale, looks, stake)
    if estimate.value is None:
        return Finding("open", estimate)
    horizon = HORIZON if looks.until else max(HORIZON, 2 * max(looks.earlier))
    (track,) = tracks(
        every[:, None], [scale], [stake], worth, ruling=out[:, None], alpha=looks.left(alpha), horizon=horizon
    )
    # A part of alpha is left for later looks, so that the p-values count several times.
    times = alpha / looks.left(alpha)
    above, below = (min(1.0, times * p) for p in track.p_values(every.size))
    finding = _finding(track.answer(every.size), estimate, (above, below), x, scale)
    finding = replace(finding, when_answered=_when_answered(track, finding, worth))
    given = looks.answered.get(name)
    return finding if given is None else replace(finding, answer=given.answer, when_answered=_as_given(given, estimate))


def estimate_again(values: ArrayLike, scale: Scale, looks: Looks, stake: float) -> Estimate:
    """Mean of ``values`` (S,) with its interval; for a run until decided, with bounds that hold at any time."""
    x = _existing(np.asarray(values, dtype=np.float64)[looks.order])
    if not looks.until or not x.size:
        return mean_interval(x, scale)
    low, high = bounds(x, scale, stake)
    value = float(x.mean())
    return Estimate(value, min(low, value), max(high, value), int(x.size))


def _finding(answer: YesNo, estimate: Estimate, p_values: tuple[float, float], x: np.ndarray, scale: Scale) -> Finding:
    value = float(x.mean())
    # The half pseudo-starts enter the variance as well, so that no mixed start does not read as no variance.
    variance = float((np.sum((x - value) ** 2) + 0.5 * np.sum((np.array(scale.pseudo) - value) ** 2)) / x.size)
    return Finding(answer, estimate, *p_values, variance)


def _when_answered(track: Track, finding: Finding, worth: float) -> Estimate | None:
    """The estimate at the answer, where that of all starts no longer fits it."""
    above = (finding.estimate.value or 0.0) >= worth - 1e-12
    after = min(track.yes, track.no)
    if after < 1 or (finding.answer, above) not in (("yes", False), ("no", True)):
        return None
    return Estimate(float(track.mean[after - 1]), n=int(track.count[after - 1]))


def _as_given(given: Finding, now: Estimate) -> Estimate | None:
    """The estimate with which a question was first answered, however often it was looked at since; None if it is now's.

    So whoever looks at the same takes again reads the same.
    """
    if given.when_answered is not None:
        return given.when_answered
    return given.estimate if given.estimate != now else None


def _existing(values: ArrayLike) -> np.ndarray:
    x = np.asarray(values, dtype=np.float64)
    return x[~np.isnan(x)]
