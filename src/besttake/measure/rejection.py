"""Rejecting instead of picking, in the form of the result: `besttake.core.reject` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from besttake import result as r
from besttake.core import reject, stats
from besttake.core.estimate import Estimate
from besttake.core.headroom import F64, mean, start_pass_at_k
from besttake.measure.cells import CellData

_DRAWS = 2_000
_FOLDS = 5


@dataclass(frozen=True)
class HeldOut:
    """Retrying where the thresholds of each start come from other starts.

    ``curve``: at the thresholds that each of `reject.RATES` of the takes passes; ``chosen``: at the one chosen there.
    """

    curve: tuple[reject.Retried, ...]
    chosen: reject.Retried


def held_out(outcomes: F64, scores: F64, n: int) -> HeldOut:
    """Retry at most n times by ``scores`` (S, N), with the thresholds of starts of other folds."""
    # Neighbours fall into different folds, so that each fold has starts of every task.
    folds = np.arange(len(scores)) % max(1, min(_FOLDS, len(scores)))
    others = np.stack([folds != fold for fold in np.unique(folds)])
    each = np.stack([scores] * len(others))
    curve = [reject.held_out(outcomes, each, folds, others, rate, n) for rate in reject.RATES]
    return HeldOut(tuple(curve), reject.held_out(outcomes, each, folds, others, None, n))


def estimates(takes: F64, success: F64, single: F64, n: int) -> tuple[Estimate, Estimate, Estimate]:
    """Takes and success of retrying, and its gain over a single take, from the values of all starts."""
    return (
        stats.mean_interval(takes, stats.Scale(1.0, float(n), (1.0, float(n))), draws=_DRAWS),
        stats.mean_interval(success, stats.unit_scale(), draws=_DRAWS),
        stats.mean_interval(success - single, stats.pick_scale(), draws=_DRAWS),
    )


def rejection_of(data: CellData, n: int) -> r.Rejection | None:
    """What "retry until the score passes, at most n times" gives on base; None where there is nothing to reject by.

    The threshold of each start comes from starts of other folds.
    """
    base, window = data.arms["base"], data.windows[0]
    scores, outcomes = base.score(data.score_name), base.outcomes
    if scores is None or n < 2 or data.deterministic or window == "episode":
        return None
    held = held_out(outcomes, scores, n)
    limit = reject.threshold_at(scores, outcomes, reject.choose_rate(outcomes, scores, n))
    takes, success, gain = estimates(held.chosen.takes, held.chosen.success, start_pass_at_k(outcomes, 1), n)
    return r.Rejection(
        n=n, scorer=data.scorer, threshold=limit if np.isfinite(limit) else None, takes=takes, success=success,
        gain=gain, curve=[
            r.RejectionPoint(passing=rate, takes=mean(one.takes), success=mean(one.success))
            for rate, one in zip(reject.RATES, held.curve, strict=True)
        ],
    )  # fmt: skip
