"""The success that a run promises for an option on new starts, and whether new starts keep the promise."""

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
    """An option of a run and its prediction: the best of at most ``n`` takes of ``arm``, by ``scorer`` on ``window``.

    ``threshold``: a take whose score reaches it is kept at once; None if all n takes are played. ``success`` and
    ``takes`` (per start) are what the run predicts for new starts. With a threshold, they were estimated on starts
    that did not choose it.
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
        """Whether a take with this score is kept without playing another."""
        return self.n == 1 or (None not in (score, self.threshold) and score >= self.threshold)  # type: ignore[operator]


def promise_of(cell: Cell, name: str = "") -> Promise:
    """The promise of the option called ``name`` in a cell, by default the recommended one."""
    verdict = cell.verdict
    if verdict is None:
        raise PlanError(f"{cell.policy}: the run has no verdict for it, so there is nothing to act on")
    option = verdict.row(name or verdict.option)
    if option is None:
        listed = ", ".join(repr(other.name) for other in verdict.options)
        raise PlanError(f"`option` {name}: {cell.policy} has the options {listed}")
    success, takes, threshold = verdict.shown_as(option)[0], float(option.takes), None
    rejection = cell.rejection
    # On other windows the score of a take depends on the takes that it is compared with.
    if option.takes > 1 and cell.window == "full" and rejection is not None and rejection.arm == option.arm:
        optimism = verdict.optimism if option.name == verdict.option else 0.0
        success, threshold = corrected(rejection.success, optimism, least=0.0), rejection.threshold
        takes = rejection.takes.value or takes
    return Promise(
        cell.policy, option.name, option.arm, option.takes, option.scorer or cell.scorer, cell.window, threshold,
        success, takes,
    )  # fmt: skip


def success_so_far(kept: Sequence[bool], seeds: int) -> Estimate:
    """Mean success of the kept takes, in order, with 95 % bounds that hold however often you look."""
    if not kept:
        return Estimate(reason="no take has been kept yet")
    low, high = bounds([float(success) for success in kept], unit_scale(), fixed_stake("gain", seeds))
    value = sum(kept) / len(kept)
    return Estimate(value, min(low, value), max(high, value), len(kept))


def is_broken(promise: Promise, success: Estimate) -> bool:
    """Whether the bounds on ``success`` lie below the whole promised interval."""
    return None not in (success.high, promise.success.low) and success.high < promise.success.low  # type: ignore[operator]
