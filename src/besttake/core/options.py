"""Which option to take: an arm with one take, or with the best of N takes by the run's score.

**The recommendation** is the cheapest option that is *shown* to be within `worth` of every other: for each other option
a paired test rejects that it is better by `worth` or more. Where no cheaper option is shown to be, it is the option
with the best estimate. "Not shown to be worse" is no reason to recommend anything: with 80 starts, two of three options
of which nothing more was known were worse by over 3 points.

**Its gain is corrected for the choice.** The best of six estimates is too high, by 1 to 2 points with 80 starts and by
4 to 6 with 20. `optimism` measures by how much: the rule chooses on four fifths of the starts, and its choice is
estimated on those and on the fifth that it has not seen. The difference, over many divisions, is what the choice adds;
where every division chooses the same option it is 0, and nothing is taken away. It is an estimate itself, and now and
then falls below 0; cut off there, it would take away too much on average.

**That an option gains at all** is a claim about the whole menu: the chance that any option is shown that truly gains
nothing is at most alpha, however the options hang together. A fixed sample uses Holm's step-down test (`holm`), a run
that is looked at repeatedly closed testing by averaging e-values (`claimed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from besttake.core.stats import Rng, p_not_below

F64 = NDArray[np.float64]
Shows = Callable[[int, int], bool]
"""``shows(j, k)``: whether option j is shown not to be better than option k by ``worth``."""
_FOLDS, _REPEATS, _DRAWS = 5, 4, 1000


def holm(p_values: ArrayLike, alpha: float = 0.05) -> NDArray[np.bool_]:
    """Which nulls (K,) Holm's step-down test rejects with a chance of at most ``alpha`` for any false rejection."""
    p = np.asarray(p_values, dtype=np.float64)
    rejected = np.zeros(len(p), dtype=bool)
    for place, i in enumerate(np.argsort(p, kind="stable")):
        if p[i] > alpha / (len(p) - place):
            break
        rejected[i] = True
    return rejected


def claimed(e_values: ArrayLike, alpha: float = 0.05) -> NDArray[np.bool_]:
    """Which options (K,) are claimed at any time by e-values (T, K), with a chance of ``alpha`` for any false claim.

    At one time an option is claimed when, for every k, its e-value plus the k smallest others, over k + 1, reaches
    1 / alpha: then the average over every set that holds it does.
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
        own = e[:, [i]]
        # Of the k smallest others: where the option itself is among the k smallest, the next one takes its place.
        inside = ranked[:, :count] >= own
        among = np.concatenate([np.zeros((len(e), 1), dtype=bool), inside], axis=1)[:, :count]
        others = np.where(among, smallest[:, 1:] - own, smallest[:, :count])
        claims[i] = bool(np.any(np.all((own + others) / sizes >= 1 / alpha - 1e-12, axis=1)))
    return claims


@dataclass(frozen=True)
class Recommendation:
    """The option to take (its column), and whether it is shown to be within ``worth`` of every other.

    ``best``: the column of the best estimate. ``cheaper``: of the options that cost less, the one with the best
    estimate; None where the recommended one is the cheapest.
    """

    option: int
    within: bool
    best: int
    cheaper: int | None


def recommend(success: F64, worth: float, shows: Shows | None = None) -> Recommendation:
    """The option to take of ``success`` (S, K), cheapest first, of each start and option; NaN where there is none.

    Column 0 is the frozen policy with one take, which every start has that counts. ``shows`` is the test that decides;
    the one for a fixed sample unless given.
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


def optimism(success: F64, worth: float, *, rng: Rng = 0) -> float:
    """How much too high the estimate of a recommended option is because it was chosen; see `recommend`."""
    count = len(success)
    folds = min(_FOLDS, count)
    if folds < 2:
        return 0.0
    generator, gaps = np.random.default_rng(rng), []
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
