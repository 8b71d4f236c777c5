"""Rejecting instead of picking, in the form of the result: `besttake.core.reject` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from besttake import result as r
from besttake.core import reject, stats
from besttake.core.crossfit import folds_of
from besttake.core.estimate import Estimate
from besttake.core.headroom import F64, mean, start_pass_at_k
from besttake.measure.auto import AutoChoice
from besttake.measure.cells import ArmTakes, CellData
from besttake.measure.scores import ScoreName

_DRAWS = 2_000
_BLOCKS, _FEWEST = 10, 10
"""So often at most the threshold is chosen anew, and after so many starts at least."""


@dataclass(frozen=True)
class HeldOut:
    """Retrying where the thresholds of each start come from other starts.

    ``curve``: at the thresholds that each of `reject.RATES` of the takes passes; ``chosen``: at the one chosen there.
    """

    curve: tuple[reject.Retried, ...]
    chosen: reject.Retried


def held_out(outcomes: F64, scores: F64, n: int) -> HeldOut:
    """Retry at most n times by ``scores`` (S, N), with the thresholds of starts of other folds."""
    return _held_out(outcomes, _by_folds(scores), n)


def _held_out(outcomes: F64, by: _Groups, n: int) -> HeldOut:
    groups, scores, others = by
    curve = [reject.held_out(outcomes, scores, groups, others, rate, n) for rate in reject.RATES]
    return HeldOut(tuple(curve), reject.held_out(outcomes, scores, groups, others, None, n))


def estimates(takes: F64, success: F64, single: F64, n: int) -> tuple[Estimate, Estimate, Estimate]:
    """Takes and success of retrying, and its gain over a single take, from the values of all starts."""
    return (
        stats.mean_interval(takes, stats.Scale(1.0, float(n), (1.0, float(n))), draws=_DRAWS),
        stats.mean_interval(success, stats.unit_scale(), draws=_DRAWS),
        stats.mean_interval(success - single, stats.pick_scale(), draws=_DRAWS),
    )


def rejection_of(data: CellData, n: int) -> r.Rejection | None:
    """What "retry until the score passes, at most n times" gives on base; None where there is nothing to reject by.

    The threshold of each start comes from starts of other folds; where the scorer is chosen, both come from the starts
    before it, as the choice of ``auto`` itself does.
    """
    base, window = data.arms["base"], data.windows[0]
    scores, outcomes = base.score(data.score_name), base.outcomes
    if scores is None or n < 2 or data.deterministic or window == "episode":
        return None
    auto = data.auto if data.scorer == "auto" else None
    held = _held_out(outcomes, _by_folds(scores) if auto is None else _in_turn(auto, base, window), n)
    final = scores if auto is None else base.scores[ScoreName(auto.final, window)]
    limit = reject.threshold_at(final, outcomes, reject.choose_rate(outcomes, final, n))
    takes, success, gain = estimates(held.chosen.takes, held.chosen.success, start_pass_at_k(outcomes, 1), n)
    return r.Rejection(
        n=n, scorer=data.scorer if auto is None else auto.final,
        threshold=limit if np.isfinite(limit) else None, takes=takes, success=success, gain=gain,
        curve=[
            r.RejectionPoint(passing=rate, takes=mean(one.takes), success=mean(one.success))
            for rate, one in zip(reject.RATES, held.curve, strict=True)
        ],
    )  # fmt: skip


_Groups = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]
"""What `reject.held_out` needs: the group of each start, the scores of each group, and the starts it learns from."""


def _by_folds(scores: NDArray[np.float64]) -> _Groups:
    folds = folds_of(len(scores))
    others = np.stack([folds != fold for fold in np.unique(folds)])
    return folds, np.stack([scores] * len(others)), others


def _in_turn(auto: AutoChoice, base: ArmTakes, window: str) -> _Groups:
    """Starts in blocks, as they came; one block may have several scorers.

    Folds would not do where the scorer is chosen: `besttake.core.crossfit` says why.
    """
    blocks = np.empty(len(auto.order), dtype=np.int64)
    blocks[auto.order] = np.arange(len(auto.order)) // max(_FEWEST, -(-len(auto.order) // _BLOCKS))
    pairs, groups = np.unique(np.stack([blocks, auto.chosen]), axis=1, return_inverse=True)
    stacked = np.stack([base.scores[ScoreName(auto.menu[chosen], window)] for chosen in pairs[1]])
    return groups.ravel(), stacked, np.stack([blocks < block for block in pairs[0]])
