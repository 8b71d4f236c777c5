"""``self:RUN``: the policy's own successes as its demonstrations.

RUN is a run on starts that are not evaluated on (``--starts tuning:40``); a scorer is never judged on a start that it
has learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from besttake.core.score import manifold, window_until
from besttake.core.search import Index
from besttake.demos.library import Library, View
from besttake.encoders.base import Encoder
from besttake.encoders.cache import cached
from besttake.errors import ComponentError
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.takes.store import Store
from besttake.types import F32

Unit = tuple[str, str, int]


@dataclass(frozen=True)
class Successes:
    """The successful base takes of a run, cut at success, and the starts of all its base takes.

    ``encoder`` is the one that embeds them, ``digest`` says which takes they are.
    """

    path: Path
    encoder: Encoder
    digest: str
    starts: frozenset[Unit]

    @classmethod
    def of(cls, scorer: str, rest: str) -> Successes:
        """Read the successes of the run ``rest``; ``scorer`` is named in errors."""
        if not rest:
            raise ComponentError(
                f"{scorer}: name a run on tuning starts, {scorer}:RUN (besttake diagnose --starts tuning:40)"
            )
        path = Path(rest)
        with Store.open(path) as store:
            keys = [row.key for row in store.rows() if row.status == "done" and row.key.arm == "base"]
            digest, library = store.digest(), store.manifest.library
        if library is None:
            raise ComponentError(f"{scorer}:{rest}: this run has no demonstrations, so its frames have no encoder")
        starts = frozenset((key.env, key.task, key.start) for key in keys)
        return cls(path, cached(Library.open(library).encoder()), digest, starts)

    def spec(self, name: str, version: str) -> ScorerSpec:
        """The spec of a scorer that compares embeddings with these."""
        fingerprint = f"{version} {self.digest[:16]} {self.encoder.spec.fingerprint}"
        return ScorerSpec(
            name, reads=("embeddings",), fingerprint=fingerprint, trained_on=self.starts,
            encoder=self.encoder.spec.fingerprint,
        )  # fmt: skip

    def frames(self, policy: str, task: str, last: int | None = None) -> F32:
        """The embeddings (F, d) of the ``last`` frames until success, or of all, of the policy's takes of a task."""
        parts = []
        with Store.open(self.path) as store:
            rows = [r for r in store.rows() if r.status == "done" and r.success and r.key.arm == "base"]
            if policy not in {row.key.policy for row in rows}:
                raise ComponentError(f"{self.path} has no successful base take of {policy}; run it there first")
            for row in rows:
                if (row.key.policy, row.key.task) == (policy, task) and row.success_step is not None:
                    take = store.load(row)
                    seen = np.flatnonzero(window_until(take.frame_steps, row.success_step))
                    parts.append(take.frames()[seen if last is None else seen[-last:]])
        if not parts:
            return np.zeros((0, self.encoder.spec.dim), np.float32)
        return self.encoder.encode(np.concatenate(parts))


class Own:
    """`manifold` with the policy's own successes instead of demonstrations."""

    def __init__(self, successes: Successes, name: str = "self") -> None:
        self.spec = successes.spec(name, "self 1")
        self._index = lru_cache(maxsize=None)(lambda policy, task: _index(successes.frames(policy, task)))

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """Eq. 4 with the frames of the policy's successes on the same task; NaN where it had none."""
        return [_score(take, self._index) for take in takes]


def _index(frames: F32) -> Index | None:
    return Index.build(frames) if len(frames) else None


def _score(take: Footage, index: Callable[[str, str], Index | None]) -> Score:
    assert take.embeddings is not None
    own = index(take.policy, take.task)
    if own is None:
        return Score([float("nan")] * len(take.windows))
    trace = own.nearest(take.embeddings)
    return Score([manifold(trace, window) for window in take.windows], trace.best)


def make(rest: str, name: str = "self") -> Own:
    """The scorer ``self:RUN``, known by ``name``."""
    return Own(Successes.of("self", rest), name)
