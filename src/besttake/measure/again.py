"""The base takes of a finished run's cell, to be measured again with other scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from besttake.measure.cells import CellData, arm_takes
from besttake.measure.looks import Unit
from besttake.measure.scores import ScoreName, Scores
from besttake.result import Cell
from besttake.takes.key import Row, TakeKey


def units_of(cell: Cell, rows: Mapping[TakeKey, Row]) -> list[Unit]:
    """The starts of a cell, in the order in which its result counts them."""
    tasks = [(line.env, line.task) for line in cell.tasks]
    units = {(k.env, k.task, k.start) for k in rows if k.policy == cell.policy and (k.env, k.task) in tasks}
    return sorted(units, key=lambda unit: (tasks.index(unit[:2]), unit[2]))


def other_takes(cell: Cell, rows: Mapping[TakeKey, Row]) -> bool:
    """Whether a run holds more or fewer takes of a cell than its result was made of: it went on since."""
    if cell.arms is None:  # no take of the base arm was finished, so there is no number to compare
        return False
    tasks, arms = {(line.env, line.task) for line in cell.tasks}, cell.arms.arms
    own = (row for k, row in rows.items() if k.policy == cell.policy and (k.env, k.task) in tasks and k.arm in arms)
    return sum(row.status == "done" for row in own) != cell.takes


OTHER_TAKES = "its takes are not those that its result was made of; run the same diagnosis again"


def base_of(
    cell: Cell, units: Sequence[Unit], rows: Mapping[TakeKey, Row], scores: Scores | None, scorers: Sequence[str]
) -> CellData:
    """The takes of ``units`` with the scores of ``scorers``; the first one picks."""
    windows = ("full", "common", "episode") if cell.window == "full" else ("common", "episode")
    names = [ScoreName(name, window) for name in dict.fromkeys(scorers) for window in windows]
    takes = arm_takes(cell.policy, units, "base", cell.seeds, names, rows, scores)
    return CellData(
        cell.policy, cell.env, cell.group, tuple(units), {"base": takes}, windows, scorers[0], planned=takes.takes,
        errors=0, length=frozenset() if scores is None else scores.length,
    )  # fmt: skip


def chosen_from(cell: Cell) -> int:
    """How many takes a choice is made from."""
    return cell.headroom.n if cell.headroom is not None else cell.seeds
