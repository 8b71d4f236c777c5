"""How well a score ranks takes: AUC within starts (the real problem) and pooled over all takes (the paper's)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from besttake.core.estimate import Estimate
from besttake.core.headroom import F64, as_outcomes
from besttake.core.stats import Rng, mean_interval, unit_scale


def start_auc(outcomes: ArrayLike, scores: ArrayLike) -> F64:
    """AUC (S,) over the pairs of a success and a failure of the same start, ties one half; NaN if there is no pair.

    Takes without a valid score are left out.
    """
    y, s = _valid(outcomes, scores)
    win, lose = (y == 1)[:, :, None], (y == 0)[:, None, :]
    pairs = win & lose
    better = np.where(pairs, (s[:, :, None] > s[:, None, :]) + 0.5 * (s[:, :, None] == s[:, None, :]), 0.0)
    count = pairs.sum(axis=(1, 2))
    return np.where(count > 0, better.sum(axis=(1, 2)) / np.maximum(count, 1), np.nan)


def within_auc(outcomes: ArrayLike, scores: ArrayLike, *, rng: Rng = 0, level: float = 0.95) -> Estimate:
    """Within-start AUC, ``n`` mixed starts, each of weight one.

    A selector chooses once per start, so a start counts once; weighing by pairs would let starts with balanced
    outcomes count more. With three takes the two are the same.
    """
    auc = mean_interval(start_auc(outcomes, scores), unit_scale(), rng=rng, level=level)
    return auc if auc.n else Estimate(reason="no start has a success and a failure to rank")


def pooled_auc(outcomes: ArrayLike, scores: ArrayLike, *, level: float = 0.95) -> Estimate:
    """AUC over all takes of all starts; ``n`` starts. The interval is clustered by start, on the logit scale.

    Variance as in DeLong's, with the placements of a start's takes summed before squaring (Obuchowski, 1997). At an
    AUC of 0 or 1 it vanishes; the interval is then the exact one for as many trials as the rarer outcome has starts,
    which also set the degrees of freedom. With fewer than about 15 such starts it covers less than it says.
    """
    y, s = _valid(outcomes, scores)
    mask = ~np.isnan(y)
    start = np.broadcast_to(np.arange(len(y))[:, None], y.shape)[mask]
    label, value = y[mask] == 1, s[mask]
    wins, losses = int(label.sum()), int((~label).sum())
    size = int(mask.any(axis=1).sum())
    if not wins or not losses:
        return Estimate(n=size, reason="all takes ended alike, so there is nothing to rank")
    place = np.empty(value.size)
    place[label] = _below(value[~label], value[label]) / losses
    place[~label] = 1 - _below(value[label], value[~label]) / wins
    auc = float(place[label].mean())
    rare = min(np.unique(start[label]).size, np.unique(start[~label]).size)
    if auc in (0.0, 1.0):
        reach = 1 - ((1 - level) / 2) ** (1 / rare)
        return Estimate(auc, auc and auc - reach, auc or reach, size)
    pull = np.where(label, (place - auc) / wins, (place - auc) / losses)
    per_start = np.bincount(start, weights=pull, minlength=len(y))
    error = np.sqrt(size / max(size - 1, 1) * np.sum(per_start**2))
    reach = stdtrit(max(rare - 1, 1), (1 + level) / 2) * error / (auc * (1 - auc))
    logit = np.log(auc / (1 - auc))
    low, high = 1 / (1 + np.exp(-(logit + np.array([-reach, reach]))))
    return Estimate(auc, float(low), float(high), size)


def _below(reference: F64, values: F64) -> F64:
    ranked = np.sort(reference)
    between: F64 = np.searchsorted(ranked, values, "left") / 2 + np.searchsorted(ranked, values, "right") / 2
    return between


def _valid(outcomes: ArrayLike, scores: ArrayLike) -> tuple[F64, F64]:
    y, s = as_outcomes(outcomes), np.asarray(scores, dtype=np.float64)
    if y.shape != s.shape:
        raise ValueError(f"scores have shape {s.shape}, outcomes {y.shape}")
    return np.where(np.isfinite(s), y, np.nan), s
