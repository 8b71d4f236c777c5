"""The rules of a verdict: whether something is worth acting on, and which option to choose (docs/verdict.md).

**A question** is about a mean over starts and w, the smallest effect worth acting on: YES if {mean <= 0} is rejected
and the estimate is at least w, NO if {mean >= w} is rejected, else OPEN. The two nulls are disjoint, so each one-sided
test uses the whole alpha = .05. An answer stays: a later look at more starts settles only what was open, by the test of
`besttake.core.sequential`, and the finding then holds both estimates.

**An option** is an arm with one take, or with the best of N takes by the run's score. The recommendation is the
cheapest option that is *shown* to be within ``worth`` of every other: for each other option, a paired test rejects that
it is better by ``worth`` or more. If there is none, it is the option with the best estimate.

**Its gain is corrected for the choice**, which makes the best of six estimates 1 to 2 points too high with 80 starts.
`optimism` measures by how much: the rule chooses on four fifths of the starts, and its choice is estimated on these and
on the other fifth. The mean difference may be negative; cutting it off at 0 would correct by too much.

**That an option gains at all** is a claim about all options: whatever their correlations, the chance that any option
without a true gain is shown to gain is at most alpha. A fixed sample uses Holm's step-down test (`holm`), a run that is
looked at repeatedly closed testing by averaging e-values (`claimed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.arithmetic import F64, Bools
from besttake.core.sequential import HORIZON, RepeatedLooks, Track, bounds, tracks
from besttake.core.stats import Estimate, Finding, Rng, Scale, YesNo, mean_interval, p_not_above, p_not_below

Shows = Callable[[int, int], bool]
"""``shows(j, k)``: whether option j is shown not to be better than option k by ``worth``."""
_FOLDS, _REPEATS, _DRAWS = 5, 4, 1000


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
    """Is the mean over starts of ``values`` (S,) worth acting on? The first look at a fixed sample.

    ``ruling`` (S,): the values that a NO may rest on (default: all). ``draws``: of the bootstrap and of each test.
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
    looks: RepeatedLooks,
    stake: float,
    *,
    name: str = "",
    ruling: ArrayLike | None = None,
) -> Finding:
    """`ask` for data that are looked at more than once; ``looks`` gives the order of ``values`` (S,).

    The interval of a run until decided is valid at any time. An extended run has the interval of its present starts.
    """
    every = np.asarray(values, dtype=np.float64)[looks.order]
    out = every if ruling is None else np.asarray(ruling, dtype=np.float64)[looks.order]
    x = _existing(every)
    estimate = estimate_again(values, scale, looks, stake)
    if estimate.value is None:
        return Finding("open", estimate)
    horizon = HORIZON if looks.until else max(HORIZON, 2 * max(looks.earlier))
    (track,) = tracks(every[:, None], [scale], [stake], worth, ruling=out[:, None], alpha=looks.left(), horizon=horizon)
    # These looks have only a part of alpha, so their p-values are scaled up.
    times = 0.05 / looks.left()
    above, below = (min(1.0, times * p) for p in track.p_values(every.size))
    finding = _finding(track.answer(every.size), estimate, (above, below), x, scale)
    before = looks.answered.get(name)
    if before is None:
        return replace(finding, when_answered=_when_answered(track, finding, worth))
    # The first answer and its estimate stay, so that looking at the same takes again changes nothing.
    at_answer = before.when_answered or (before.estimate if before.estimate != estimate else None)
    return replace(finding, answer=before.answer, when_answered=at_answer)


def estimate_again(values: ArrayLike, scale: Scale, looks: RepeatedLooks, stake: float) -> Estimate:
    """The mean of ``values`` (S,) with its interval, which for a run until decided is valid at any time."""
    x = _existing(np.asarray(values, dtype=np.float64)[looks.order])
    if not looks.until or not x.size:
        return mean_interval(x, scale)
    low, high = bounds(x, scale, stake)
    value = float(x.mean())
    return Estimate(value, min(low, value), max(high, value), int(x.size))


def _finding(answer: YesNo, estimate: Estimate, p_values: tuple[float, float], x: np.ndarray, scale: Scale) -> Finding:
    value = float(x.mean())
    # The variance includes the half pseudo-starts, so that it is not 0 where no start is mixed.
    variance = float((np.sum((x - value) ** 2) + 0.5 * np.sum((np.array(scale.pseudo) - value) ** 2)) / x.size)
    return Finding(answer, estimate, *p_values, variance)


def _when_answered(track: Track, finding: Finding, worth: float) -> Estimate | None:
    """The estimate at the time of the answer, if the estimate of all starts no longer agrees with the answer."""
    above = (finding.estimate.value or 0.0) >= worth - 1e-12
    after = min(track.yes, track.no)
    if after < 1 or (finding.answer, above) not in (("yes", False), ("no", True)):
        return None
    return Estimate(float(track.mean[after - 1]), n=int(track.count[after - 1]))


def _existing(values: ArrayLike) -> np.ndarray:
    x = np.asarray(values, dtype=np.float64)
    return x[~np.isnan(x)]


def holm(p_values: ArrayLike, alpha: float = 0.05) -> Bools:
    """Which nulls (K,) Holm's step-down test rejects; the chance of any false rejection is at most ``alpha``."""
    p = np.asarray(p_values, dtype=np.float64)
    rejected = np.zeros(len(p), dtype=bool)
    for place, i in enumerate(np.argsort(p, kind="stable")):
        if p[i] > alpha / (len(p) - place):
            break
        rejected[i] = True
    return rejected


def claimed(e_values: ArrayLike, alpha: float = 0.05) -> Bools:
    """Which options (K,) their e-values (T, K) show to gain; the chance of any false claim is at most ``alpha``.

    An option is claimed at a time when, for every k, the average of its e-value and the k smallest others reaches
    1 / alpha: then the average over every set that contains the option does.
    """
    e = np.atleast_2d(np.asarray(e_values, dtype=np.float64))
    count = e.shape[1]
    if count == 0:
        return np.zeros(0, dtype=bool)
    ranked = np.sort(e, axis=1)
    smallest = np.concatenate([np.zeros((len(e), 1)), np.cumsum(ranked, axis=1)], axis=1)  # (T, K + 1)
    claims = np.zeros(count, dtype=bool)
    sizes = np.arange(1, count + 1)
    for i in range(count):
        value = e[:, [i]]
        # If the option is itself among the k smallest, the next smallest takes its place.
        inside = ranked[:, :count] >= value
        among = np.concatenate([np.zeros((len(e), 1), dtype=bool), inside], axis=1)[:, :count]
        others = np.where(among, smallest[:, 1:] - value, smallest[:, :count])
        claims[i] = bool(np.any(np.all((value + others) / sizes >= 1 / alpha - 1e-12, axis=1)))
    return claims


@dataclass(frozen=True)
class Recommendation:
    """The recommended ``option`` (its column), and whether it is shown to be ``within`` worth of every other.

    ``best`` is the column of the best estimate. ``cheaper`` is the best of the cheaper options by estimate, None if the
    recommended one is the cheapest.
    """

    option: int
    within: bool
    best: int
    cheaper: int | None


def recommend(success: F64, worth: float, shows: Shows | None = None) -> Recommendation:
    """Recommend an option from ``success`` (S, K) of each start and option, cheapest first; NaN where there is none.

    Column 0 is the frozen policy with one take, which every counted start has. ``shows`` is the test that decides
    (default: the test for a fixed sample).
    """
    shows = shows or _fixed_test(success, worth)
    gains = _means(success - success[:, :1])
    best = int(np.argmax(np.round(gains, 9)))
    if not np.isfinite(gains[best]):  # no start has a take of base
        return Recommendation(0, False, 0, None)
    for option in range(best + 1):
        others = sorted(set(range(len(gains))) - {option}, key=lambda j: -gains[j])
        if gains[best] - gains[option] < worth and all(shows(j, option) for j in others):
            break
    else:
        return Recommendation(best, False, best, _best_before(gains, best))
    return Recommendation(option, True, best, _best_before(gains, option))


def optimism(success: F64, worth: float) -> float:
    """By how much the estimate of the recommended option is too high because the option was chosen (`recommend`)."""
    count = len(success)
    folds = min(_FOLDS, count)
    if folds < 2:
        return 0.0
    generator, gaps = np.random.default_rng(0), []
    gains = success - success[:, :1]
    for _ in range(_REPEATS):
        fold = generator.permutation(count) % folds
        for held in range(folds):
            seen = success[fold != held]
            option = recommend(seen, worth, _fixed_test(seen, worth)).option
            gaps.append(_mean(gains[fold != held, option]) - _mean(gains[fold == held, option]))
    known = [gap for gap in gaps if np.isfinite(gap)]  # a fold may have no take of an option
    # The optimism of an estimate falls with the root of the starts, and all of them are more than four fifths.
    return float(np.mean(known) * np.sqrt(1 - 1 / folds)) if known else 0.0


def _fixed_test(success: F64, worth: float) -> Shows:
    def shows(j: int, k: int) -> bool:
        gap = success[:, j] - success[:, k]
        return _mean(gap) < worth and p_not_below(gap, worth, 1.0, draws=_DRAWS) <= 0.05

    return shows


def _best_before(gains: F64, option: int) -> int | None:
    return int(np.argmax(np.round(gains[:option], 9))) if option else None


def _means(values: F64) -> F64:
    return np.array([_mean(column) for column in values.T])


def _mean(values: F64) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else -np.inf
