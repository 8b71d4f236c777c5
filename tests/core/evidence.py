"""The verdict on values that a test makes up, or on the takes of arms: the same path that a diagnosis goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from besttake.core.headroom import tally
from besttake.core.stats import Finding
from besttake.measure.arrays import ScoredTakes
from besttake.measure.verdict import Question, answer, answers_of, question, questions_of
from besttake.result import Answer

KINDS = {
    "headroom": "headroom", "gain": "choice", "shortest": "choice", "retrieve_selection": "choice",
    "combine": "pick",
}  # fmt: skip


class Evidence:
    """Questions about one cell; ``evidence.gain`` are the values of the question `gain`."""

    def __init__(
        self, *, n: int = 3, takes: Any = None, leak_free: bool = True, deterministic: bool = False, **values: Any
    ) -> None:
        self.n, self.leak_free, self.deterministic = n, leak_free, deterministic
        self.takes = n if takes is None else takes
        self.questions: list[Question] = [
            question(name, KINDS.get(name, "difference"), x, n, self.takes)  # type: ignore[arg-type]
            for name, x in values.items()
            if x is not None
        ]

    def __getattr__(self, name: str) -> np.ndarray:
        return next(q.values for q in self.questions if q.name == name)


def gather(base: ScoredTakes, **arms: ScoredTakes) -> Evidence:
    """The questions that the takes of arms answer, the best of all takes kept."""
    n = np.asarray(base.outcomes).shape[1]
    evidence = Evidence(n=n, takes=tally(base.outcomes)[0])
    evidence.questions = questions_of({"base": base, **arms}, n)
    return evidence


@dataclass(frozen=True)
class Decided:
    """The paper's three answers, and the answer to every question."""

    takes: Answer
    demonstrations: Answer
    both: Answer
    questions: Mapping[str, Finding]


def decide(evidence: Evidence, worth: float = 0.03, **how: Any) -> Decided:
    """The answers; ``how`` is passed to `answer`."""
    findings = answer(evidence.questions, worth, **how)
    answers = answers_of(
        findings, evidence.n, int(np.max(evidence.takes)), deterministic=evidence.deterministic,
        leak_free=evidence.leak_free,
    )  # fmt: skip
    return Decided(**answers, questions=findings)
