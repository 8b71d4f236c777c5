"""Scorers that read numbers instead of pictures.

``actions``: how close actions are to demonstrated ones. ``smoothness``: how little they change (no demonstrations
needed). ``state``: how close the state at the end of a take is to those in which demonstrations end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from besttake.core.arithmetic import product
from besttake.demos.library import View
from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.types import F32, F64


class Actions:
    """Minus the mean distance of a take's pieces of ``steps`` actions to the nearest demonstrated piece."""

    def __init__(self, steps: int, name: str = "actions") -> None:
        self._steps = steps
        self.spec = ScorerSpec(name, reads=("actions", "library"), fingerprint=f"actions 1 {steps}")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``-mean_t min_c |A[t] - c|`` over the frames t of each window that a whole piece A[t] follows in it.

        Actions are divided by their spread in the demonstrations; |.| is the root of the mean square.
        """
        assert demos is not None
        pieces = _pieces(demos, self._steps)
        scores = []
        for take in takes:
            assert take.actions is not None
            near = np.full(len(take.steps), np.nan, np.float32)
            whole = take.steps + self._steps <= len(take.actions)
            if whole.any():
                own = _scaled(np.stack([take.actions[t : t + self._steps] for t in take.steps[whole]]), demos)
                near[whole] = -_gaps(own, pieces)
            values = []
            for end in take.ends:
                inside = near[take.steps + self._steps <= end]
                values.append(float(inside.mean(dtype=np.float64)) if len(inside) else float("nan"))
            scores.append(Score(values))
        return scores


def _gaps(own: F64, pieces: F64) -> F64:
    """The distance (n,) of each row to the nearest piece."""
    about = (pieces**2).sum(axis=1) - 2 * product(own, pieces.T)
    nearest = pieces[about.argmin(axis=1)]
    gaps: F64 = np.sqrt(((own - nearest) ** 2).mean(axis=1))
    return gaps


@lru_cache(maxsize=8)
def _pieces(demos: View, steps: int) -> F64:
    """All pieces of the demonstrations, scaled (C, steps * a)."""
    library = demos.library
    if library.actions is None:
        raise ComponentError("scorer actions: the demonstrations have no actions")
    chunks: list[F32] = [
        library.chunk(int(d), step, steps)
        for d in demos.demos
        for step in range(max(1, library.demos[d].length - steps + 1))
    ]
    return _scaled(np.stack(chunks), demos)


def _scaled(chunks: F32, demos: View) -> F64:
    spread = np.where(demos.action_spread > 1e-6, demos.action_spread, 1.0)
    if chunks.shape[2] != len(spread):
        raise ComponentError("scorer actions: takes and demonstrations have actions of different sizes")
    scaled: F64 = (chunks / spread).reshape(len(chunks), -1)
    return scaled


def make_actions(*, steps: str = "8", name: str = "actions") -> Actions:
    """The scorer ``actions``, or whatever its ``name``; ``steps`` is the length of a piece."""
    return Actions(Reader("actions").whole("steps", steps), name)


class Smoothness:
    """Minus the mean squared change of the actions."""

    spec = ScorerSpec("smoothness", reads=("actions",), fingerprint="smoothness 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``-mean_t |a[t + 1] - a[t]|^2 / dim`` over the actions of each window."""
        scores = []
        for take in takes:
            assert take.actions is not None
            changes = np.square(np.diff(take.actions.astype(np.float64), axis=0)).mean(axis=1)
            values = [-float(changes[: end - 1].mean()) if end > 1 else float("nan") for end in take.ends]
            scores.append(Score(values))
        return scores


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
