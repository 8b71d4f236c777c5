"""Many runs: the headroom relation across all their cells (`besttake compare`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from besttake.core import relation
from besttake.errors import BestTakeError, RunError
from besttake.files import as_paths
from besttake.measure.cell import relation_cell, relation_of
from besttake.measure.cells import arm_takes
from besttake.measure.scores import ScoreName, Scores
from besttake.reporting import figures, words
from besttake.reporting.drawing import Figure
from besttake.reporting.notebook import Table, Tabular
from besttake.result import Cost, Relation, Result
from besttake.takes.store import Store
from besttake.threads import one_thread

_NO_RELATION = "No cell of these runs has scored takes, so there is no gain to set against headroom."


@dataclass(frozen=True)
class CompareResult(Tabular):
    """All cells of all runs in one `Result` (its relation is over all of them); ``runs[i]`` is where cell i is from."""

    result: Result
    runs: tuple[str, ...]

    def to_json(self) -> str:
        """As JSON text, in the schema of ``result.json``."""
        return self.result.to_json()

    def plot(self) -> Figure | None:
        """Gain against headroom over all cells, as an SVG figure; None where no cell has both."""
        return figures.relation(self.result, legend=True)

    def _table(self) -> Table:
        rows = []
        for run, cell in zip(self.runs, self.result.cells, strict=True):
            headroom, gain = (estimate and estimate.value for estimate in figures.gain_headroom(cell))
            rows.append((run, cell.policy, cell.group, cell.starts, headroom, gain))
        heading = " ".join(words.relation(self.result.relation)[:1])
        return Table(heading, ("run", "policy", "tasks", "starts", "headroom", "gain"), rows, self.result.notes)


def compare(runs: str | Path | Sequence[str | Path], *, command: str = "") -> CompareResult:
    """The relation of gain and headroom over every cell of ``runs`` that has scores and several takes per start.

    ``runs`` is a list of run directories, or a single one.
    """
    runs = as_paths(runs)
    if not runs:
        raise RunError("no runs to compare; name run directories, e.g. besttake compare runs/*")
    loaded = {Path(run).resolve(): Result.load(Path(run) / "result.json") for run in runs}
    results = list(loaded.values())
    notes = ["a run was named twice and counts once"] if len(loaded) < len(runs) else []
    gains: list[relation.CellGains] = []
    with one_thread():
        for directory, result in loaded.items():
            points, remarks = _gains(directory, result)
            gains += points
            notes += remarks
        merged = Result(
            besttake=version("besttake"), created=max(result.created for result in results), command=command,
            digest="", plan={"runs": [directory.name for directory in loaded]}, versions={}, library=None,
            worth=results[0].worth,
            cells=[cell for result in results for cell in result.cells],
            policies=[policy for result in results for policy in result.policies],
            relation=relation_of(gains) if gains else Relation(reason=_NO_RELATION),
            cost=_cost([result.cost for result in results]), notes=notes,
        )  # fmt: skip
    return CompareResult(merged, tuple(directory.name for directory, result in loaded.items() for _ in result.cells))


def _gains(run: Path, result: Result) -> tuple[list[relation.CellGains], list[str]]:
    """Per-start headroom and gain of each cell of a run, and which cells cannot take part and why."""
    try:
        with Store.open(run) as store:
            rows = {row.key: row for row in store.rows() if row.key.arm == "base"}
    except BestTakeError as error:
        return [], [f"{run.name} takes no part in the relation: {error}"]
    scores = Scores.open(run)
    points: list[relation.CellGains] = []
    notes = []
    for cell in result.cells:
        tasks = [(line.env, line.task) for line in cell.tasks]
        units = sorted({(k.env, k.task, k.start) for k in rows if k.policy == cell.policy and (k.env, k.task) in tasks})
        name = ScoreName(cell.scorer, cell.window)
        takes = arm_takes(cell.policy, units, "base", cell.seeds, [name], rows, scores)
        if cell.seeds < 2 or takes.score(name) is None:
            why = "it has one take per start" if cell.seeds < 2 else "its takes have no score"
            notes.append(f"{run.name}: {cell.policy}, {cell.group} takes no part in the relation: {why}")
            continue
        n = cell.headroom.n if cell.headroom is not None else cell.seeds
        points.append(relation_cell(cell.policy, cell.group, takes.scored_by(name), n))
    return points, notes


def _cost(costs: Sequence[Cost]) -> Cost:
    names = ("takes", "errors", "steps", "policy_calls", "frames_scored", "frames_encoded")
    return Cost(**{name: sum(getattr(cost, name) for cost in costs) for name in names}, seconds={})
