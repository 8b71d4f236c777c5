"""Compare how well scorers pick, on the same `base` takes of a finished run.

Each quantity is a mean over starts with a 95 % interval. At start i, if the best of n takes is kept:

| quantity | of a start | what it says |
| --- | --- | --- |
| gain | S_i - pass@1_i | S_i is the success of the chosen take; a random choice gains nothing |
| over own | gain_i - gain_i of the run's own scorer | what choosing this scorer would change |
| harm | pass@n_i - S_i | it picks a failure although there was a success; for a random choice this is the headroom |
| AUC | chance that a success of the start scores above a failure of it | only starts with both count |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from besttake.arms import BASE
from besttake.core import headroom, select, stats
from besttake.core.sequential import RepeatedLooks, fixed_stake
from besttake.core.stats import Estimate
from besttake.core.verdict import estimate_again
from besttake.errors import RunError
from besttake.measure.arrays import CellData, arm_takes, truncate
from besttake.measure.looks import CellHistory, Unit, looks_at, looks_until
from besttake.measure.verdict import Kind, question
from besttake.result import Cell, Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import ScoreName, Scores
from besttake.types import F64

TAKES_CHANGED = "its takes are not those of its result; run the same diagnosis again"


def starts_of_cell(cell: Cell, rows: Mapping[TakeKey, Row]) -> list[Unit]:
    """The starts of a cell, in the order of its result."""
    tasks = [(line.env, line.task) for line in cell.tasks]
    units = {(k.env, k.task, k.start) for k in rows if k.policy == cell.policy and (k.env, k.task) in tasks}
    return sorted(units, key=lambda unit: (tasks.index(unit[:2]), unit[2]))


def takes_changed(cell: Cell, rows: Mapping[TakeKey, Row]) -> bool:
    """Whether a run holds more or fewer takes of a cell than its result counts, because it continued since."""
    if cell.arms is None:  # no take of the base arm was finished, so there is no number to compare
        return False
    tasks, arms = {(line.env, line.task) for line in cell.tasks}, cell.arms.arms
    takes = (row for k, row in rows.items() if k.policy == cell.policy and (k.env, k.task) in tasks and k.arm in arms)
    return sum(row.status == "done" for row in takes) != cell.takes


def check_same_takes(run: Path, result: Result, rows: Mapping[TakeKey, Row]) -> None:
    """RunError if a run continued since its result was made."""
    for cell in result.cells:
        if takes_changed(cell, rows):
            raise RunError(f"{run}: {cell.policy}, {cell.group}: {TAKES_CHANGED}")


def base_takes(
    cell: Cell, units: Sequence[Unit], rows: Mapping[TakeKey, Row], scores: Scores | None, scorers: Sequence[str]
) -> CellData:
    """The `base` takes of ``units`` with the scores of ``scorers``, of which the first picks."""
    windows = ("full", "common", "episode") if cell.window == "full" else ("common", "episode")
    names = [ScoreName(name, window) for name in dict.fromkeys(scorers) for window in windows]
    takes = arm_takes(cell.policy, units, BASE, cell.seeds, names, rows, scores)
    return CellData(
        cell.policy, cell.env, cell.group, tuple(units), {BASE: takes}, windows, scorers[0], planned=takes.takes,
        errors=0, length=frozenset() if scores is None else scores.length,
    )  # fmt: skip


def choice_size(cell: Cell) -> int:
    """The number of takes per start from which one is kept."""
    return cell.headroom.n if cell.headroom is not None else cell.seeds


@dataclass(frozen=True)
class ScorerRow:
    """How well one scorer picks, on the window that the verdict reads.

    ``success`` is that of the picked take, ``capture`` is gain over headroom; the table above explains the others.
    ``own``: it is the scorer of the run's verdict. ``leak``: it depends on the length of a take, which gives the
    outcome away if episodes stop at success.
    """

    scorer: str
    own: bool
    success: Estimate
    gain: Estimate
    capture: Estimate
    auc: Estimate
    harm: Estimate
    over_own: Estimate
    leak: bool


@dataclass(frozen=True)
class ScorerComparison:
    """All scorers of a run, from the highest gain, on the takes of a policy and task group (``*`` for all its tasks).

    One of ``n`` takes is picked by its score on ``window``; ``starts`` is the number of starts. ``headroom`` is what a
    choice that knows the outcomes gains, ``shortest`` what picking the shortest take gains: a control.
    """

    policy: str
    env: str
    group: str
    window: str
    n: int
    starts: int
    headroom: Estimate
    shortest: Estimate
    rows: tuple[ScorerRow, ...]


def compare_scorers(
    cell: Cell, rows: Mapping[TakeKey, Row], scores: Scores, places: Mapping[Unit, int] | None
) -> ScorerComparison | None:
    """Compare all scorers on the takes of a cell of a finished run; None if no take has a score.

    ``places``: the place of every planned start in the order of a run until decided, whose intervals are valid at any
    time; None for a fixed sample.
    """
    scorers = list(dict.fromkeys((cell.scorer, *scores.scorers)))
    data = base_takes(cell, starts_of_cell(cell, rows), rows, scores, scorers)
    if places is not None and cell.group == "*":
        data = truncate(data, rows.keys(), places)
    picks = _Picks(data, choice_size(cell), _looks(cell, data, places))
    base, window = data.arms[BASE], data.windows[0]
    scored = {name: values for name in scorers if (values := base.score(ScoreName(name, window))) is not None}
    if not scored:
        return None
    own = picks.gains(scored[cell.scorer]) if cell.scorer in scored else None
    listed = [picks.row(name, values, own, is_own=name == cell.scorer) for name, values in scored.items()]
    return ScorerComparison(
        cell.policy, cell.env, cell.group, window, picks.n, data.played,
        picks.estimate("headroom", headroom.start_headroom(base.outcomes, picks.n)),
        picks.estimate("choice", picks.shortest),
        tuple(sorted(listed, key=lambda row: -(row.gain.value or 0.0))),
    )  # fmt: skip


def _looks(cell: Cell, data: CellData, places: Mapping[Unit, int] | None) -> RepeatedLooks:
    """The looks at the cell that its result records."""
    if places is not None:
        return looks_until(data.units, places)
    verdict = cell.verdict
    looks = () if verdict is None else tuple(zip(verdict.looks, verdict.look_seeds, strict=True))
    return looks_at(data.units, (data.played, cell.seeds), CellHistory(looks))


@dataclass(frozen=True)
class _Picks:
    """Picks the best of ``n`` takes of a cell by any scores, with intervals that are valid for its ``looks``."""

    data: CellData
    n: int
    looks: RepeatedLooks

    @property
    def outcomes(self) -> F64:
        return self.data.arms[BASE].outcomes

    @property
    def shortest(self) -> F64:
        """The gain (S,) of picking the shortest take."""
        return select.shortest(self.outcomes, self.data.arms[BASE].lengths, self.n).gains

    def gains(self, scores: F64) -> F64:
        """The gain (S,) of picking the take with the highest of ``scores`` (S, N)."""
        return select.select(self.outcomes, scores, self.n).gains

    def row(self, scorer: str, scores: F64, own: F64 | None, *, is_own: bool) -> ScorerRow:
        """Measure ``scorer`` by its ``scores`` (S, N); ``own``: the gain (S,) of the run's own scorer, if known."""
        name, chosen = ScoreName(scorer, self.data.windows[0]), select.select(self.outcomes, scores, self.n)
        harm = headroom.start_pass_at_k(self.outcomes, self.n) - chosen.successes
        over_own = Estimate(reason="this is the run's own scorer" if is_own else "the run's own scorer has no scores")
        if own is not None and not is_own:
            over_own = self._mean(chosen.gains - own, stats.pick_scale())
        return ScorerRow(
            scorer, is_own, self._mean(chosen.successes, stats.unit_scale()), self.estimate("choice", chosen.gains),
            self._capture(chosen.gains), self._auc(scores), self._mean(harm, stats.unit_scale()),
            over_own, self.data.leaks(name),
        )  # fmt: skip

    def estimate(self, kind: Kind, values: F64) -> Estimate:
        """The mean of ``values`` (S,), with the interval that a diagnosis gives for the same quantity."""
        takes = headroom.tally(self.outcomes)[0]
        return question("", kind, values, self.n, takes, seeds=self.outcomes.shape[1]).estimate(self.looks)

    def _mean(self, values: F64, scale: stats.Scale) -> Estimate:
        return estimate_again(values, scale, self.looks, fixed_stake("content", self.outcomes.shape[1]))

    def _auc(self, scores: F64) -> Estimate:
        if not self.looks.until:
            return select.within_auc(self.outcomes, scores)
        return self._mean(select.start_auc(self.outcomes, scores), stats.unit_scale())

    def _capture(self, gains: F64) -> Estimate:
        """Gain over headroom, without an interval in a run until decided: that of a ratio is not valid at any time."""
        capture = stats.capture_interval(gains, headroom.start_headroom(self.outcomes, self.n))
        return replace(capture, low=None, high=None) if self.looks.until else capture
