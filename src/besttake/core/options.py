"""Which option is best: an arm with one take, or with the best of N takes by a score.

Each option is asked whether it beats the frozen policy with one take, by the rule of `besttake.core.verdict`: it is
*shown* when {mean <= 0} is rejected and its estimate is at least worth. A menu has six to ten options, and the best of
several that gain nothing looks like a gain. So a claim is about the whole menu: the chance that any option is shown
that truly gains nothing, or harms, is at most alpha = .05, however the options hang together.

- A fixed sample: Holm's step-down test over the p-values (`holm`).
- A run that is looked at again and again: closed testing by averaging e-values (`claimed`). Half of the two accounts of
  `besttake.core.sequential` is an e-value at any time, and so is the average of several, which tests that none of
  them gains. An option is claimed once every set that holds it is rejected.

"None" needs no correction: an option worth acting on is ruled out by its own test with a chance of at most alpha,
and all have to be ruled out. `tests/core/test_options.py` measures both errors.

The best option is the shown one with the largest estimate. "Best" is not tested: that it beats the others is a
stronger claim than that it beats the frozen policy, so those that are *not shown to be worse* in a paired test stand
beside it, the cheapest of them by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from besttake.core.estimate import YesNo
from besttake.core.stats import Rng

F64 = NDArray[np.float64]
MenuAnswer = Literal["act", "none", "undecided"]
"""Act: some option is shown to be worth it. None: every option is ruled out. Undecided: neither."""


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
class Offer:
    """An option as the choice sees it: its cost in takes, the options cheaper than it, its answer and estimate.

    ``shown``: it beats the frozen policy, with the error of the whole menu under control.
    """

    name: str
    takes: int
    cheaper: frozenset[str]
    answer: YesNo
    value: float | None
    shown: bool


def menu_answer(offers: Sequence[Offer]) -> MenuAnswer:
    """What a menu says as a whole."""
    if any(offer.shown for offer in offers):
        return "act"
    return "none" if offers and all(offer.answer == "no" for offer in offers) else "undecided"


def best_of(offers: Sequence[Offer]) -> Offer | None:
    """The shown option with the largest estimate, of equal ones the cheapest; None where none is shown."""
    shown = [offer for offer in offers if offer.shown and offer.value is not None]
    return max(shown, key=lambda offer: (offer.value or 0.0, -offer.takes, -len(offer.cheaper)), default=None)


def cheapest_of(offers: Sequence[Offer], best: Offer, not_worse: Sequence[str]) -> Offer | None:
    """The cheapest shown option that costs less than ``best`` and is not shown to be worse; None if there is none."""
    fit = [offer for offer in offers if offer.shown and offer.name in not_worse and offer.name in best.cheaper]
    return min(fit, key=lambda offer: (offer.takes, len(offer.cheaper), -(offer.value or 0.0)), default=None)


@dataclass(frozen=True)
class Bet:
    """If one had to act now: the option (its index; None for the frozen policy) with the highest expected gain.

    ``chance``: how probable it is, after these starts, that the option gains at least nothing.
    """

    index: int | None
    expected: float
    chance: float


def act_now(values: ArrayLike, pseudo: ArrayLike, least: ArrayLike = 0.0, *, rng: Rng = 0, draws: int = 2_000) -> Bet:
    """The option to take if one had to, from ``values`` (S, K) of each start and the ``pseudo`` ends (K, 2).

    One whose expected gain is below its ``least`` (K,) is not worth its cost.

    The Bayesian bootstrap over starts with half a pseudo-start at each end of the range, as in the intervals; starts
    without a value for an option leave that option's other starts as they are.
    """
    x, ends = np.asarray(values, dtype=np.float64), np.asarray(pseudo, dtype=np.float64)
    known = np.isfinite(x)
    rows = np.concatenate([np.where(known, x, 0.0), ends.T])
    counted = np.concatenate([known, np.isfinite(ends.T)]).astype(np.float64)
    shape = np.concatenate([np.ones(len(x)), np.full(2, 0.5)])
    weights = np.random.default_rng(rng).standard_gamma(shape, size=(draws, len(shape)))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (weights @ rows) / (weights @ counted)
    expected = np.where(known.any(axis=0), means.mean(axis=0), -np.inf)
    expected = np.where((expected > 0) & (expected >= least), expected, -np.inf)
    if not np.isfinite(expected).any():
        return Bet(None, 0.0, 1.0)
    index = int(expected.argmax())
    return Bet(index, float(expected[index]), float(np.mean(means[:, index] >= 0)))
