"""Run until decided: play rounds of starts in random order, and after each round drop settled arms and cells.

The next round depends only on the takes so far, so a run that was killed continues with the same takes and comes to the
same decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from besttake.arms import BASE, SHUFFLED
from besttake.config import Plan
from besttake.measure.arrays import CellData, Settings, Stop, merge_cells, truncate
from besttake.measure.looks import Unit, cell_name
from besttake.measure.until import CellName, CellTracks, Rounds, StopReason, first_arms
from besttake.takes.key import TakeKey

_log = logging.getLogger(__name__)
PER_CELL = 1500
"""The default budget of takes per policy and cell."""
OpenParts = Mapping[str, frozenset[str]]
"""The open parts of a verdict, with the arms that each needs."""


@dataclass(frozen=True)
class PolicyRun:
    """A policy in a run until decided: its starts in ``order``, the cell of each, its arms and the settings.

    ``play`` plays the takes that are missing, ``observe`` returns the cells with all takes that are planned so far.
    """

    policy: str
    order: Sequence[Unit]
    cell_of: Mapping[Unit, CellName]
    arms: Sequence[str]
    settings: Settings
    play: Callable[[Collection[TakeKey]], None]
    observe: Callable[[Collection[TakeKey]], list[CellData]]


def budget_of(plan: Plan, cells: int) -> int:
    """The most takes of a run until decided with ``cells`` cells per policy."""
    return plan.budget or PER_CELL * cells * len(plan.policy)


def play_until_decided(run: PolicyRun, budget: int) -> tuple[list[TakeKey], dict[str, Stop]]:
    """Play until all cells of a policy, and the policy as a whole, are decided, or ``budget`` takes are spent.

    Returns the takes of all rounds, and why each cell was stopped, by `looks.cell_name`.
    """
    cells = list(dict.fromkeys(run.cell_of.values()))
    rounds = Rounds(run.order, run.cell_of, run.settings.seeds, budget, {})
    needed, planned = dict.fromkeys(cells, first_arms(run.arms)), list[TakeKey]()
    open_parts: dict[str, OpenParts] = {}
    while chosen := rounds.next(needed):
        new = [
            TakeKey(run.policy, *unit, arm, seed)
            for unit, arms in chosen for arm in run.arms if arm in arms for seed in range(run.settings.seeds)
        ]  # fmt: skip
        planned += new
        run.play(new)
        needed, open_parts = _needs(run, run.observe(planned), planned)
        _log.info("%s: %d takes, %d cells open", run.policy, len(planned), sum(map(bool, needed.values())))
    return planned, _stops(run, cells, open_parts, rounds)


def _needs(
    run: PolicyRun, cells: Sequence[CellData], planned: Collection[TakeKey]
) -> tuple[dict[CellName, frozenset[str]], dict[str, OpenParts]]:
    """The arms that each cell needs, for itself or for the policy as a whole; and the open parts of each cell name."""
    by_cell = {(data.env, data.group): _open_parts(run, data) for data in cells}
    whole = next(iter(by_cell.values()))
    if len(by_cell) > 1:
        merged = truncate(merge_cells(run.policy, cells), set(planned), run.settings.places or {})
        # `shuffled` is run only in cells that retrieve, so it says nothing about all of them.
        whole = _open_parts(replace(run, arms=[arm for arm in run.arms if arm != SHUFFLED]), merged)
    shared = frozenset[str]().union(*whole.values())
    needed = {cell: shared.union(*parts.values()) for cell, parts in by_cell.items()}
    by_name = {cell_name(run.policy, *cell): parts for cell, parts in by_cell.items()}
    return needed, {**by_name, cell_name(run.policy, "", "*"): whole}


def _open_parts(run: PolicyRun, data: CellData) -> OpenParts:
    """The open parts of a cell's verdict, with the arms that each needs: none if no further take can settle it."""
    places = run.settings.places or {}
    order = np.array(sorted(range(len(data.units)), key=lambda i: places[data.units[i]]), dtype=np.int64)
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
    if BASE not in arms:
        return {"takes": frozenset(run.arms)}
    cell = CellTracks.of(
        arms, order, run.settings.n, run.settings.worth, deterministic=data.deterministic,
        leak_free=data.windows[0] != "episode",
    )  # fmt: skip
    return cell.open_parts(dict.fromkeys(arms, len(order)), run.arms)


def _stops(
    run: PolicyRun, cells: Sequence[CellName], open_parts: Mapping[str, OpenParts], rounds: Rounds
) -> dict[str, Stop]:
    stops = {}
    for cell in (*cells, ("", "*")):
        name = cell_name(run.policy, *cell)
        unsettled = open_parts.get(name, {"takes": frozenset(run.arms)})
        reason: StopReason = "decided"
        if unsettled:
            more = any(map(rounds.has_starts, cells)) if cell[1] == "*" else rounds.has_starts(cell)
            reason = "budget" if more else "starts"
            if not any(unsettled.values()):
                reason = "hopeless"
        stops[name] = Stop(reason, tuple(unsettled))
    return stops
