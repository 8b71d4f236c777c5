"""What a run promises of an option on new starts, and whether new starts keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from besttake.core.sequential import bounds, fixed_stake
from besttake.core.stats import Estimate, unit_scale
from besttake.errors import PlanError
from besttake.measure.verdict import corrected
from besttake.result import Cell


@dataclass(frozen=True)
class Promise:
    """An option of a run: at most ``n`` takes of ``arm``, of which the best by ``scorer`` on ``window`` is kept.

    ``threshold``: a take whose score reaches it is kept at once; None where all n takes are made. ``success`` and
    ``takes`` (per start) are what the run predicts for new starts. `besttake act` keeps the thresholded form, whose
    threshold the run chose on other starts than it judged it on.
    """

    policy: str
    option: str
    arm: str
    n: int
    scorer: str
    window: str
    threshold: float | None
    success: Estimate
    takes: float

    def accepts(self, score: float | None) -> bool:
        """Whether a take with this score is kept without another."""
        return self.n == 1 or (None not in (score, self.threshold) and score >= self.threshold)  # type: ignore[operator]


def promise_of(cell: Cell, name: str = "") -> Promise:
    """The promise of the option called ``name`` in a cell, the recommended one unless given."""
    verdict = cell.verdict
    if verdict is None:
        raise PlanError(f"{cell.policy}: the run has no verdict for it, so there is nothing to act on")
    option = verdict.row(name or verdict.option)
    if option is None:
        listed = ", ".join(repr(each.name) for each in verdict.options)
        raise PlanError(f"`option` {name}: {cell.policy} has the options {listed}")
    success, takes, threshold = verdict.shown_as(option)[0], float(option.takes), None
    one = cell.rejection
    # On other windows the score of a take depends on the takes that it is compared with.
    if option.takes > 1 and cell.window == "full" and one is not None and one.arm == option.arm:
        chosen = verdict.optimism if option.name == verdict.option else 0.0
        success, takes, threshold = corrected(one.success, chosen, least=0.0), one.takes.value or takes, one.threshold
    return Promise(
        cell.policy, option.name, option.arm, option.takes, option.scorer or cell.scorer, cell.window, threshold,
        success, takes,
    )  # fmt: skip


def success_so_far(kept: Sequence[bool], seeds: int) -> Estimate:
    """Mean success of the takes that were kept, in order, with 95 % bounds that hold whenever one looks."""
    if not kept:
        return Estimate(reason="no take has been kept yet")
    low, high = bounds([float(one) for one in kept], unit_scale(), fixed_stake("gain", seeds))
    value = sum(kept) / len(kept)
    return Estimate(value, min(low, value), max(high, value), len(kept))


def is_broken(promise: Promise, success: Estimate) -> bool:
    """Whether the bounds on ``success`` lie below the whole interval that was promised."""
    return None not in (success.high, promise.success.low) and success.high < promise.success.low  # type: ignore[operator]
