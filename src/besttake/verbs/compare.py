"""Relate gain to headroom over the cells of several runs, and compare two runs start by start (`besttake compare`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from besttake.arms import BASE, RETRIEVE
from besttake.core import relation
from besttake.core.headroom import start_pass_at_k
from besttake.core.stats import Estimate, difference_scale, mean_interval, unit_scale
from besttake.errors import BestTakeError, PlanError, RunError
from besttake.files import as_paths, version
from besttake.measure.arrays import arm_takes
from besttake.measure.cell import relation_cell, relation_of
from besttake.measure.looks import Unit
from besttake.measure.rescore import (
    TAKES_CHANGED,
    base_takes,
    check_same_takes,
    choice_size,
    starts_of_cell,
    takes_changed,
)
from besttake.registry import Uri
from besttake.reporting import figures, result_tables, words
from besttake.reporting.drawing import Figure
from besttake.reporting.numbers import count
from besttake.reporting.table import Head, Table, Tabular, in_percent, in_points, right
from besttake.result import Cell, Cost, Relation, Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import WINDOWS, ScoreName, Scores
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import F64

_Take = tuple[TakeKey, str]
"""The key of a take and the checksum of its file. A copy of a run has the same ones."""
_NO_RELATION = "No cell of these runs has scored takes, so there is no gain to set against headroom."


@dataclass(frozen=True)
class CompareResult(Tabular):
    """The cells of all runs in one `Result`, whose relation is computed over all of them.

    Attributes:
        result: All cells and policies. A take that several runs hold counts once.
        runs: For each cell of ``result``, the name of the run that it comes from.
        across: Other numbers that the paper reports over all cells, such as the range of capture.
        changes: For exactly two runs, what changed from the first to the second; otherwise empty.
    """

    result: Result
    runs: tuple[str, ...]
    across: relation.Across
    changes: tuple[Change, ...] = ()

    def to_json(self) -> str:
        """Return JSON text in the schema of ``result.json``, with the other attributes added."""
        document = {**json.loads(self.result.to_json()), "runs": self.runs, "across": asdict(self.across)}
        document["changes"] = [asdict(change) for change in self.changes]
        document.pop("sha256", None)  # of a result without these
        return json.dumps(document, indent=1, allow_nan=False)

    def plot(self) -> Figure | None:
        """Draw gain against headroom over all cells as an SVG figure; None if no cell has both."""
        return figures.relation(self.result, legend=True)

    def _table(self) -> Table:
        rows = []
        for run, cell in zip(self.runs, self.result.cells, strict=True):
            arm = cell.arms.arms.get(RETRIEVE) if cell.arms is not None else None
            numbers = (*map(in_points, result_tables.gain_headroom(cell)), in_percent(arm.pass_n if arm else None))
            rows.append((run, cell.policy, cell.group, cell.starts, *numbers))
        head: Head = ["run", "policy", "tasks", *right("starts", "headroom", "gain")]
        head += right("retrieve's pass@N", extra=True)
        return Table(" ".join(words.relation_sentences(self.result.relation)[:1]), head, rows, self.result.notes)


def compare(runs: str | Path | Sequence[str | Path], *, window: str = "", command: str = "") -> CompareResult:
    """Relate selection gain to headroom over the cells of several runs; for two runs, also tell what changed.

    A cell takes part if it has scores and several takes per start. A take that several runs hold counts once.

    Args:
        runs: One run directory or a list of them.
        window: Window of the scores: ``full``, ``common`` or ``episode`` (default: that of each cell's verdict).
        command: The command line to record in the result, if there was one.

    Returns:
        The merged result. Given two runs, ``changes`` lists how pass@1 and pass@N of every cell changed from the
        first to the second, with intervals.

    Raises:
        RunError: No runs are given, or one has no readable ``result.json``.
        PlanError: ``window`` is unknown.
    """
    runs = as_paths(runs)
    if not runs:
        raise RunError("no runs to compare; name run directories, e.g. besttake compare runs/*")
    if window and window not in WINDOWS:
        raise PlanError(f"`window` {window}: choose one of {', '.join(WINDOWS)}")
    loaded = {Path(run).resolve(): Result.load(Path(run) / "result.json") for run in runs}
    notes = ["a run was named twice and counts once"] if len(loaded) < len(runs) else []
    with one_thread():
        cells: list[_RunCell] = []
        for directory, result in loaded.items():
            cells_of_run, remarks = _read_cells(directory, result, window)
            cells += cells_of_run
            notes += remarks
        kept, overlaps = _without_overlaps(cells)
        used = {run: result for run, result in loaded.items() if not result.cells or run in {own.run for own in kept}}
        points = [cell.point for cell in kept if cell.point is not None]
        gains = [gain for gain, _, _ in points]
        first = next(iter(used.values()))
        merged = Result(
            besttake=version(), created=max(result.created for result in used.values()), command=command,
            digest="", plan={"runs": [directory.name for directory in loaded]}, versions={}, library=None,
            worth=first.worth, cells=[part.cell for part in kept],
            policies=[policy for result in used.values() for policy in result.policies],
            relation=relation_of(gains) if gains else Relation(reason=_NO_RELATION),
            cost=_cost([result.cost for result in used.values()]), notes=[*notes, *overlaps],
        )  # fmt: skip
        across = relation.across(gains, [o for _, o, _ in points], [s for _, _, s in points], window)
    changes = changes_between(list(loaded), merged.notes)
    return CompareResult(merged, tuple(cell.run.name for cell in kept), across, changes)


def changes_between(runs: Sequence[Path], notes: list[str]) -> tuple[Change, ...]:
    """The changes in each cell that two runs share; empty for other numbers of runs. May append to ``notes``."""
    if len(runs) != 2:
        return ()
    try:
        old, new = map(_ComparedRun.open, runs)
    except RunError as error:
        notes.append(f"the two runs cannot be compared start by start: {error}")
        return ()
    pairs, remarks = _pair_cells(old.result, new.result)
    notes += remarks
    changes: list[Change] = []
    for a, b in pairs:
        if shared := _shared_starts(old, a, new, b):
            changes += _changes(old, a, new, b, shared)
        else:
            notes.append(f"the runs share no start of {a.policy} on {a.group} in the same env, so no change is known")
    return tuple(changes)


_Point = tuple[relation.CellGains, F64, F64]
"""A cell in the relation: its gains, and the outcomes and scores (S, N) of its takes."""


@dataclass(frozen=True)
class _RunCell:
    """A cell of a run, its takes of the base arm, and its point in the relation if it has one."""

    run: Path
    cell: Cell
    takes: frozenset[_Take]
    point: _Point | None


def _without_overlaps(cells: Sequence[_RunCell]) -> tuple[list[_RunCell], list[str]]:
    """The cells without those that share takes with a larger one, and a note for each that is left out."""
    order = sorted(range(len(cells)), key=lambda i: (cells[i].point is not None, len(cells[i].takes)), reverse=True)
    owner: dict[_Take, int] = {}
    kept, notes = [], []
    for i in order:
        run, cell, takes = cells[i].run, cells[i].cell, cells[i].takes
        shared = [owner[take] for take in takes if take in owner]
        if shared:
            name, other = f"{run.name}: {cell.policy}, {cell.group}", cells[shared[0]].run.name
            notes.append(f"{name} is left out: {other} has {count(len(shared), 'take')} of it, and takes count once")
        else:
            kept.append(i)
            owner.update(dict.fromkeys(takes, i))
    return [cells[i] for i in sorted(kept)], notes


def _read_cells(run: Path, result: Result, window: str) -> tuple[list[_RunCell], list[str]]:
    """The cells of a run, and a note for each that takes no part in the relation."""
    try:
        with Store.open(run) as store:
            rows = {row.key: row for row in store.rows()}
    except BestTakeError as error:
        without = [_RunCell(run, cell, frozenset(), None) for cell in result.cells]
        return without, [f"{run.name} takes no part in the relation: {error}"]
    scores, cells, notes = Scores.open(run), [], []
    for cell in result.cells:
        cell = cell.model_copy(update={"window": window}) if window else cell
        units = starts_of_cell(cell, rows)
        starts = {*units}
        takes = frozenset(
            (key, row.sha256 or "") for key, row in rows.items()
            if (key.env, key.task, key.start) in starts and (key.policy, key.arm) == (cell.policy, BASE)
            and key.seed in range(cell.seeds) and row.status == "done"
        )  # fmt: skip
        point, why = _point(cell, units, rows, scores)
        if point is None:
            notes.append(f"{run.name}: {cell.policy}, {cell.group} takes no part in the relation: {why}")
        cells.append(_RunCell(run, cell, takes, point))
    return cells, notes


def _point(
    cell: Cell, units: Sequence[Unit], rows: Mapping[TakeKey, Row], scores: Scores | None
) -> tuple[_Point | None, str]:
    """The point of a cell in the relation; or None, and the reason."""
    if takes_changed(cell, rows):
        return None, TAKES_CHANGED
    if not units:
        return None, "no take of its base arm was finished"
    name, n = ScoreName(cell.scorer, cell.window), choice_size(cell)
    takes = base_takes(cell, units, rows, scores, [cell.scorer]).arms[BASE]
    values = takes.score(name)
    if cell.seeds < 2:
        return None, "it has one take per start"
    if values is None:
        return None, f"its takes have no score on the window {cell.window}"
    gains = relation_cell(cell.policy, cell.group, takes.scored_by(name), n)
    arms = dict.fromkeys(key.arm for key in rows if Uri.parse(key.arm).scheme == RETRIEVE)
    retrieved = arm_takes(cell.policy, units, next(iter(arms), RETRIEVE), cell.seeds, (), rows, None)
    if retrieved.takes:
        gain = start_pass_at_k(retrieved.outcomes, 1) - start_pass_at_k(takes.outcomes, 1)
        gains = replace(gains, retrieval=gain)
    return (gains, takes.outcomes, values), ""


def _cost(costs: Sequence[Cost]) -> Cost:
    names = ("takes", "errors", "steps", "policy_calls", "frames_scored", "frames_encoded")
    return Cost(**{name: sum(getattr(cost, name) for cost in costs) for name in names}, seconds={})


@dataclass(frozen=True)
class Change:
    """A number of a cell in both runs, and its change; ``number`` is ``pass@1`` or ``pass@N`` of an arm.

    Both are measured on the ``starts`` that the runs share in the same env. ``same``: these starts have the same takes.
    """

    policies: tuple[str, str]
    group: str
    arm: str
    number: str
    before: Estimate
    after: Estimate
    change: Estimate
    starts: int
    same: bool = False

    @property
    def shown(self) -> str:
        """``better`` or ``worse`` if the 95 % interval excludes 0, ``same`` if the takes are the same, else empty."""
        if self.same:
            return "same"
        low, high = self.change.low, self.change.high
        return "" if low is None or high is None else "better" if low > 0 else "worse" if high < 0 else ""


@dataclass(frozen=True)
class _ComparedRun:
    """One of two runs: its result, its takes, and the fingerprints of its envs."""

    result: Result
    rows: Mapping[TakeKey, Row]
    envs: Mapping[str, object]

    @classmethod
    def open(cls, run: Path) -> _ComparedRun:
        with Store.open(run) as store:
            rows, identity = {row.key: row for row in store.rows()}, store.manifest.identity
        envs = {name.removeprefix("env "): value[0] for name, value in identity.items() if name.startswith("env ")}
        result = Result.load(run / "result.json")
        check_same_takes(run, result, rows)
        return cls(result, rows, envs)

    def checksums(self, cell: Cell, arm: str, units: Sequence[Unit]) -> Mapping[tuple[Unit, int], str | None]:
        """The checksum of each take of an arm, by start and seed."""
        starts = {*units}
        return {
            (unit, key.seed): row.sha256
            for key, row in self.rows.items()
            if (unit := (key.env, key.task, key.start)) in starts and (key.policy, key.arm) == (cell.policy, arm)
        }

    def outcomes(self, cell: Cell, arm: str, units: Sequence[Unit]) -> F64:
        """The success (S, N) of an arm's takes; NaN where a take is missing."""
        return arm_takes(cell.policy, units, arm, cell.seeds, (), self.rows, None).outcomes


def _pair_cells(old: Result, new: Result) -> tuple[list[tuple[Cell, Cell]], list[str]]:
    """Pair cells of the same policy (unless both runs have only one), env and tasks, and note those that one lacks."""
    single = len(old.policies) == len(new.policies) == 1

    def name(cell: Cell) -> tuple[str, str, str]:
        return ("" if single else cell.policy, cell.env, cell.group)

    first, second = ({name(cell): cell for cell in result.cells} for result in (old, new))
    notes = [
        f"only the {ordinal} run has {cell.policy} on {cell.group} in {cell.env}"
        for ordinal, cells, others in (("first", first, second), ("second", second, first))
        for key, cell in cells.items()
        if key not in others
    ]
    return [(cell, second[key]) for key, cell in first.items() if key in second], notes


def _shared_starts(old: _ComparedRun, a: Cell, new: _ComparedRun, b: Cell) -> list[Unit]:
    """The starts of a cell that both runs have, in the same env."""
    units, envs = {*starts_of_cell(b, new.rows)}, {env for env in old.envs if old.envs[env] == new.envs.get(env)}
    return [unit for unit in starts_of_cell(a, old.rows) if unit in units and unit[0] in envs]


def _changes(old: _ComparedRun, a: Cell, new: _ComparedRun, b: Cell, shared: Sequence[Unit]) -> Iterator[Change]:
    arms = [arm for arm in (a.arms.arms if a.arms else (BASE,)) if b.arms is None or arm in b.arms.arms]
    n = min(a.headroom.n if a.headroom else 1, b.headroom.n if b.headroom else 1)
    for arm in arms:
        for k, number in [(1, "pass@1")] + ([(n, f"pass@{n}")] if n > 1 and arm == BASE else []):
            first = start_pass_at_k(old.outcomes(a, arm, shared), k)
            second = start_pass_at_k(new.outcomes(b, arm, shared), k)
            known = ~(np.isnan(first) | np.isnan(second))
            before, after = (mean_interval(values[known], unit_scale()) for values in (first, second))
            change = mean_interval((second - first)[known], difference_scale(min(a.seeds, b.seeds)))
            alike = old.checksums(a, arm, shared) == new.checksums(b, arm, shared)
            change = Estimate(0.0, 0.0, 0.0, change.n) if alike else change
            yield Change((a.policy, b.policy), a.group, arm, number, before, after, change, before.n, alike)
