"""How many starts and takes settle a question: planned before a run, or forecast for what a run left open.

**Before a run**, `plan` needs one number of the policy, or pilot outcomes. The number is v = pass@2 - pass@1 =
E[p (1 - p)], the variance between seeds within a start. A blind choice of n among k takes, averaged over all subsets,
has a gain of variance v * sum_r (w_r - 1/k)^2, with w_r as in `select.rank_weights`: .667 v for 3 of 3, .26 v for 3 of
5. The gain of a score that ranks well mostly varies less, but up to twice as much where successes are rare, so plan
from pilot gains where there are any.

**For open questions**, `futures` and `forecast` simulate how the run goes on: further starts are drawn from the
Bayesian bootstrap over the starts so far (as for the intervals in `besttake.core.stats`), all questions of a start
together, and the test that decides is applied after each start. The forecast range holds the real number 8 times in 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from besttake.core.arithmetic import F64
from besttake.core.select import rank_weights
from besttake.core.sequential import follow
from besttake.core.stats import Forecast, Scale

FEWEST = 30
"""No verdict is planned for fewer starts, however large the effect."""

DECIDES = 7.4
"""Median starts until decided = DECIDES * sigma^2 / delta^2, fitted to simulations of the sequential test."""

Advice = Literal["as-the-paper", "more-seeds", "more-starts"]
"""How to spend takes: on the paper's three seeds, on more seeds per start, or on more starts."""
NEVER = np.inf
BOTH = ("combine", "retrieve_selection")
"""Questions that both have to be a YES if the pair is to beat selection alone and retrieval alone."""
TAILS = (0.12, 0.88)
"""The quantiles of the futures at which a forecast begins and ends; a range that is open above cannot be too low."""


@dataclass(frozen=True)
class SampleSize:
    """How many starts, or where the name says so takes, a run needs. None where no gain is expected.

    ``half_width_starts``: for a 95 % interval of +/- worth. ``yes_starts``: the median until a gain of ``gain`` is
    shown. ``no_starts``: the median until a gain of zero is shown to be below worth.
    """

    v: float
    sigma2: float
    seeds: int
    n: int
    worth: float
    half_width_starts: int
    half_width_takes: int
    yes_starts: int | None
    no_starts: int
    no_takes: int
    advice: Advice
    within_auc: float | None = None


def v_from_pass1(pass1: float) -> float:
    """The typical v when only pass@1 is known.

    The largest possible is pass@1 (1 - pass@1). On the paper's eight (pass@1, pass@3) pairs, v is .44 to .85 of that,
    and .66 on average.
    """
    if not 0 <= pass1 <= 1:
        raise ValueError(f"pass@1 must be a fraction between 0 and 1, not {pass1}")
    return 0.66 * pass1 * (1 - pass1)


def blind_variance(v: float, seeds: int = 3, n: int = 3) -> float:
    """Variance of G_i for a blind choice of n among ``seeds`` takes, averaged over all subsets."""
    return v * float(np.sum((rank_weights(seeds, n) - 1 / seeds) ** 2))


def content_variance(v: float, seeds: int) -> float:
    """Variance of the content gain C_i between two arms of ``seeds`` takes each that share no randomness: 2 v / seeds.

    Common random numbers make it smaller; an effect that differs between starts makes it larger.
    """
    return 2 * v / seeds


def starts_for_half_width(sigma2: float, half_width: float) -> int:
    """Starts for a 95 % interval of +/- ``half_width``: z^2 sigma^2 / h^2."""
    z = float(ndtri(0.975))
    return max(1, ceil(z**2 * sigma2 / half_width**2 - 1e-9))


def starts_until_decided(sigma2: float, delta: float) -> int:
    """Median starts of the sequential test: max(30, 7.4 sigma^2 / delta^2); delta = G for a YES, w - G for a NO."""
    return max(FEWEST, ceil(DECIDES * sigma2 / delta**2 - 1e-9))


def seeds_worth(seeds: int) -> float:
    """The value of a take in a blind choice of 3 of ``seeds`` takes, relative to 3 of 3: 1.54 for 5 seeds."""
    return 3 * blind_variance(1.0) / (seeds * blind_variance(1.0, seeds))


def seeds_or_starts(within_auc: float | None) -> Advice:
    """How to spend takes to measure G: on more seeds per start if the ranking is weak, on more starts if it is good."""
    if within_auc is None:
        return "as-the-paper"
    return "more-seeds" if within_auc < 0.8 else "more-starts"


def plan(
    v: float,
    worth: float = 0.03,
    *,
    seeds: int = 3,
    n: int = 3,
    gain: float | None = None,
    within_auc: float | None = None,
    sigma2: float | None = None,
) -> SampleSize:
    """Plan for the selection gain; fractions, not points. ``sigma2`` from pilot gains replaces the blind variance."""
    if worth <= 0:
        raise ValueError("the smallest effect worth acting on must be above zero")
    spread = blind_variance(v, seeds, n) if sigma2 is None else sigma2
    half, no = starts_for_half_width(spread, worth), starts_until_decided(spread, worth)
    return SampleSize(
        v=v, sigma2=spread, seeds=seeds, n=n, worth=worth, half_width_starts=half, half_width_takes=half * seeds,
        yes_starts=starts_until_decided(spread, gain) if gain is not None and gain > 0 else None,
        no_starts=no, no_takes=no * seeds,
        advice=seeds_or_starts(within_auc), within_auc=within_auc,
    )  # fmt: skip


@dataclass(frozen=True)
class Futures:
    """The further starts until each question is a YES, and until it is a NO, in B simulations (B,); inf for never."""

    yes: Mapping[str, F64]
    no: Mapping[str, F64]
    most: int

    def settled(self, part: str) -> F64 | None:
        """The further starts until a part of the verdict is settled in each future (B,); None where it cannot be."""
        yes, no = self.yes, self.no
        if part == "both":
            if not set(BOTH) <= set(yes):
                return None
            together = np.maximum(*(yes[name] for name in BOTH))
            return np.asarray(np.minimum.reduce([together, *(no[name] for name in BOTH)]))
        question = "gain" if part == "takes" else part
        if question not in yes:
            return None
        # Ruling out headroom also rules out a gain from more takes.
        ruled_out = no.get("headroom", no[question]) if part == "takes" else no[question]
        return np.asarray(np.minimum.reduce([yes[question], no[question], ruled_out]))


def futures(
    values: ArrayLike,
    names: Sequence[str],
    scales: Sequence[Scale],
    stakes: Sequence[float],
    worth: float,
    most: int,
    *,
    alpha: float = 0.05,
    draws: int = 100,
) -> Futures:
    """Draw futures of ``most`` further starts after ``values`` (T, Q) in the order of the run, NaN for no value.

    ``alpha`` is the level of the test that decides.
    """
    x = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(0)
    rows = np.concatenate([x, np.array([[s.pseudo[0] for s in scales], [s.pseudo[1] for s in scales]])])
    shape = np.concatenate([np.ones(len(x)), np.full(2, 0.5)])
    share = np.cumsum(rng.standard_gamma(shape, size=(draws, len(shape))), axis=1)
    share /= share[:, -1:]
    at = np.stack([np.searchsorted(weights, rng.random(most), side="right") for weights in share], axis=1)
    ahead = rows[np.minimum(at, len(rows) - 1)]  # (most, draws, Q)
    whole = np.concatenate([np.broadcast_to(x[:, None, :], (len(x), draws, len(names))), ahead])
    first = follow(np.stack([whole, whole], axis=-1), scales, stakes, worth, alpha=alpha)[0]
    yes, no = np.moveaxis(np.where(first > len(whole), NEVER, first), -1, 0)  # (draws, Q)
    yes, no = np.where(yes < no, yes, NEVER), np.where(no <= yes, no, NEVER)
    yes, no = np.maximum(0.0, yes - len(x)), np.maximum(0.0, no - len(x))
    return Futures(dict(zip(names, yes.T, strict=True)), dict(zip(names, no.T, strict=True)), most)


def forecast(settled: F64, most: int) -> Forecast:
    """The range of further starts from ``settled`` (B,) of `Futures`; beyond ``most`` there is no number."""
    low, high = np.quantile(settled, TAILS, method="inverted_cdf")
    return Forecast(
        low=None if low > most else max(1, int(low)), high=None if high > most else max(1, int(high)), most=most
    )
