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
from besttake.measure.arrays import CellData, Settings, Stop, leading, merge_cells
from besttake.measure.looks import Unit, cell_name
from besttake.measure.until import CellName, Rounds, Stopped, Watch, begin_with
from besttake.takes.key import TakeKey

_log = logging.getLogger(__name__)
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
    while chosen := rounds.next(needed):
        new = [
            TakeKey(course.policy, *unit, arm, seed)
            for unit, arms in chosen for arm in course.arms if arm in arms for seed in range(course.settings.seeds)
        ]  # fmt: skip
        planned += new
        course.play(new)
        seen = course.observe(planned)
        needed, left = _needs(course, seen, planned)
        _log.info("%s: %d takes, %d cells open", course.policy, len(planned), sum(map(bool, needed.values())))
    return planned, _stops(course, cells, left, rounds)


def _needs(
    course: Course, seen: Sequence[CellData], planned: Collection[TakeKey]
) -> tuple[dict[CellName, frozenset[str]], dict[str, Open]]:
    """The arms that each cell needs, by itself or for the policy as a whole; and the parts that are open, by cell."""
    places, every = course.settings.places or {}, set(planned)
    own = {(data.env, data.group): _open(course, data) for data in seen}
    whole = next(iter(own.values()))
    if len(own) > 1:
        # `shuffled` is run only in cells that retrieve, so it says nothing about all of them.
        run = [arm for arm in course.arms if arm != SHUFFLED]
        whole = _open(replace(course, arms=run), leading(merge_cells(course.policy, seen), every, places))
    shared = frozenset[str]().union(*whole.values())
    needed = {cell: shared.union(*parts.values()) for cell, parts in own.items()}
    left = {cell_name(course.policy, *cell): parts for cell, parts in own.items()}
    return needed, {**left, cell_name(course.policy, "", "*"): whole}


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


def _stops(course: Course, cells: Sequence[CellName], left: Mapping[str, Open], rounds: Rounds) -> dict[str, Stop]:
    stops = {}
    for cell in (*cells, ("", "*")):
        name = cell_name(course.policy, *cell)
        unsettled = left.get(name, {"takes": frozenset(course.arms)})
        reason: Stopped = "decided"
        if unsettled:
            more = any(map(rounds.has_starts, cells)) if cell[1] == "*" else rounds.has_starts(cell)
            reason = "budget" if more else "starts"
            if not any(unsettled.values()):
                reason = "hopeless"
        stops[name] = Stop(reason, tuple(unsettled))
    return stops
