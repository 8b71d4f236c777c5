"""Which demonstrated chunk to start from: event-schema retrieval (Sec. 3.4 and S1-S3) with all its variants.

The distance of a query and a candidate is a weighted mean over three modalities, image embedding, predicted chunk and
state. Each modality is z-scored per dimension over the candidates (dimensions in which they do not differ are left
out), and its distance is the root mean square of the z-differences, so that 1536 image dimensions and 8 state
dimensions weigh alike. A modality that a query or the library lacks drops out, and the other weights share its part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

Rule = Literal["next", "current", "frame"]
Way = Literal["start", "path", "blend"]
RULES: tuple[Rule, ...] = ("next", "current", "frame")
WAYS: tuple[Way, ...] = ("start", "path", "blend")


@dataclass(frozen=True)
class RetrievalConfig:
    """How to retrieve, and how strongly to use it.

    ``rule``: `next` matches the current event and returns the chunk of the event ``lead`` events later in the same
    demonstration (of its last event, where fewer follow); `current` returns the matched event's own chunk; `frame`
    matches any frame and returns the chunk that starts there.
    ``weights``: of image, action and state.
    ``way``: how the chunk gets into the sample, and ``alpha`` how strongly. `start`: the sample starts from
    ``alpha * chunk + (1 - alpha) * eps`` (Eq. 6). `path`: it starts there too, but at flow time ``alpha``, where
    training put such a mixture. `blend`: actions are ``alpha * chunk + (1 - alpha) * (the sample cooled by alpha)``.
    ``cooling``: how strongly the arm `cooled` cools; None: by alpha, too.
    ``onset_alignment``: the query is the take's state at the onset of its current event (`events.current`) instead of
    now; whoever makes the query does this. ``whitening``: the embedding is also decorrelated, on the principal axes
    that carry 95 % of the candidates' variance (z-scoring alone whitens per dimension, which the distance does anyway).
    ``rerank``: the candidates nearest by image alone, this many, are compared by the full distance; 0: all are.
    ``gripper_gating``: only candidates in the query's gripper phase, where there are any.
    ``reliability``: a candidate's distance grows by this many times the distance between the chunk it would return and
    the policy's own prediction; 0: it does not. It changes which candidate wins, never alpha.
    """

    rule: Rule = "next"
    way: Way = "start"
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    alpha: float = 0.3
    cooling: float | None = None
    onset_alignment: bool = False
    whitening: bool = False
    rerank: int = 0
    gripper_gating: bool = False
    reliability: float = 0.0
    lead: int = 1

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be next, current or frame, not {self.rule!r}")
        if self.way not in WAYS:
            raise ValueError(f"way must be start, path or blend, not {self.way!r}")
        if len(self.weights) != 3 or min(self.weights) < 0 or sum(self.weights) <= 0:
            raise ValueError(f"weights must be three numbers of at least 0, not all 0, not {self.weights}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie between 0 and 1, not {self.alpha}")
        if self.cooling is not None and not 0 <= self.cooling <= 1:
            raise ValueError(f"cooling must lie between 0 and 1, not {self.cooling}")
        if self.lead < 1 or self.rerank < 0 or self.reliability < 0:
            raise ValueError("lead must be at least 1, rerank and reliability at least 0")

    @property
    def cooled_by(self) -> float:
        """The strength of the arm `cooled`."""
        return self.alpha if self.cooling is None else self.cooling

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "weights": list(self.weights)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RetrievalConfig:
        """The configuration whose `to_dict` this is."""
        first, second, third = values.get("weights", (1.0, 1.0, 1.0))
        return cls(**{**values, "weights": (float(first), float(second), float(third))})


@dataclass(frozen=True)
class Candidates:
    """What can be matched, one row each: events for the rules `next` and `current`, frames for `frame`.

    ``embeddings`` (E, d); ``chunks`` (E, horizon, action_dim) demonstrated from ``step`` (E,) of ``demo`` (E,) on;
    ``states`` (E, s) or None; ``open`` (E,) gripper phase or None; ``predicted`` like ``chunks``, what the policy
    itself predicts there: compared with the query's prediction where given, else the demonstrated chunks are.
    """

    embeddings: F32
    chunks: F32
    demo: I64
    step: I64
    states: F32 | None = None
    open: NDArray[np.bool_] | None = None
    predicted: F32 | None = None


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


class Retriever:
    """A candidate set (of one task) prepared for queries. Row b of a query depends on row b alone."""

    def __init__(self, candidates: Candidates, config: RetrievalConfig | None = None) -> None:
        if not len(candidates.demo):
            raise ValueError("retrieval needs at least one candidate")
        self.candidates, self.config = candidates, config or RetrievalConfig()
        self.target = targets(candidates.demo, candidates.step, self.config)
        chunks = candidates.chunks if candidates.predicted is None else candidates.predicted
        image = _Whitened if self.config.whitening else _Standard
        self._spaces = (
            image(candidates.embeddings),
            _Standard(chunks),
            None if candidates.states is None else _Standard(candidates.states),
        )
        self._returns = _Standard(candidates.chunks[self.target])

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

        def row(b: int) -> list[Any]:
            return [None if v is None else v[b] for v in (embeddings, chunks, states, phases, exclude)]

        return [self._one(*row(b)) for b in range(len(embeddings))]

    def random(self, rng: np.random.Generator) -> Match:
        """The arm `shuffled`: what a candidate drawn uniformly would return, whatever the query."""
        row = int(rng.integers(len(self.candidates.demo)))
        return self._match(row, np.nan, (np.nan,) * 3)

    def _one(self, image: Any, chunk: Any, state: Any, phase: bool | None, exclude: int | None) -> Match:
        config, known = self.config, self.candidates
        allowed = np.ones(len(known.demo), bool) if exclude is None else known.demo != exclude
        if not allowed.any():
            raise ValueError("every candidate is of the excluded demonstration")
        if config.gripper_gating and phase is not None and known.open is not None:
            gated = allowed & (known.open == phase)
            allowed = gated if gated.any() else allowed
        rows = np.flatnonzero(allowed)
        near = self._spaces[0].distances(image, rows)
        if config.rerank:
            likely = np.sort(np.argsort(near, kind="stable")[: config.rerank])
            rows, near = rows[likely], near[likely]
        parts = [near] + [
            np.full(len(rows), np.nan) if space is None or value is None else space.distances(value, rows)
            for space, value in zip(self._spaces[1:], (chunk, state), strict=True)
        ]
        weights = np.array([0.0 if np.isnan(p).any() else w for p, w in zip(parts, config.weights, strict=True)])
        if weights.sum() == 0:
            weights = np.array([1.0, 0.0, 0.0])
        terms = [p * w for p, w in zip(parts, weights, strict=True) if w > 0]
        distance = np.sum(terms, axis=0) / weights.sum()
        if config.reliability and chunk is not None:
            distance = distance + config.reliability * self._returns.distances(chunk, rows)
        win = int(np.argmin(distance))
        own = (float(parts[0][win]), float(parts[1][win]), float(parts[2][win]))
        return self._match(int(rows[win]), float(distance[win]), own)

    def _match(self, row: int, distance: float, parts: tuple[float, float, float]) -> Match:
        known, target = self.candidates, int(self.target[row])
        steps = int(known.step[row]), int(known.step[target])
        return Match(int(known.demo[row]), row, *steps, known.chunks[target], distance, parts)


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


class _Standard:
    """A modality on z-scored axes: rows (E, n) float32, constant axes left out."""

    def __init__(self, values: NDArray[Any]) -> None:
        flat = values.reshape(len(values), -1).astype(np.float64)
        self._mean, spread = flat.mean(axis=0), flat.std(axis=0)
        # What varies by rounding only would otherwise be blown up to unit variance.
        self._keep = np.flatnonzero(spread > 1e-6 * max(float(np.abs(flat).max(initial=0.0)), 1e-6))
        self._scale = spread[self._keep]
        self._rows = self._place(flat)

    def _place(self, flat: F64) -> F32:
        placed: F32 = ((flat - self._mean)[..., self._keep] / self._scale).astype(np.float32)
        return placed

    def distances(self, value: NDArray[Any], rows: I64) -> F64:
        """Root mean square z-difference of one query and the candidates ``rows``."""
        if not self._rows.shape[1]:
            return np.zeros(len(rows))
        # Rows are in order and distinct, so as many as there are means all of them: no copy.
        known = self._rows if len(rows) == len(self._rows) else self._rows[rows]
        gap = known - self._place(np.asarray(value, np.float64).reshape(-1))
        return np.sqrt(np.mean(gap * gap, axis=1, dtype=np.float64))


class _Whitened(_Standard):
    """A modality on decorrelated axes of unit variance."""

    def __init__(self, values: NDArray[Any]) -> None:
        flat = values.reshape(len(values), -1).astype(np.float64)
        self._centre = flat.mean(axis=0)
        _, size, axes = np.linalg.svd(flat - self._centre, full_matrices=False)
        explained = np.cumsum(size**2) / max(float(np.sum(size**2)), 1e-30)
        self._axes = axes[: int(np.searchsorted(explained, 0.95)) + 1].T
        super().__init__((flat - self._centre) @ self._axes)

    def distances(self, value: NDArray[Any], rows: I64) -> F64:
        """Root mean square difference on the whitened axes."""
        return super().distances((np.asarray(value, np.float64).reshape(-1) - self._centre) @ self._axes, rows)
