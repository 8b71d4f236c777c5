"""Many runs: the headroom relation across all their cells (`besttake compare`); of two runs also what changed."""

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
from besttake.measure.rescore import OTHER_TAKES, base_takes, check_same_takes, chosen_from, other_takes, starts_of_cell
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
"""Which take: its key, and the checksum of what it did. A copy of a run holds the same ones."""
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
        parts: list[_Part] = []
        for directory, result in loaded.items():
            own, remarks = _read(directory, result, window)
            parts += own
            notes += remarks
        kept, overlaps = _once(parts)
        used = {run: one for run, one in loaded.items() if not one.cells or any(part.run == run for part in kept)}
        points = [part.point for part in kept if part.point is not None]
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
    changed = changes_between(list(loaded), merged.notes)
    return CompareResult(merged, tuple(part.run.name for part in kept), across, changed)


def changes_between(runs: Sequence[Path], notes: list[str]) -> tuple[Change, ...]:
    """What changed in every cell that both runs have, if there are two; ``notes`` gets what cannot be compared."""
    if len(runs) != 2:
        return ()
    try:
        old, new = map(_Side.open, runs)
    except RunError as error:
        notes.append(f"what changed cannot be told: {error}")
        return ()
    pairs, remarks = _pairs(old.result, new.result)
    notes += remarks
    changes: list[Change] = []
    for a, b in pairs:
        if shared := _shared(old, a, new, b):
            changes += _of_cell(old, a, new, b, shared)
        else:
            notes.append(f"the runs share no start of {a.policy} on {a.group} in the same env, so no change is known")
    return tuple(changes)


_Point = tuple[relation.CellGains, F64, F64]
"""A cell in the relation: its gains, and its takes as outcomes and scores (S, N)."""


@dataclass(frozen=True)
class _Part:
    """A cell of a run: its takes of the base arm, and its point in the relation if it has one."""

    run: Path
    cell: Cell
    takes: frozenset[_Take]
    point: _Point | None


def _once(parts: Sequence[_Part]) -> tuple[list[_Part], list[str]]:
    """The parts without those that share takes with a fuller one, and a note for each that is left out."""
    order = sorted(range(len(parts)), key=lambda i: (parts[i].point is not None, len(parts[i].takes)), reverse=True)
    owner: dict[_Take, int] = {}
    kept, notes = [], []
    for i in order:
        part = parts[i]
        shared = [owner[take] for take in part.takes if take in owner]
        if shared:
            other = parts[shared[0]].run.name
            cell = f"{part.run.name}: {part.cell.policy}, {part.cell.group}"
            notes.append(f"{cell} is left out: {other} has {count(len(shared), 'take')} of it, and takes count once")
        else:
            kept.append(i)
            owner.update(dict.fromkeys(part.takes, i))
    return [parts[i] for i in sorted(kept)], notes


def _read(run: Path, result: Result, window: str) -> tuple[list[_Part], list[str]]:
    """The cells of a run, and which of them take no part in the relation and why."""
    try:
        with Store.open(run) as store:
            rows = {row.key: row for row in store.rows()}
    except BestTakeError as error:
        without = [_Part(run, cell, frozenset(), None) for cell in result.cells]
        return without, [f"{run.name} takes no part in the relation: {error}"]
    scores, parts, notes = Scores.open(run), [], []
    for cell in result.cells:
        cell = cell.model_copy(update={"window": window}) if window else cell
        units = starts_of_cell(cell, rows)
        own, seeds = {*units}, range(cell.seeds)
        takes = frozenset(
            (key, row.sha256 or "") for key, row in rows.items()
            if (key.env, key.task, key.start) in own and (key.policy, key.arm) == (cell.policy, BASE)
            and key.seed in seeds and row.status == "done"
        )  # fmt: skip
        point, why = _point(cell, units, rows, scores)
        if point is None:
            notes.append(f"{run.name}: {cell.policy}, {cell.group} takes no part in the relation: {why}")
        parts.append(_Part(run, cell, takes, point))
    return parts, notes


def _point(
    cell: Cell, units: Sequence[Unit], rows: Mapping[TakeKey, Row], scores: Scores | None
) -> tuple[_Point | None, str]:
    """A cell's point, or why it has none."""
    if other_takes(cell, rows):
        return None, OTHER_TAKES
    if not units:
        return None, "no take of its base arm was finished"
    name, n = ScoreName(cell.scorer, cell.window), chosen_from(cell)
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
        gained = start_pass_at_k(retrieved.outcomes, 1) - start_pass_at_k(takes.outcomes, 1)
        gains = replace(gains, retrieval=gained)
    return (gains, takes.outcomes, values), ""


def _cost(costs: Sequence[Cost]) -> Cost:
    names = ("takes", "errors", "steps", "policy_calls", "frames_scored", "frames_encoded")
    return Cost(**{name: sum(getattr(cost, name) for cost in costs) for name in names}, seconds={})


@dataclass(frozen=True)
class Change:
    """One number of a cell in both runs, and its change; ``number`` is ``pass@1`` or ``pass@N`` of an arm.

    All is over the ``starts`` that both runs have in the same env. ``same``: both runs hold the very same takes.
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
        """``better`` or ``worse`` where the 95 % interval leaves out no change, ``same`` takes, else nothing."""
        if self.same:
            return "same"
        low, high = self.change.low, self.change.high
        return "" if low is None or high is None else "better" if low > 0 else "worse" if high < 0 else ""


@dataclass(frozen=True)
class _Side:
    """One run: its result, its takes, and the fingerprints of its envs."""

    result: Result
    rows: Mapping[TakeKey, Row]
    envs: Mapping[str, object]

    @classmethod
    def open(cls, run: Path) -> _Side:
        with Store.open(run) as store:
            rows, identity = {row.key: row for row in store.rows()}, store.manifest.identity
        envs = {name.removeprefix("env "): value[0] for name, value in identity.items() if name.startswith("env ")}
        result = Result.load(run / "result.json")
        check_same_takes(run, result, rows)
        return cls(result, rows, envs)

    def checksums(self, cell: Cell, arm: str, units: Sequence[Unit]) -> Mapping[tuple[Unit, int], str | None]:
        """What each take of an arm did, as a checksum."""
        known, name = {*units}, (cell.policy, arm)
        return {
            (unit, key.seed): row.sha256
            for key, row in self.rows.items()
            if (unit := (key.env, key.task, key.start)) in known and (key.policy, key.arm) == name
        }

    def outcomes(self, cell: Cell, arm: str, units: Sequence[Unit]) -> F64:
        """Success (S, N) of an arm's takes; NaN where there is none."""
        return arm_takes(cell.policy, units, arm, cell.seeds, (), self.rows, None).outcomes


def _pairs(old: Result, new: Result) -> tuple[list[tuple[Cell, Cell]], list[str]]:
    """Cells of the same policy, env and tasks; a run of one policy is compared with one of another."""
    single = len(old.policies) == len(new.policies) == 1

    def name(cell: Cell) -> tuple[str, str, str]:
        return ("" if single else cell.policy, cell.env, cell.group)

    first, second = ({name(cell): cell for cell in result.cells} for result in (old, new))
    notes = [
        f"only the {which} run has {cell.policy} on {cell.group} in {cell.env}"
        for which, own, other in (("first", first, second), ("second", second, first))
        for key, cell in own.items()
        if key not in other
    ]
    return [(cell, second[key]) for key, cell in first.items() if key in second], notes


def _shared(old: _Side, a: Cell, new: _Side, b: Cell) -> list[Unit]:
    """The starts of a cell that both runs have, in the same env."""
    theirs, same = {*starts_of_cell(b, new.rows)}, {env for env in old.envs if old.envs[env] == new.envs.get(env)}
    return [unit for unit in starts_of_cell(a, old.rows) if unit in theirs and unit[0] in same]


def _of_cell(old: _Side, a: Cell, new: _Side, b: Cell, shared: Sequence[Unit]) -> Iterator[Change]:
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
