"""Event-schema retrieval (Sec. 3.4, S1-S3), which finds a demonstrated chunk, and the warm start from it (Eq. 6).

The distance between a query and a candidate is a weighted mean over three modalities: image embedding, predicted chunk
and state. Each modality is z-scored per dimension over the candidates (dimensions in which they do not differ are left
out), and its distance is the root mean square of the z-differences, so that 1536 image dimensions and 8 state
dimensions count alike. A modality that the query or the library lacks is left out, and the others share its weight.

`alike` and `closeness` are for per-step re-ranking, with which the paper compares episode-level selection (Sec. 4.3).
The best of the candidate chunks of one replan is the one closest to a chunk demonstrated at one of the library frames
most like the current observation, in root mean square over steps and action dimensions, each in units of its spread
over the task's demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf, prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import F32, F64, I64, Bools
from besttake.core.search import Rows, Space, Table, nominate

Rule = Literal["next", "current", "frame"]
RULES: tuple[Rule, ...] = ("next", "current", "frame")
# Up to _PLAIN numbers, all candidates are compared directly. At most _QUERIES queries, and _ROUGH rough distances, are
# computed together.
_PLAIN, _QUERIES, _ROUGH = 1 << 17, 256, 1 << 24
Part = Literal["image", "chunk", "state", "returns"]


@dataclass(frozen=True)
class RetrievalConfig:
    """How to retrieve a chunk, and how to start a sample from it: ``prior * chunk + noise * eps``.

    ``rule``: `next` matches the current event and returns the chunk of the event ``lead`` events later in the same
    demonstration (of its last event, if fewer follow); `current` returns the matched event's own chunk; `frame` matches
    any frame and returns the chunk that starts there.
    ``weights``: of image, action and state.
    ``noise``, ``prior``: the weights of the policy's own noise, which the arm `cooled` shares, and of the chunk.
    ``by_task``: priors of tasks, by name or instruction, that differ from ``prior``.
    ``onset_alignment``: the query is the take's state at the onset of its current event (`events.current`) instead of
    its present state; the caller makes the query so. (S1's "per-dimension whitening" needs no setting: the distance
    z-scores every dimension, which undoes any earlier scale and shift.)
    ``rerank``: compare only this many candidates, those nearest by image alone, by the full distance; 0: all.
    ``gripper_gating``: only candidates in the query's gripper phase, if there are any.
    ``reliability``: add this many times the distance between the chunk that a candidate would return and the policy's
    own prediction to the candidate's distance. It changes which candidate wins, never the prior.
    ``angle``: the turn, in degrees, that begins an event; None: as the library was built.
    """

    rule: Rule = "next"
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    noise: float = 0.1
    prior: float = 0.1
    by_task: tuple[tuple[str, float], ...] = ()
    onset_alignment: bool = False
    rerank: int = 0
    gripper_gating: bool = False
    reliability: float = 0.0
    lead: int = 1
    angle: float | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be next, current or frame, not {self.rule!r}")
        if len(self.weights) != 3 or not (all(w >= 0 for w in self.weights) and 0 < sum(self.weights) < inf):
            raise ValueError(f"weights must be three finite numbers of at least 0, not all 0, not {self.weights}")
        priors = (("prior", value) for value in (self.prior, *dict(self.by_task).values()))
        for name, value in (("noise", self.noise), *priors):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {value}")
        if self.lead < 1 or self.rerank < 0 or not 0 <= self.reliability < inf:
            raise ValueError("lead must be at least 1, rerank and reliability at least 0 and finite")
        if self.angle is not None and not 0 < self.angle < 180:
            raise ValueError(f"angle must lie between 0 and 180 degrees, not {self.angle}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, without an empty ``angle`` or ``by_task``."""
        values = {**asdict(self), "weights": list(self.weights), "by_task": dict(self.by_task)}
        return {k: v for k, v in values.items() if v is not None and v != {}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RetrievalConfig:
        """The configuration that `to_dict` turned into ``values``."""
        first, second, third = values.get("weights", (1.0, 1.0, 1.0))
        by_task = tuple(sorted(dict(values.get("by_task", ())).items()))
        return cls(**{**values, "weights": (float(first), float(second), float(third)), "by_task": by_task})

    def changed(self, values: Mapping[str, Any]) -> RetrievalConfig:
        """This configuration with other ``values``; a prior among them applies to every task."""
        others = {k: v for k, v in self.to_dict().items() if k != "by_task" or "prior" not in values}
        return self.from_dict({**others, **values})

    def prior_of(self, task: str) -> float:
        """The prior in ``task``."""
        return dict(self.by_task).get(task, self.prior)


@dataclass(frozen=True)
class Candidates:
    """The E rows that a query can match: events for the rules `next` and `current`, frames for `frame`.

    ``embeddings`` (E, d); ``chunks`` (E, horizon, action_dim) demonstrated from ``step`` (E,) of ``demo`` (E,) on;
    ``states`` (E, s) or None; ``open`` (E,), whether the gripper is open, or None.
    Tables may be arrays or `Rows`, which are read when needed.
    """

    embeddings: Table
    chunks: Table
    demo: I64
    step: I64
    states: Table | None = None
    open: Bools | None = None


@dataclass(frozen=True)
class Match:
    """A retrieved ``chunk``, float32 (horizon, action_dim), demonstrated from ``step`` of ``demo`` on.

    ``candidate`` is the row that matched and ``matched_step`` its step. ``distance`` is its distance to the query,
    ``parts`` the distance in each modality before weighting (NaN where one is missing).
    """

    demo: int
    candidate: int
    matched_step: int
    step: int
    chunk: F32
    distance: float
    parts: tuple[float, float, float]


class Retriever:
    """Finds the nearest candidate of a task. Each row of a query is matched independently of the others.

    ``prepare`` turns the table of a part into a `Space`; retrievers of the same tables may share spaces.
    """

    def __init__(
        self,
        candidates: Candidates,
        config: RetrievalConfig | None = None,
        prepare: Callable[[Part, Table], Space] = lambda _, values: Space(values),
    ) -> None:
        if not len(candidates.demo):
            raise ValueError("retrieval needs at least one candidate")
        self.candidates, self.config, self._prepare = candidates, config or RetrievalConfig(), prepare
        self.target = targets(candidates.demo, candidates.step, self.config)
        tables = [t for t in (candidates.embeddings, candidates.chunks, candidates.states) if t is not None]
        self._many = sum(prod(table.shape) for table in tables) > _PLAIN
        self._spaces: tuple[Space, Space, Space | None] = (
            prepare("image", candidates.embeddings),
            prepare("chunk", candidates.chunks),
            None if candidates.states is None else prepare("state", candidates.states),
        )

    @cached_property
    def _returns(self) -> Space:
        """The chunks that candidates return."""
        if np.array_equal(self.target, np.arange(len(self.target))):
            return self._spaces[1]
        chunks = self.candidates.chunks
        return self._prepare("returns", Rows(lambda rows: chunks[self.target[rows]], chunks.shape))

    def query(
        self,
        embeddings: NDArray[Any],
        chunks: NDArray[Any] | None = None,
        states: NDArray[Any] | None = None,
        phases: Sequence[bool | None] | None = None,
        exclude: Sequence[int | None] | None = None,
    ) -> list[Match]:
        """The match of each row of ``embeddings`` (B, d), predicted ``chunks`` (B, horizon, action_dim) and ``states``.

        ``phases`` (B,): whether the gripper is open, None where unknown. ``exclude`` (B,): a held-out demonstration,
        which must not be matched. Ties go to the lowest candidate.
        """
        count = len(embeddings)
        size = max(1, min(_QUERIES, _ROUGH // len(self.candidates.demo)))
        matches: list[Match] = []
        for first in range(0, count, size):
            part = slice(first, min(first + size, count))
            images, predicted, seen = (None if value is None else value[part] for value in (embeddings, chunks, states))
            returned = predicted if self.config.reliability else None
            spaces = (*self._spaces, self._returns if returned is not None else None)
            placed = [
                None if value is None or space is None else space.place(value)
                for space, value in zip(spaces, (images, predicted, seen, returned), strict=True)
            ]
            allowed = [
                self._allowed(None if phases is None else phases[b], None if exclude is None else exclude[b])
                for b in range(part.start, part.stop)
            ]
            matches += self._matches(placed, allowed)
        return matches

    def random(self, rng: np.random.Generator) -> Match:
        """For the arm `shuffled`: what a uniformly drawn candidate returns."""
        row = int(rng.integers(len(self.candidates.demo)))
        return self._match(row, np.nan, (np.nan,) * 3)

    def _allowed(self, phase: bool | None, exclude: int | None) -> Bools | None:
        """Which candidates (E,) may match; None for all."""
        candidates, allowed = self.candidates, None
        if exclude is not None:
            allowed = candidates.demo != exclude
            if not allowed.any():
                raise ValueError("every candidate is of the excluded demonstration")
        if self.config.gripper_gating and phase is not None and candidates.open is not None:
            same = candidates.open == phase
            gated = same if allowed is None else allowed & same
            allowed = gated if gated.any() else allowed
        return allowed

    def _matches(self, placed: Sequence[F32 | None], allowed: Sequence[Bools | None]) -> list[Match]:
        """The match of each query: ``placed`` (B, k) on the axes of image, chunk, state and returned chunk, or None."""
        lows, unsure = self._lows(placed) if self._many else (None, np.full(len(allowed), inf))
        matches = []
        for b, mask in enumerate(allowed):
            query = [None if table is None else table[b] for table in placed]
            rows = np.arange(len(self.target)) if mask is None else np.flatnonzero(mask)
            if lows is not None and unsure[b] < inf and self.config.rerank < len(rows):
                low = lows[b] if mask is None else np.where(mask, lows[b], np.float32(inf))
                rows = self._nominated(query, low, float(unsure[b]))
            matches.append(self._nearest(query, rows))
        return matches

    def _lows(self, placed: Sequence[F32 | None]) -> tuple[F32, F64]:
        """Lower bounds on the distances (B, E), and by how much they may be off (B,): inf where unknown.

        With ``rerank`` they are the distances by image alone.
        """
        tables = [table for table in placed if table is not None]
        # Only queries whose numbers and their squares are finite have bounds.
        usual = np.logical_and.reduce([(np.abs(table) < 1e12).all(axis=1) for table in tables])
        lows = np.zeros((len(usual), len(self.target)), np.float32)
        unsure: F64 = np.where(usual, 0.0, inf)
        weights = self._weights([table is None for table in placed[:3]])
        shares = [*(weights / weights.sum()), self.config.reliability]
        if self.config.rerank:
            shares = [1.0, 0.0, 0.0, 0.0]
        for part, (table, share) in enumerate(zip(placed, shares, strict=True)):
            space = self._returns if part == 3 else self._spaces[part]
            if space is not None and table is not None and share > 0:
                unsure += space.add_lows(np.where(usual[:, None], table, np.float32(0)), float(share), lows)
        return lows, unsure

    def _nominated(self, query: Sequence[F32 | None], low: F32, unsure: float) -> I64:
        """The candidates, ascending, that may match or, with ``rerank``, may be among those compared in full."""
        image = query[0]
        if self.config.rerank and image is not None:
            return nominate(low, unsure, lambda rows: self._spaces[0].distances(image, rows), self.config.rerank)
        return nominate(low, unsure, lambda rows: self._distances(query, rows)[0], 1)

    def _weights(self, missing: Sequence[bool]) -> F64:
        pairs = zip(missing, self.config.weights, strict=True)
        weights = np.array([0.0 if lacks else weight for lacks, weight in pairs])
        return weights if weights.sum() > 0 else np.array([1.0, 0.0, 0.0])

    def _distances(self, query: Sequence[F32 | None], rows: I64) -> tuple[F64, list[F64]]:
        """The distances (n,) between one query and the candidates ``rows`` (n,), and those in each modality."""
        parts = [
            np.full(len(rows), np.nan) if space is None or placed is None else space.distances(placed, rows)
            for space, placed in zip(self._spaces, query[:3], strict=True)
        ]
        weights = self._weights([bool(np.isnan(part).any()) for part in parts])
        terms = [part * weight for part, weight in zip(parts, weights, strict=True) if weight > 0]
        distance: F64 = np.sum(terms, axis=0) / weights.sum()
        if (returned := query[3]) is not None:
            distance = distance + self.config.reliability * self._returns.distances(returned, rows)
        return distance, parts

    def _nearest(self, query: Sequence[F32 | None], rows: I64) -> Match:
        """The match of one query among the candidates ``rows``, all of which are compared."""
        if self.config.rerank and (image := query[0]) is not None:
            near = self._spaces[0].distances(image, rows)
            rows = rows[np.sort(np.argsort(near, kind="stable")[: self.config.rerank])]
        distance, parts = self._distances(query, rows)
        win = int(np.argmin(distance))
        modalities = (float(parts[0][win]), float(parts[1][win]), float(parts[2][win]))
        return self._match(int(rows[win]), float(distance[win]), modalities)

    def _match(self, row: int, distance: float, parts: tuple[float, float, float]) -> Match:
        candidates, target = self.candidates, int(self.target[row])
        steps = int(candidates.step[row]), int(candidates.step[target])
        return Match(int(candidates.demo[row]), row, *steps, candidates.chunks[target], distance, parts)


def targets(demo: I64, step: I64, config: RetrievalConfig) -> I64:
    """For each of the E candidates, the index of the candidate whose chunk it returns.

    That is its own or, with the rule ``next``, that of the event ``lead`` events later in its demonstration, at most
    the last.
    """
    rows = np.arange(len(demo))
    if config.rule != "next":
        return rows
    order = np.lexsort((step, demo))
    place = np.empty_like(rows)
    place[order] = rows
    last = np.searchsorted(demo[order], demo, side="right") - 1
    ahead: I64 = order[np.minimum(place + config.lead, last)]
    return ahead


def alike(embedding: NDArray[Any], library: NDArray[Any], count: int) -> I64:
    """The ``count`` library frames (F, d) most like ``embedding`` (d,), best first, ties to the lowest."""
    cosine = (np.asarray(library, np.float64) * np.asarray(embedding, np.float64)).sum(axis=1)
    return np.argsort(-cosine, kind="stable")[:count]


def closeness(chunks: NDArray[Any], shown: NDArray[Any], scale: NDArray[Any]) -> F64:
    """Minus the distance (C,) of each candidate (C, h, a) to the nearest chunk ``shown`` (k, h, a); ``scale`` (a,)."""
    unit = np.where(np.asarray(scale) > 0, scale, 1.0)
    gaps = (np.asarray(chunks, np.float64)[:, None] - np.asarray(shown, np.float64)[None]) / unit
    nearest: F64 = -np.sqrt(np.mean(gaps**2, axis=(2, 3))).min(axis=1)
    return nearest


def warm_start(eps: F32, noise: float, prior: float = 0.0, chunk: F32 | None = None) -> F32:
    """``a_init = prior * chunk + noise * eps``, in the policy's own space and of the shape of ``eps``.

    Eq. 6 is prior alpha and noise 1 - alpha. Without a chunk, or with prior 0, this is the arm `cooled`; with noise 1
    as well, it is ``eps``.
    """
    cooled: F32 = eps if noise == 1 else np.float32(noise) * eps
    return cooled if chunk is None or prior == 0 else cooled + np.float32(prior) * chunk
