"""A run until decided: rounds of starts in random order, a look after each, settled arms and cells dropped.

What comes next is worked out from the takes so far and from nothing that was stored, so a run that was killed goes on
with the same takes and comes to the same decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from besttake.arms import BASE, SHUFFLED
from besttake.config import Plan
from besttake.measure.cells import CellData, Settings, Stop, leading, merge_cells
from besttake.measure.looks import Unit, cell_name, looks_until
from besttake.measure.until import CellName, Rounds, Stopped, Watch, begin_with, chance_within
from besttake.measure.verdict import MOST, questions_of
from besttake.takes.key import TakeKey

_log = logging.getLogger(__name__)
_BEFORE_GIVING_UP, _HOPE = 60, 0.04
"""A cell is given up after this many starts, where at most this part of its futures is decided within the budget."""
PER_CELL = 1500
"""Takes per policy and cell unless the plan has a budget."""
Open = Mapping[str, frozenset[str]]
"""The open parts of a verdict, with the arms that each needs."""


@dataclass(frozen=True)
class Course:
    """What a policy is run on: its starts in ``order``, the cell of each, its arms, and how to measure.

    ``play`` makes those of the takes that are missing, ``observe`` gives the cells with the takes of all keys so far.
    """

    policy: str
    order: Sequence[Unit]
    cell_of: Mapping[Unit, CellName]
    arms: Sequence[str]
    settings: Settings
    play: Callable[[Collection[TakeKey]], None]
    observe: Callable[[Collection[TakeKey]], list[CellData]]


def budget_of(plan: Plan, cells: int) -> int:
    """The most takes of a run until decided, whose env has so many ``cells`` for each policy."""
    return plan.budget or PER_CELL * cells * len(plan.policy)


def play_until_decided(course: Course, budget: int) -> tuple[list[TakeKey], dict[str, Stop]]:
    """Run a policy until all its cells, and the policy as a whole, are decided, or ``budget`` takes are spent.

    Returns the takes that it was asked for, and why each of its cells was stopped, by `looks.cell_name`.
    """
    cells = list(dict.fromkeys(course.cell_of.values()))
    rounds = Rounds(course.order, course.cell_of, course.settings.seeds, budget, {})
    needed, planned = dict.fromkeys(cells, begin_with(course.arms)), list[TakeKey]()
    left: dict[str, Open] = {}
    given_up: set[CellName] = set()
    while chosen := rounds.next(needed):
        new = [
            TakeKey(course.policy, *unit, arm, seed)
            for unit, arms in chosen for arm in course.arms if arm in arms for seed in range(course.settings.seeds)
        ]  # fmt: skip
        planned += new
        course.play(new)
        seen = course.observe(planned)
        needed, left = _needs(course, seen, planned, given_up)
        given_up |= _hopeless(course, seen, needed, rounds, given_up)
        needed = {cell: arms for cell, arms in needed.items() if cell not in given_up}
        _log.info("%s: %d takes, %d cells open", course.policy, len(planned), sum(map(bool, needed.values())))
    return planned, _stops(course, cells, left, rounds, given_up)


def _needs(
    course: Course, seen: Sequence[CellData], planned: Collection[TakeKey], given_up: Collection[CellName]
) -> tuple[dict[CellName, frozenset[str]], dict[str, Open]]:
    """The arms that each cell needs, by itself or for the policy as a whole; and the parts that are open, by cell."""
    places, every = course.settings.places or {}, set(planned)
    own = {(data.env, data.group): _open(course, data) for data in seen}
    whole = next(iter(own.values()))
    if len(own) > 1:
        # `shuffled` is run only in cells that retrieve, so it says nothing about all of them.
        run = [arm for arm in course.arms if arm != SHUFFLED]
        whole = _open(replace(course, arms=run), leading(merge_cells(course.policy, seen), every, places))
    # The starts of the policy as a whole end at the first that a cell was not given, so after that nothing helps it.
    shared = frozenset[str]().union(*whole.values()) if not given_up else frozenset[str]()
    needed = {cell: shared.union(*parts.values()) for cell, parts in own.items()}
    left = {cell_name(course.policy, *cell): parts for cell, parts in own.items()}
    return needed, {**left, cell_name(course.policy, "", "*"): whole}


def _hopeless(
    course: Course, seen: Sequence[CellData], needed: Mapping[CellName, frozenset[str]], rounds: Rounds,
    given_up: Collection[CellName],
) -> set[CellName]:  # fmt: skip
    """Cells that what is left of the budget, shared by the open ones, will hardly decide in any part that is open."""
    waiting = [cell for cell, arms in needed.items() if arms and cell not in given_up]
    places, hopeless = course.settings.places or {}, set()
    for data in seen:
        cell = (data.env, data.group)
        if cell not in waiting or len(data.units) < _BEFORE_GIVING_UP:
            continue
        affordable = rounds.budget // len(waiting) // (len(needed[cell]) * course.settings.seeds)
        spare = sum(rounds.cell_of[unit] == cell and unit not in rounds.played for unit in course.order)
        starts = min(affordable, spare, MOST)
        parts = [part for part, arms in _open(course, data).items() if arms and part != "arms"]
        if starts < 1 or not parts:
            continue
        arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
        asked, order = questions_of(arms, course.settings.n), looks_until(data.units, places).order
        chances = [chance_within(asked, order, course.settings.worth, part, starts) for part in parts]
        if max(chances) <= _HOPE:
            hopeless.add(cell)
    return hopeless


def _open(course: Course, data: CellData) -> Open:
    """The open parts of a cell that are asked for, with the arms that they need: none where no take can settle one."""
    places = course.settings.places or {}
    order = np.array(sorted(range(len(data.units)), key=lambda i: places[data.units[i]]), dtype=np.int64)
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
    if BASE not in arms:
        return {"takes": frozenset(course.arms)}
    watch = Watch.of(
        arms, order, course.settings.n, course.settings.worth, deterministic=data.deterministic,
        leak_free=data.windows[0] != "episode",
    )  # fmt: skip
    return watch.open_parts(dict.fromkeys(arms, len(order)), course.arms)


def _stops(
    course: Course, cells: Sequence[CellName], left: Mapping[str, Open], rounds: Rounds, given_up: Collection[CellName]
) -> dict[str, Stop]:
    stops = {}
    for cell in (*cells, ("", "*")):
        name = cell_name(course.policy, *cell)
        unsettled = left.get(name, {"takes": frozenset(course.arms)})
        reason: Stopped = "decided"
        if unsettled:
            more = any(map(rounds.has_starts, cells)) if cell[1] == "*" else rounds.has_starts(cell)
            reason = "budget" if more else "starts"
            if cell in given_up or (cell[1] == "*" and given_up) or not any(unsettled.values()):
                reason = "hopeless"
        stops[name] = Stop(reason, tuple(unsettled))
    return stops
