"""Which demonstrated chunk to start from: event-schema retrieval (Sec. 3.4 and S1-S3) with all its variants.

The distance of a query and a candidate is a weighted mean over three modalities, image embedding, predicted chunk and
state. Each modality is z-scored per dimension over the candidates (dimensions in which they do not differ are left
out), and its distance is the root mean square of the z-differences, so that 1536 image dimensions and 8 state
dimensions weigh alike. A modality that a query or the library lacks drops out, and the other weights share its part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from math import inf, prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.core.bounds import Lows, nearest, nearest_few
from besttake.core.search import F32, F64, I64
from besttake.core.spaces import Bound, Prepared, Rows, Space, Table

Rule = Literal["next", "current", "frame"]
RULES: tuple[Rule, ...] = ("next", "current", "frame")
# Up to so many numbers all candidates are compared at once. Queries, and bounds of them, that are computed together.
_PLAIN, _QUERIES, _BOUNDS = 1 << 17, 256, 1 << 24


@dataclass(frozen=True)
class RetrievalConfig:
    """How to retrieve, and how a sample is started from it: ``prior * chunk + noise * eps``.

    ``rule``: `next` matches the current event and returns the chunk of the event ``lead`` events later in the same
    demonstration (of its last event, where fewer follow); `current` returns the matched event's own chunk; `frame`
    matches any frame and returns the chunk that starts there.
    ``weights``: of image, action and state.
    ``noise``, ``prior``: weights of the policy's own noise, which the arm `cooled` shares, and of the chunk.
    ``by_task``: the prior of single tasks, by name or instruction, where it is another one.
    ``onset_alignment``: the query is the take's state at the onset of its current event (`events.current`) instead of
    now; whoever makes the query does this. (S1's "per-dimension whitening" needs no setting: the distance z-scores
    every dimension, which undoes any scale and shift per dimension that came before.)
    ``rerank``: the candidates nearest by image alone, this many, are compared by the full distance; 0: all are.
    ``gripper_gating``: only candidates in the query's gripper phase, where there are any.
    ``reliability``: a candidate's distance grows by this many times the distance between the chunk it would return and
    the policy's own prediction; 0: it does not. It changes which candidate wins, never the prior.
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
        """Plain values, for JSON. ``angle`` and ``by_task`` are left out where they say nothing."""
        values = {**asdict(self), "weights": list(self.weights), "by_task": dict(self.by_task)}
        return {k: v for k, v in values.items() if v is not None and v != {}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RetrievalConfig:
        """The configuration whose `to_dict` this is."""
        first, second, third = values.get("weights", (1.0, 1.0, 1.0))
        by_task = tuple(sorted(dict(values.get("by_task", ())).items()))
        return cls(**{**values, "weights": (float(first), float(second), float(third)), "by_task": by_task})

    def changed(self, values: Mapping[str, Any]) -> RetrievalConfig:
        """This configuration with other ``values``; a prior among them holds for every task."""
        kept = {k: v for k, v in self.to_dict().items() if k != "by_task" or "prior" not in values}
        return self.from_dict({**kept, **values})

    def prior_of(self, task: str) -> float:
        """The prior in ``task``."""
        return dict(self.by_task).get(task, self.prior)


@dataclass(frozen=True)
class Candidates:
    """What can be matched, one row each: events for the rules `next` and `current`, frames for `frame`.

    ``embeddings`` (E, d); ``chunks`` (E, horizon, action_dim) demonstrated from ``step`` (E,) of ``demo`` (E,) on;
    ``states`` (E, s) or None; ``open`` (E,) gripper phase or None; ``predicted`` like ``chunks``, what the policy
    itself predicts there: compared with the query's prediction where given, else the demonstrated chunks are.
    Tables may be arrays or `Rows`, which are read when they are needed.
    """

    embeddings: Table
    chunks: Table
    demo: I64
    step: I64
    states: Table | None = None
    open: NDArray[np.bool_] | None = None
    predicted: Table | None = None


@dataclass(frozen=True)
class Match:
    """What was retrieved: ``chunk`` float32 (horizon, action_dim), demonstrated from ``step`` of ``demo`` on.

    ``candidate`` is the row that matched and ``matched_step`` its step. ``distance`` is what it won by, ``parts`` the
    distance in each modality before weighting (NaN where one is missing).
    """

    demo: int
    candidate: int
    matched_step: int
    step: int
    chunk: F32
    distance: float
    parts: tuple[float, float, float]


Part = Literal["image", "chunk", "state", "returns"]
Prepare = Callable[[Part, Table, bool], Prepared]


def prepare_anew(_: Part, values: Table, bounds: bool) -> Prepared:
    """Prepare a modality here and now; a library keeps what was prepared before (`besttake.demos.index`)."""
    return Prepared.of(values, bounds)


class Retriever:
    """A candidate set (of one task) prepared for queries. Row b of a query depends on row b alone."""

    def __init__(
        self, candidates: Candidates, config: RetrievalConfig | None = None, prepare: Prepare = prepare_anew
    ) -> None:
        if not len(candidates.demo):
            raise ValueError("retrieval needs at least one candidate")
        self.candidates, self.config, self._prepare = candidates, config or RetrievalConfig(), prepare
        self.target = targets(candidates.demo, candidates.step, self.config)
        chunks = candidates.chunks if candidates.predicted is None else candidates.predicted
        tables = [table for table in (candidates.embeddings, chunks, candidates.states) if table is not None]
        self._bounded = sum(prod(table.shape) for table in tables) > _PLAIN
        self._spaces: tuple[Space, Space, Space | None] = (
            self._space("image", candidates.embeddings),
            self._space("chunk", chunks),
            None if candidates.states is None else self._space("state", candidates.states),
        )

    def _space(self, part: Part, values: Table) -> Space:
        return Space(values, self._prepare(part, values, self._bounded))

    @cached_property
    def _returns(self) -> Space:
        """The chunks that candidates return."""
        known, own = self.candidates, np.arange(len(self.target))
        if known.predicted is None and np.array_equal(self.target, own):
            return self._spaces[1]
        returned = Rows(lambda rows: known.chunks[self.target[rows]], known.chunks.shape)
        return self._space("returns", returned)

    def query(
        self,
        embeddings: NDArray[Any],
        chunks: NDArray[Any] | None = None,
        states: NDArray[Any] | None = None,
        phases: Sequence[bool | None] | None = None,
        exclude: Sequence[int | None] | None = None,
    ) -> list[Match]:
        """The match of each row: ``embeddings`` (B, d), predicted ``chunks`` (B, horizon, action_dim), ``states``.

        ``phases`` (B,) whether the gripper is open, None where unknown. ``exclude`` (B,) a demonstration that must not
        be matched (a held-out one). Ties go to the lowest candidate.
        """
        count = len(embeddings)
        size = max(1, min(_QUERIES, _BOUNDS // len(self.candidates.demo)))
        matches: list[Match] = []
        for first in range(0, count, size):
            part = slice(first, min(first + size, count))
            given = [None if value is None else value[part] for value in (embeddings, chunks, states)]
            placed = [
                None if value is None or space is None else space.place(value)
                for space, value in zip(self._spaces, given, strict=True)
            ]
            allowed = [
                self._allowed(None if phases is None else phases[b], None if exclude is None else exclude[b])
                for b in range(part.start, part.stop)
            ]
            matches += self._matches(_Queries(placed, self._returned(given[1]), allowed))
        return matches

    def random(self, rng: np.random.Generator) -> Match:
        """The arm `shuffled`: what a candidate drawn uniformly would return, whatever the query."""
        row = int(rng.integers(len(self.candidates.demo)))
        return self._match(row, np.nan, (np.nan,) * 3)

    def _returned(self, chunks: NDArray[Any] | None) -> F32 | None:
        return self._returns.place(chunks) if self.config.reliability and chunks is not None else None

    def _allowed(self, phase: bool | None, exclude: int | None) -> NDArray[np.bool_] | None:
        """Which candidates (E,) may match; None: all."""
        known, allowed = self.candidates, None
        if exclude is not None:
            allowed = known.demo != exclude
            if not allowed.any():
                raise ValueError("every candidate is of the excluded demonstration")
        if self.config.gripper_gating and phase is not None and known.open is not None:
            same = known.open == phase
            gated = same if allowed is None else allowed & same
            allowed = gated if gated.any() else allowed
        return allowed

    def _matches(self, queries: _Queries) -> list[Match]:
        count = len(queries.allowed)
        if not self._bounded:
            return [self._one(queries.take(slice(row, row + 1)), False) for row in range(count)]
        bounded, matches = queries.usual, dict[int, Match]()
        if bounded.any() and not self.config.rerank:
            rows = np.flatnonzero(bounded)
            few = queries.take(rows)
            winners, compared = nearest(self._lows(few), partial(self._compared, few))
            for row, winner, own in zip(rows.tolist(), winners.tolist(), compared.tolist(), strict=True):
                matches[row] = self._match(winner, own[0], (own[1], own[2], own[3]))
        for row in range(count):
            if row not in matches:
                matches[row] = self._one(queries.take(slice(row, row + 1)), bool(bounded[row]))
        return [matches[row] for row in range(count)]

    def _weights(self, missing: Sequence[bool]) -> F64:
        pairs = zip(missing, self.config.weights, strict=True)
        weights = np.array([0.0 if lacks else weight for lacks, weight in pairs])
        return weights if weights.sum() > 0 else np.array([1.0, 0.0, 0.0])

    def _lows(self, queries: _Queries, image_only: bool = False) -> Lows:
        """Bounds of the distances of ``queries``, or of their images alone."""
        weights = np.array([1.0, 0.0, 0.0]) if image_only else self._weights(queries.missing)
        terms = list(zip(self._spaces, queries.placed, weights / weights.sum(), strict=True))
        if queries.returned is not None and not image_only:
            terms.append((self._returns, queries.returned, self.config.reliability))

        def bounds(whole: bool) -> list[Bound]:
            made = [
                space.bound(placed, float(weight), whole)
                for space, placed, weight in terms
                if space is not None and placed is not None and weight > 0 and space.axes
            ]
            return [bound for bound in made if bound is not None]

        return Lows.of(bounds(False), len(self.candidates.demo), queries.allowed, cache(partial(bounds, True)))

    def _compared(self, queries: _Queries, query: I64, rows: I64) -> F64:
        """Distance and parts (n, 4) of pairs: of ``queries`` at ``query`` (n,) and the candidates ``rows`` (n,)."""
        weights, compared = self._weights(queries.missing), np.full((4, len(rows)), np.nan)
        for part, space, placed in zip(compared[1:], self._spaces, queries.placed, strict=True):
            if space is not None and placed is not None:
                part[:] = space.pairs(placed, query, rows)
        terms = [part * weight for part, weight in zip(compared[1:], weights, strict=True) if weight > 0]
        compared[0] = np.sum(terms, axis=0) / weights.sum()
        if queries.returned is not None:
            compared[0] += self.config.reliability * self._returns.pairs(queries.returned, query, rows)
        return compared.T

    def _one(self, query: _Queries, bounded: bool) -> Match:
        """The match of a single query, by comparing all candidates, or those nearest by image."""
        image, allowed = query.placed[0], query.allowed[0]
        assert image is not None
        rows = np.arange(len(self.target)) if allowed is None else np.flatnonzero(allowed)
        if self.config.rerank and bounded and self.config.rerank < len(rows):
            compare = partial(self._spaces[0].pairs, image)
            rows = nearest_few(self._lows(query, image_only=True), compare, self.config.rerank)
            near = self._spaces[0].distances(image[0], rows)
        else:
            near = self._spaces[0].distances(image[0], rows)
            if self.config.rerank:
                likely = np.sort(np.argsort(near, kind="stable")[: self.config.rerank])
                rows, near = rows[likely], near[likely]
        parts = [near] + [
            np.full(len(rows), np.nan) if space is None or placed is None else space.distances(placed[0], rows)
            for space, placed in zip(self._spaces[1:], query.placed[1:], strict=True)
        ]
        weights = self._weights([bool(np.isnan(part).any()) for part in parts])
        terms = [p * w for p, w in zip(parts, weights, strict=True) if w > 0]
        distance = np.sum(terms, axis=0) / weights.sum()
        if query.returned is not None:
            distance = distance + self.config.reliability * self._returns.distances(query.returned[0], rows)
        win = int(np.argmin(distance))
        own = (float(parts[0][win]), float(parts[1][win]), float(parts[2][win]))
        return self._match(int(rows[win]), float(distance[win]), own)

    def _match(self, row: int, distance: float, parts: tuple[float, float, float]) -> Match:
        known, target = self.candidates, int(self.target[row])
        steps = int(known.step[row]), int(known.step[target])
        return Match(int(known.demo[row]), row, *steps, known.chunks[target], distance, parts)


@dataclass(frozen=True)
class _Queries:
    """Queries on the axes of each modality, ``placed`` (B, k) or None, and which candidates each may match."""

    placed: Sequence[F32 | None]
    returned: F32 | None
    allowed: Sequence[NDArray[np.bool_] | None]

    @property
    def missing(self) -> list[bool]:
        """Which modalities no query has."""
        return [placed is None for placed in self.placed]

    @property
    def usual(self) -> NDArray[np.bool_]:
        """The queries (B,) whose numbers are all finite and so small that their squares are, too."""
        tables = [table for table in (*self.placed, self.returned) if table is not None]
        sane = [(np.abs(table) < 1e12).all(axis=1) for table in tables]  # not so what is not a number
        usual: NDArray[np.bool_] = np.logical_and.reduce(sane)
        return usual

    def take(self, rows: I64 | slice) -> _Queries:
        """Some of the queries."""
        if isinstance(rows, slice) and rows == slice(0, len(self.allowed)):
            return self
        placed = [None if table is None else table[rows] for table in self.placed]
        returned = None if self.returned is None else self.returned[rows]
        allowed = self.allowed[rows] if isinstance(rows, slice) else [self.allowed[row] for row in rows]
        return _Queries(placed, returned, allowed)


def targets(demo: I64, step: I64, config: RetrievalConfig) -> I64:
    """The row (E,) whose chunk each candidate returns: its own, or of the event ``lead`` later in its demonstration."""
    own = np.arange(len(demo))
    if config.rule != "next":
        return own
    order = np.lexsort((step, demo))
    place = np.empty_like(own)
    place[order] = own
    last = np.searchsorted(demo[order], demo, side="right") - 1
    ahead: I64 = order[np.minimum(place + config.lead, last)]
    return ahead
