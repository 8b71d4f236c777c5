"""Rejecting instead of picking, in the form of the result: `besttake.core.select` has the formulas."""

from __future__ import annotations

import numpy as np

from besttake import result as r
from besttake.core import select, stats
from besttake.core.headroom import mean, start_pass_at_k
from besttake.measure.cells import CellData

_DRAWS = 2_000
_FOLDS = 5


def rejection_of(data: CellData, n: int) -> r.Rejection | None:
    """What "retry until the score passes, at most n times" gives on base; None where there is nothing to reject by.

    The threshold of each start comes from starts of other folds.
    """
    base, window = data.arms["base"], data.windows[0]
    scores, outcomes = base.score(data.score_name), base.outcomes
    if scores is None or n < 2 or data.deterministic or window == "episode":
        return None
    # Neighbours fall into different folds, so that each fold has starts of every task.
    folds = np.arange(len(scores)) % max(1, min(_FOLDS, len(scores)))
    others = np.stack([folds != fold for fold in np.unique(folds)])
    each = np.stack([scores] * len(others))
    curve = [(rate, select.held_out(outcomes, each, folds, others, rate, n)) for rate in select.RATES]
    chosen = select.held_out(outcomes, each, folds, others, None, n)
    limit = select.threshold_at(scores, outcomes, select.choose_rate(outcomes, scores, n))
    return r.Rejection(
        n=n, scorer=data.scorer, threshold=limit if np.isfinite(limit) else None,
        takes=stats.mean_interval(chosen.takes, stats.Scale(1.0, float(n), (1.0, float(n))), draws=_DRAWS),
        success=stats.mean_interval(chosen.success, stats.unit_scale(), draws=_DRAWS),
        gain=stats.mean_interval(chosen.success - start_pass_at_k(outcomes, 1), stats.pick_scale(), draws=_DRAWS),
        curve=[
            r.RejectionPoint(passing=rate, takes=mean(one.takes), success=mean(one.success)) for rate, one in curve
        ],
    )  # fmt: skip
