"""A third party's scorer, as docs/scorers.md shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec


class Calm:
    """Prefers takes whose actions change little from step to step."""

    spec = ScorerSpec("calm", reads=("actions",), fingerprint="calm 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        scores = []
        for take in takes:
            jumps = np.square(np.diff(take.actions, axis=0)).mean(axis=1)
            values = [-jumps[: end - 1].mean() if end > 1 else np.nan for end in take.ends]
            scores.append(Score(values))
        return scores


def make() -> Calm:
    return Calm()
