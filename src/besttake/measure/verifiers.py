"""How much of the headroom each scorer finds, against the controls that unmask a leak: numbers alone.

Everything is a mean over starts with a 95 % interval. Of start i, with n takes kept or thrown away:

| quantity | of a start | what it says |
| --- | --- | --- |
| gain | S_i - pass@1_i | S_i is the success of the chosen take; a random choice gains nothing |
| over shortest | gain_i - gain_i of the shortest take | what is left when length alone could have given it away |
| over bar | gain_i - gain_i of the bar | the bar is a classifier trained on other starts of the same policy |
| harm | pass@n_i - S_i | it picks a failure though a success was there; of a random choice this is the headroom |
| AUC | chance that a success of the start scores above a failure of it | only starts with both count |
| retrying | success and takes of "retry until the score passes" | at most n; thresholds of other starts of the cell |
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from besttake.core import headroom, ranking, select, stats
from besttake.core.estimate import Estimate
from besttake.measure import rejection
from besttake.measure.cells import ArmTakes, CellData
from besttake.measure.questions import question
from besttake.measure.scores import ScoreName
from besttake.types import F64

BINS = 10
_ROUNDING = 1e-6
_NO_BAR = Estimate(reason="no scorer was trained on other starts")


@dataclass(frozen=True)
class Verifier:
    """One scorer on one window, or a control. ``invalid`` takes have no score; in ``blind`` starts no take has one."""

    scorer: str
    window: str
    success: Estimate
    gain: Estimate
    capture: Estimate
    auc: Estimate
    over_shortest: Estimate
    over_bar: Estimate
    harm: Estimate
    invalid: int = 0
    blind: int = 0


@dataclass(frozen=True)
class Pair:
    """The gain of ``first`` minus that of ``second``, on the same starts."""

    first: str
    second: str
    difference: Estimate


@dataclass(frozen=True)
class Bin:
    """Takes whose stated probability lies in one tenth of the scale: its mean, and how often they succeeded."""

    takes: int
    stated: float
    happened: Estimate


@dataclass(frozen=True)
class Calibration:
    """Whether stated probabilities can be taken at their word, on one window.

    ``brier``: the mean square of stated minus happened, 0 to 1. ``error``: the mean gap between them over bins.
    """

    scorer: str
    window: str
    takes: int
    brier: float
    error: float
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Spent:
    """The mean number of ``takes`` that a rule needs, and the ``success`` of the take that it keeps."""

    takes: float
    success: float


@dataclass(frozen=True)
class Retrying:
    """Retry until the score passes, at most n times, on one window; thresholds come from other starts of the cell.

    ``takes``, ``success`` and ``gain`` over one take are of the threshold that keeps nine tenths of the best gain with
    the fewest takes. ``curve``: of the thresholds that a part of all takes passes (`reject.RATES`). ``best_of``: of the
    best of k takes by the same score, k = 1 .. n.
    """

    scorer: str
    window: str
    takes: Estimate
    success: Estimate
    gain: Estimate
    curve: tuple[Spent, ...]
    best_of: tuple[Spent, ...]


@dataclass(frozen=True)
class Verified:
    """All scorers in one cell, or in several together (tasks ``*``), on the same takes of the base arm.

    ``windows``: the one that a verdict reads comes first. ``controls``: random, shortest and oracle. ``retrying``: on
    that window, where it was asked for.
    """

    policy: str
    env: str
    tasks: str
    starts: int
    mixed: int
    takes: int
    n: int
    windows: tuple[str, ...]
    headroom: Estimate
    controls: tuple[Verifier, ...]
    verifiers: tuple[Verifier, ...]
    pairs: tuple[Pair, ...]
    calibration: tuple[Calibration, ...]
    retrying: tuple[Retrying, ...] = ()

    def of(self, scorer: str, window: str = "") -> Verifier | None:
        """One scorer on one window, on the verdict's unless named."""
        wanted = scorer, window or self.windows[0]
        return next((v for v in self.verifiers if (v.scorer, v.window) == wanted), None)


def verified(
    data: CellData,
    n: int,
    *,
    bar: str = "",
    probability: Collection[str] = (),
    pairs: bool = True,
    parts: Sequence[CellData] = (),
) -> Verified:
    """Every scorer of a cell on every window. ``bar``: the scorer to beat. ``probability``: those to calibrate.

    ``parts``: the cells that ``data`` is made of; retrying is measured by thresholds of each.
    """
    base = data.arms["base"]
    outcomes, counts = base.outcomes, headroom.tally(base.outcomes)
    scorers = list(dict.fromkeys(name.scorer for name in base.scores if base.score(name) is not None))
    measured = _Measured(base, n, select.shortest(outcomes, base.lengths, n), bar)
    pooled = tuple(
        measured.verifier(ScoreName(scorer, window))
        for scorer in scorers
        for window in data.windows
        if base.score(ScoreName(scorer, window)) is not None
    )
    first = {s: base.score(ScoreName(s, data.windows[0])) for s in scorers}
    stated = [s for s in scorers if s in probability and first[s] is not None]
    chosen = {s: select.select(outcomes, scores, n).gains for s, scores in first.items() if scores is not None}
    gap = question("", "headroom", headroom.start_headroom(outcomes, n), n, counts[0]).estimate()
    return Verified(
        data.policy, data.env, data.group, int(np.sum(counts[0] > 0)),
        int(np.sum((counts[1] > 0) & (counts[1] < counts[0]))), base.takes, n, data.windows, gap,
        measured.controls(gap), pooled,
        tuple(Pair(a, b, _paired(chosen[a] - chosen[b])) for a, b in combinations(chosen, 2)) if pairs else (),
        tuple(calibration(s, data.windows[0], outcomes, first[s]) for s in stated),
        tuple(retrying(ScoreName(s, data.windows[0]), parts, n) for s in chosen) if parts and n > 1 else (),
    )  # fmt: skip


@dataclass(frozen=True)
class _Measured:
    """What all scorers of a cell are compared with."""

    base: ArmTakes
    n: int
    shortest: select.Selection
    bar: str

    def verifier(self, name: ScoreName) -> Verifier:
        scores = self.base.scores[name]
        picks = select.pick(scores, self.base.outcomes)
        chosen = select.select(self.base.outcomes, scores, self.n)
        auc = ranking.within_auc(self.base.outcomes, scores)
        own = self._row(name.scorer, name.window, chosen, auc, self._bar(name, chosen))
        return replace(own, invalid=picks.invalid, blind=picks.blind)

    def _bar(self, name: ScoreName, chosen: select.Selection) -> Estimate:
        if not self.bar:
            return _NO_BAR
        scores = self.base.score(ScoreName(self.bar, name.window))
        if scores is None:
            return Estimate(reason=f"{self.bar} has no score here")
        if name.scorer == self.bar:
            return Estimate(reason="this is the bar")
        return _paired(chosen.gains - select.select(self.base.outcomes, scores, self.n).gains)

    def controls(self, gap: Estimate) -> tuple[Verifier, ...]:
        """What a blind choice, the shortest take and one that knows the outcome give; ``gap`` is the headroom."""
        outcomes, none = self.base.outcomes, Estimate(reason="a control")
        blind = self._row("random", "", select.random(outcomes, self.n), _exactly(0.5), none)
        short = self._row("shortest", "", self.shortest, ranking.within_auc(outcomes, -self.base.lengths), none)
        best = self._row("oracle", "", select.oracle(outcomes, self.n), _exactly(1.0), none)
        # The same quantity has one interval, whoever shows it.
        return (
            replace(blind, gain=_exactly(0.0), capture=_exactly(0.0), harm=gap), short,
            replace(best, gain=gap, capture=_exactly(1.0), harm=_exactly(0.0)),
        )  # fmt: skip

    def _row(self, name: str, window: str, chosen: select.Selection, auc: Estimate, bar: Estimate) -> Verifier:
        outcomes, n = self.base.outcomes, self.n
        harm = headroom.start_pass_at_k(outcomes, n) - chosen.successes
        return Verifier(
            name, window, stats.mean_interval(chosen.successes, stats.unit_scale()),
            question("", "choice", chosen.gains, n, headroom.tally(outcomes)[0]).estimate(),
            stats.capture_interval(chosen.gains, headroom.start_headroom(outcomes, n)), auc,
            _paired(chosen.gains - self.shortest.gains), bar, stats.mean_interval(harm, stats.unit_scale()),
        )  # fmt: skip


def _exactly(value: float) -> Estimate:
    return Estimate(value, reason="by definition")


def _paired(differences: F64) -> Estimate:
    """The mean difference of two choices from the same takes."""
    return stats.mean_interval(differences, stats.pick_scale())


def retrying(name: ScoreName, parts: Sequence[CellData], n: int) -> Retrying:
    """What retrying by a score gives over all starts of ``parts``, each with the thresholds of its own cell."""
    held = [rejection.held_out(part.arms["base"].outcomes, part.arms["base"].scores[name], n) for part in parts]
    outcomes = [part.arms["base"].outcomes for part in parts]
    takes, success = (np.concatenate([getattr(one.chosen, key) for one in held]) for key in ("takes", "success"))
    single = np.concatenate([headroom.start_pass_at_k(own, 1) for own in outcomes])
    curve = [
        Spent(*(headroom.mean(np.concatenate([getattr(p, key) for p in points])) for key in ("takes", "success")))
        for points in zip(*(one.curve for one in held), strict=True)
    ]
    best = [
        headroom.mean(
            np.concatenate(
                [
                    select.select(o, p.arms["base"].scores[name], k).successes
                    for o, p in zip(outcomes, parts, strict=True)
                ]
            )
        )
        for k in range(1, n + 1)
    ]
    return Retrying(
        *name, *rejection.estimates(takes, success, single, n), tuple(curve),
        tuple(Spent(float(k), value) for k, value in enumerate(best, start=1)),
    )  # fmt: skip


def outside(data: CellData, scorer: str) -> int:
    """How many of a scorer's scores, on any window, are numbers but no probabilities."""
    scores = (own for name, own in data.arms["base"].scores.items() if name.scorer == scorer)
    return sum(int(np.sum(np.isfinite(own) & ((own < -_ROUNDING) | (own > 1 + _ROUNDING)))) for own in scores)


def calibration(scorer: str, window: str, outcomes: F64, scores: F64 | None) -> Calibration:
    """The reliability of stated probabilities (S, N) in ten equal bins; intervals by resampling starts."""
    assert scores is not None
    there = np.isfinite(outcomes) & np.isfinite(scores)
    stated, happened = np.where(there, np.clip(scores, 0.0, 1.0), 0.0), np.where(there, outcomes, 0.0)
    places = np.where(there, np.minimum((stated * BINS).astype(int), BINS - 1), -1)
    bins = []
    for place in range(BINS):
        own = places == place
        takes = int(own.sum())
        if takes:
            columns = np.stack([(happened * own).sum(axis=1), own.sum(axis=1)], axis=1)
            bins.append(Bin(takes, float(stated[own].mean()), _rate(columns)))
    total = max(1, int(there.sum()))
    gaps = [b.takes * abs(b.stated - (b.happened.value or 0.0)) for b in bins]
    brier = float(np.mean((stated[there] - outcomes[there]) ** 2)) if there.any() else float("nan")
    return Calibration(scorer, window, int(there.sum()), brier, sum(gaps) / total, tuple(bins))


def _rate(columns: F64) -> Estimate:
    """Successes over takes, whose starts may each have several; all alike leave nothing to resample."""
    won, takes = columns.sum(axis=0)
    if won in (0, takes):
        return Estimate(float(won / takes), None, None, int(takes))
    return stats.bootstrap(columns[columns[:, 1] > 0], lambda m: m[:, 0] / m[:, 1], draws=2000)


def harmful(cells: Sequence[Verified]) -> list[tuple[Verified, Verifier]]:
    """Where the interval of a scorer's gain lies below zero on the window that verdicts read."""
    return [
        (cell, v)
        for cell in cells
        for v in cell.verifiers
        if v.window == cell.windows[0] and v.gain.high is not None and v.gain.high < 0
    ]
