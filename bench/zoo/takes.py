"""What the study reads of the takes of one policy: arrays over (task, start, seed)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import besttake
from besttake.core import select
from besttake.core.headroom import start_headroom

F64 = NDArray[np.float64]
TASKS = ("pick", "push", "drawer", "stack")
SCORES = ("coverage full", "manifold full", "coverage common", "manifold common", "manifold episode")
SHORTEST = "shortest"
SCORE, PAPERS = "coverage full", "manifold full"
"""What the verdict picks by, and what the paper picks by."""
WORTH = 0.03
COOLED = {0.7: "cooled?noise=0.7", 0.1: "cooled?noise=0.1"}
RETRIEVE = {
    "frame .1": ("retrieve?rule=frame&rerank=10&noise=0.1&prior=0.1", 0.1),
    "frame .2": ("retrieve?rule=frame&rerank=10&noise=0.1&prior=0.2", 0.1),
    "frame .3": ("retrieve?rule=frame&rerank=10&noise=0.1&prior=0.3", 0.1),
    "paper .3": ("retrieve?rule=next&alpha=0.3", 0.7),
}
"""Retrieval by a short name: its arm and its noise, which is that of its control."""


@dataclass(frozen=True)
class Policy:
    """A policy of the zoo: ``outcomes[arm]`` and ``scores[arm, score]`` are (tasks, starts, seeds)."""

    name: str
    deficit: str
    outcomes: dict[str, F64]
    scores: dict[tuple[str, str], F64]
    dfe_over_floor: float
    dfe: float
    digest: str

    def rate(self, arm: str = "base") -> F64:
        """Success of each start (tasks, starts), the mean over its seeds."""
        return np.asarray(self.outcomes[arm].mean(axis=2), np.float64)

    def headroom(self, arm: str = "base") -> F64:
        """pass@3 - pass@1 of each start (tasks, starts)."""
        return self._by_start(lambda rows: start_headroom(rows[0]), self.outcomes[arm])

    def gain(self, score: str, arm: str = "base") -> F64:
        """Selection by ``score`` minus pass@1 of the same arm, of each start (tasks, starts)."""
        return self._by_start(lambda rows: select.start_gain(*rows), self.outcomes[arm], self.scores[arm, score])

    def picked(self, score: str, arm: str = "base") -> F64:
        """Success of the take that ``score`` picks, of each start (tasks, starts)."""
        return self.gain(score, arm) + self.rate(arm)

    @staticmethod
    def _by_start(function, *arrays: F64) -> F64:  # type: ignore[no-untyped-def]
        tasks, starts, seeds = arrays[0].shape
        return np.asarray(function([a.reshape(-1, seeds) for a in arrays]), np.float64).reshape(tasks, starts)


def load(directory: Path, name: str, deficit: str) -> Policy:
    """The policy whose run is in ``directory/runs/name``; its arrays are kept beside the run once they were read."""
    with besttake.Run.open(directory / "runs" / name) as run:
        fit = run.result.policies[0].dfe
        assert fit is not None
        numbers = {"dfe_over_floor": fit.ratio.value or np.nan, "dfe": fit.dfe.value or np.nan}
        digest = run.result.digest
        kept = directory / "arrays" / f"{name}-{digest[:12]}.npz"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(kept, allow_pickle=False, **_arrays(run))
    with np.load(kept) as arrays:
        cut = {tuple(key.split("|")): arrays[key] for key in arrays.files}
    outcomes = {key[0]: array for key, array in cut.items() if key[1] == "success"}
    scores = {(key[0], key[1]): array for key, array in cut.items() if key[1] != "success"}
    return Policy(name, deficit, outcomes, scores, digest=digest, **numbers)


def _arrays(run: besttake.Run) -> dict[str, F64]:
    rows = run.takes.rows
    starts = sorted({row.key.start for row in rows})
    seeds = 1 + max(row.key.seed for row in rows)
    names = ("success", SHORTEST, *SCORES)
    empty = (len(TASKS), len(starts), seeds)
    arrays = {f"{arm}|{name}": np.full(empty, np.nan) for arm in {row.key.arm for row in rows} for name in names}
    assert run.scores is not None
    for row in rows:
        key = row.key
        place = TASKS.index(key.task), starts.index(key.start), key.seed
        scored = {f"{n.scorer} {n.window}": value for n, value in run.scores[key].scores.items()}
        values = {"success": float(bool(row.success)), SHORTEST: -float(row.success_step or row.steps + 1), **scored}
        for name in names:
            arrays[f"{key.arm}|{name}"][place] = values[name]
    return arrays
