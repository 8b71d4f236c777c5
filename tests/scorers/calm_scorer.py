"""A third party's scorer, as docs/scorers.md shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.demos.library import View
from besttake.scorers.base import Footage, Score, ScorerSpec


class Calm:
    """Prefers takes whose actions change little from step to step."""

    spec = ScorerSpec("calm", reads=("actions",), fingerprint="calm 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> Sequence[Score]:
        assert demos is None
        return [Score([self._value(take, end) for end in take.ends]) for take in takes]

    def _value(self, take: Footage, end: int) -> float:
        assert take.actions is not None
        changes = np.diff(take.actions[:end], axis=0)
        return -float(np.square(changes).mean()) if len(changes) else float("nan")


def make() -> Calm:
    return Calm()
