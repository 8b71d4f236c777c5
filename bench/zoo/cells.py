"""Cells of the study: a policy on one task, or on all four, as the values per start of what a verdict asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.zoo.takes import COOLED, RETRIEVE, SCORE, SHORTEST, TASKS, Policy
from besttake.measure.arrays import ScoredTakes
from besttake.measure.verdict import Question, questions_of


@dataclass(frozen=True)
class Cell:
    """A population of starts with the value of every question at each."""

    policy: str
    task: str
    arms: Mapping[str, ScoredTakes]
    questions: tuple[Question, ...]

    @property
    def starts(self) -> int:
        return len(self.questions[0].values)

    @property
    def truth(self) -> dict[str, float]:
        return {q.name: float(np.mean(q.values)) for q in self.questions}

    def drawn(self, rows: NDArray[np.int64]) -> list[Question]:
        """The questions about the starts ``rows`` alone."""
        return [replace(q, values=q.values[rows], ruling=q.ruling[rows]) for q in self.questions]


def cells(policy: Policy, config: str) -> Iterator[Cell]:
    """The policy on all tasks together, then on each."""
    arm, noise = RETRIEVE[config]
    names = {"base": "base", "cooled": COOLED[noise], "retrieve": arm}
    for task, part in [("all", slice(None)), *((t, slice(i, i + 1)) for i, t in enumerate(TASKS))]:
        takes = {
            name: ScoredTakes(
                policy.outcomes[uri][part].reshape(-1, 3),
                policy.scores[uri, SCORE][part].reshape(-1, 3),
                -policy.scores[uri, SHORTEST][part].reshape(-1, 3),
            )
            for name, uri in names.items()
        }
        yield Cell(policy.name, task, takes, tuple(questions_of(takes, 3)))
