"""``state``: how close the state at the end of a take is to those in which demonstrations end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.demos.library import View
from besttake.errors import ComponentError
from besttake.scorers.base import Footage, Score, ScorerSpec, no_rest
from besttake.types import F64


class FinalState:
    """Minus the distance to the nearest final state of a demonstration."""

    spec = ScorerSpec("state", reads=("states", "library"), fingerprint="state 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``-min_j |s[end] - s_j[last]| / sigma``, sigma the spread of each number over all demonstrated states."""
        assert demos is not None
        finals, spread = _finals(demos)
        scores = []
        for take in takes:
            assert take.states is not None
            if take.states.shape[1] != finals.shape[1]:
                raise ComponentError(
                    f"scorer state: takes have states of {take.states.shape[1]} numbers, demonstrations of"
                    f" {finals.shape[1]}"
                )
            own = take.states[[min(end, len(take.states) - 1) for end in take.ends]].astype(np.float64)
            gaps = np.sqrt((((own[:, None] - finals) / spread) ** 2).mean(axis=2)).min(axis=1)
            empty = np.array([end == 0 for end in take.ends])
            scores.append(Score(np.where(empty, np.nan, -gaps)))
        return scores


def _finals(demos: View) -> tuple[F64, F64]:
    """The final states (J, s) of the demonstrations, and the spread (s,) of all their states."""
    library = demos.library
    if library.states is None:
        raise ComponentError("scorer state: the demonstrations have no states")
    lengths = {int(d): library.demos[d].length for d in demos.demos}
    finals = np.stack([library.state(d, length - 1) for d, length in lengths.items()]).astype(np.float64)
    every = np.concatenate([[library.state(d, step) for step in range(n)] for d, n in lengths.items()])
    spread = every.std(axis=0, dtype=np.float64)
    return finals, np.where(spread > 1e-6, spread, 1.0)


def make(rest: str) -> FinalState:
    """The scorer ``state``."""
    no_rest("state", rest)
    return FinalState()
