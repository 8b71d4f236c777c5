"""``self:RUN`` and ``last:RUN``: the policy's own successes as its demonstrations.

RUN is a run on starts that are not evaluated on (``--starts tuning:40``); a scorer is never judged on a start that it
has learned from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from besttake.arms import BASE
from besttake.core.score import manifold, window_until
from besttake.core.search import Index
from besttake.demos.library import Library, View
from besttake.encoders.base import Encoder, embeddings_of
from besttake.encoders.cache import cached
from besttake.errors import ComponentError
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.takes.store import Store


@dataclass(frozen=True)
class Successes:
    """The successful base takes of a run, cut at success, and the starts of all its base takes.

    ``encoder`` is the one that embeds them, ``digest`` says which takes they are.
    """

    path: Path
    encoder: Encoder
    digest: str
    starts: frozenset[tuple[str, str, int]]
    _indexes: dict[tuple[str, str], Index | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, scorer: str, rest: str) -> Successes:
        """Read the successes of the run ``rest``; ``scorer`` is named in errors."""
        if not rest:
            raise ComponentError(
                f"{scorer}: name a run on tuning starts, {scorer}:RUN (besttake diagnose --starts tuning:40)"
            )
        path = Path(rest)
        with Store.open(path) as store:
            keys = [row.key for row in store.rows() if row.status == "done" and row.key.arm == BASE]
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

    def index(self, policy: str, task: str, last: int | None = None) -> Index | None:
        """The ``last`` frames (or all) until success of the policy's takes of a task, read once; None without any."""
        if (policy, task) in self._indexes:
            return self._indexes[policy, task]
        parts = []
        with Store.open(self.path) as store:
            rows = [r for r in store.rows() if r.status == "done" and r.success and r.key.arm == BASE]
            if policy not in {row.key.policy for row in rows}:
                raise ComponentError(f"{self.path} has no successful base take of {policy}; run it there first")
            for row in rows:
                if (row.key.policy, row.key.task) == (policy, task) and row.success_step is not None:
                    take = store.load(row)
                    seen = np.flatnonzero(window_until(take.frame_steps, row.success_step))
                    parts.append(take.frames()[seen if last is None else seen[-last:]])
        index = Index.build(embeddings_of(self.encoder, np.concatenate(parts))) if parts else None
        self._indexes[policy, task] = index
        return index


class Own:
    """`manifold` with the policy's own successes instead of demonstrations."""

    def __init__(self, successes: Successes, name: str = "self") -> None:
        self.spec = successes.spec(name, "self 1")
        self._successes = successes

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """Eq. 4 with the frames of the policy's successes on the same task; NaN where it had none."""
        return [_likeness(take, self._successes.index(take.policy, take.task)) for take in takes]


def _likeness(take: Footage, index: Index | None) -> Score:
    assert take.embeddings is not None
    if index is None:
        return Score([float("nan")] * len(take.windows))
    trace = index.nearest(take.embeddings)
    return Score([manifold(trace, window) for window in take.windows])


class OwnLast:
    """`besttake.scorers.frames.Last` with the policy's own successes instead of demonstrations."""

    def __init__(self, successes: Successes, count: int, name: str = "last own") -> None:
        self._count, self._successes = count, successes
        self.spec = successes.spec(name, f"last of successes 1 {count}")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """For each window; NaN where the policy had no success on the task."""
        indexes = (self._successes.index(take.policy, take.task, self._count) for take in takes)
        return [last_likeness(take, index, self._count) for take, index in zip(takes, indexes, strict=True)]


def last_likeness(take: Footage, index: Index | None, count: int) -> Score:
    """The mean highest cosine of the last ``count`` frames of each window to those of ``index``."""
    assert take.embeddings is not None
    if index is None:
        return Score([float("nan")] * len(take.windows))
    trace = index.nearest(take.embeddings).best
    ends = [trace[window][-count:] for window in take.windows]
    return Score([float(end.mean(dtype=np.float64)) if len(end) else float("nan") for end in ends])


def make(rest: str, name: str = "self") -> Own:
    """The scorer ``self:RUN``, known by ``name``."""
    return Own(Successes.of("self", rest), name)
