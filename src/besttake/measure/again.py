"""The base takes of a finished run's cell, to be measured again with other scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from besttake.core.headroom import mean, start_pass_at_k
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
    """Whether a run's table holds other takes of a cell than its result was made of: it went on, or one was forged."""
    units, seeds = units_of(cell, rows), cell.seeds
    if not units and cell.arms is None:  # no take of the base arm was finished, so there is no number to compare
        return False
    starts = {*units}
    own = [k for k in rows if k.policy == cell.policy and (k.env, k.task, k.start) in starts]
    if not 1 <= chosen_from(cell) <= seeds <= max(1, len(own)) or any(not 0 <= key.seed < seeds for key in own):
        return True
    expected = {name: (arm.pass_1.value, arm.takes) for name, arm in (cell.arms.arms if cell.arms else {}).items()}
    for arm, (pass_1, count) in expected.items():
        takes = arm_takes(cell.policy, units, arm, seeds, (), rows, None)
        if takes.takes != count or pass_1 is None or abs(mean(start_pass_at_k(takes.outcomes, 1)) - pass_1) > 1e-9:
            return True
    return False


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
