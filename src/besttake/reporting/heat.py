"""The outcome of every take as data for the page's map of starts, takes and arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from besttake.measure.scores import Scores
from besttake.reporting.candidates import Candidate
from besttake.takes.key import Row


@dataclass(frozen=True)
class HeatArm:
    """The takes of one arm of a start, a letter each: 1 success, 0 failure, x could not be made, - is not there.

    ``steps``: when each succeeded, or how long it went on. ``picked`` is the place of the picked one.
    """

    takes: str
    steps: list[int]
    picked: int | None


@dataclass(frozen=True)
class HeatStart:
    """A start in the map; ``film`` is its place among the starts whose films are in the page."""

    id: str
    cell: int
    task: str
    start: int
    kind: str
    disputed: bool
    arms: list[HeatArm]
    film: int | None


@dataclass(frozen=True)
class Heat:
    """Every start of a run, under the names of its arms and cells (policy, tasks), in canonical order."""

    arms: list[str]
    cells: list[tuple[str, str]]
    starts: list[HeatStart]


def heat(
    by_cell: Mapping[int, Sequence[Candidate]],
    cells: Sequence[tuple[str, str]],
    scores: Scores | None,
    films: Mapping[str, int],
) -> Heat:
    """The map of a run's starts; ``films`` has the place of a start's films in the page, by its id."""
    every = [candidate for i in sorted(by_cell) for candidate in by_cell[i]]
    arms = list(dict.fromkeys(arm for candidate in every for arm in candidate.arms))
    wide = {
        arm: 1 + max((row.key.seed for c in every for row in c.arms.get(arm, ())), default=-1) for arm in arms
    }  # fmt: skip
    starts = [
        HeatStart(
            c.id, c.place, c.key.task, c.key.start, c.kind, c.disputed,
            [_arm(c.arms.get(arm, ()), wide[arm], c.pick_of(arm, scores) if arm in c.arms else None) for arm in arms],
            films.get(c.id),
        )
        for c in every
    ]  # fmt: skip
    return Heat(arms, list(cells), starts)


def _arm(rows: Sequence[Row], wide: int, picked: int | None) -> HeatArm:
    letters, steps = ["-"] * wide, [0] * wide
    for row in rows:
        seed = row.key.seed
        letters[seed] = "x" if row.success is None else "1" if row.success else "0"
        steps[seed] = row.success_step if row.success_step is not None else row.steps
    return HeatArm("".join(letters), steps, picked)
