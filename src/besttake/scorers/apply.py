"""Apply scorers to takes: embed frames, compare them with demonstrations once, and call every scorer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from besttake.core.score import Demos, cover
from besttake.core.search import Trace
from besttake.demos.library import View
from besttake.encoders.base import Encoder, embeddings_of
from besttake.errors import BestTakeError, ComponentError, failure, one_line, place_in_code
from besttake.scorers.base import Footage, Reads, Score, Scorer
from besttake.types import F32, U8

_T = TypeVar("_T")
_ENCODE = 512
_COMPARED: tuple[Reads, ...] = ("nearest", "visited")
_OPTIONAL = tuple(name for name in get_args(Reads) if name != "library")
ScorerCall = Callable[[Scorer, Sequence[Sequence[Footage]], View | None], list[Score] | None]
"""Calls a scorer on the takes of several starts, which come with all their fields."""


@dataclass(frozen=True)
class ScoredFootage:
    """The scores of a take by scorer name, and the nearest demonstration frame to each of its F frames.

    ``best`` (F,) is a frame's highest cosine to a demonstration frame, ``nearest`` (F,) that frame's row in the
    library. They are NaN and -1 if the embedding is not finite or no scorer compares frames with demonstrations.
    """

    scores: dict[str, Score]
    best: F32
    nearest: NDArray[np.int64]


def reads_of(scorers: Iterable[Scorer]) -> frozenset[Reads]:
    """Everything that any of the scorers reads."""
    return frozenset(name for scorer in scorers for name in scorer.spec.reads)


def needs_demos(scorer: Scorer) -> bool:
    """Whether a scorer needs demonstrations."""
    return bool({"library", *_COMPARED} & set(scorer.spec.reads))


def need_embeddings(scorers: Iterable[Scorer]) -> bool:
    """Whether any of the scorers needs embedded frames."""
    return bool(reads_of(scorers) & {"embeddings", *_COMPARED})


def embed(encoder: Encoder, films: Sequence[U8]) -> list[F32]:
    """Embed each film (F, H, W, 3) as (F, d); films, which must have one image size, are encoded together."""
    frames = np.concatenate(films)
    parts = [embeddings_of(encoder, frames[first : first + _ENCODE]) for first in range(0, len(frames), _ENCODE)]
    flat = np.concatenate(parts) if parts else np.zeros((0, encoder.spec.dim), np.float32)
    return np.split(flat, np.cumsum([len(film) for film in films])[:-1])


def apply_scorers(
    scorers: Sequence[Scorer], starts: Sequence[Sequence[Footage]], view: View | None, call: ScorerCall | None = None
) -> list[list[ScoredFootage]]:
    """Score the takes of several starts of one task, in their order.

    Frames are compared with demonstrations once, for all takes and scorers together. ``call`` calls a scorer
    (default: `call_scorer`); if it returns None, takes have no score by that scorer.
    """
    takes = _compare_frames([take for start in starts for take in start], view, reads_of(scorers))
    sizes = [len(start) for start in starts]
    results = {scorer.spec.name: (call or call_scorer)(scorer, split(takes, sizes), view) for scorer in scorers}
    by_scorer = {name: scores for name, scores in results.items() if scores is not None}
    scored = []
    for i, take in enumerate(takes):
        frames = len(take.steps)
        trace = take.nearest or Trace(np.full(frames, np.nan, np.float32), np.full(frames, -1, np.int64))
        nearest = trace.frame if view is None else np.where(trace.frame >= 0, view.frames[trace.frame], -1)
        scored.append(ScoredFootage({name: scores[i] for name, scores in by_scorer.items()}, trace.best, nearest))
    return split(scored, sizes)


def hide_unread(scorer: Scorer, takes: Sequence[Footage]) -> list[Footage]:
    """The takes without the fields that the spec of ``scorer`` does not read."""
    hidden: dict[str, Any] = dict.fromkeys(set(_OPTIONAL) - set(scorer.spec.reads))
    return [replace(take, **hidden) for take in takes]


def call_scorer(scorer: Scorer, starts: Sequence[Sequence[Footage]], view: View | None) -> list[Score]:
    """Call ``scorer``, which sees only what its spec reads; ComponentError unless it returns one score per take."""
    spec = scorer.spec
    takes = [take for start in starts for take in start]
    demos = view if "library" in spec.reads else None
    calls = starts if spec.compares else [takes]
    try:
        with redirect_stdout(sys.stderr):  # what a scorer prints must not get into JSON on stdout
            scores = [
                score  # at most one too many, even from an endless iterator
                for call in calls
                for score in islice(scorer.score(hide_unread(scorer, call), demos), len(call) + 1)
            ]
    except BestTakeError:
        raise
    except BaseException as error:
        raise ComponentError(f"scorer {spec.name}: {one_line(failure(error))}{place_in_code(error)}") from error
    if len(scores) != len(takes):
        raise ComponentError(f"scorer {spec.name}: {len(scores)} scores for {len(takes)} takes")
    for take, score in zip(takes, scores, strict=True):
        if not isinstance(score, Score) or np.shape(score.values) != (len(take.windows),):
            needed = f"a Score with {len(take.windows)} values, one per window,"
            raise ComponentError(f"scorer {spec.name}: {needed} is needed, not {score!r:.60}")
    return scores


def cut(take: Footage, window: int = -1) -> Footage:
    """Cut a take off at the end of one of its windows. All its windows become that one, except empty ones."""
    frames, end = int(take.windows[window].sum()), take.ends[window]
    whole = np.ones(frames, bool)

    def first(part: Any, count: int) -> Any:
        return None if part is None else part[:count]

    nearest, visited = take.nearest, take.visited
    return replace(
        take, steps=take.steps[:frames], windows=tuple(whole if old.any() else ~whole for old in take.windows),
        ends=tuple(min(end, old) for old in take.ends), frames=first(take.frames, frames),
        embeddings=first(take.embeddings, frames), actions=first(take.actions, end), states=first(take.states, end + 1),
        nearest=None if nearest is None else Trace(nearest.best[:frames], nearest.frame[:frames]),
        visited=None if visited is None else np.full_like(visited, visited[window]),
    )  # fmt: skip


def _compare_frames(takes: list[Footage], view: View | None, reads: frozenset[Reads]) -> list[Footage]:
    """Fill in ``nearest`` and ``visited`` of the takes if they are in ``reads``."""
    if not reads & set(_COMPARED):
        return takes
    if view is None:
        raise ComponentError("frames cannot be compared with demonstrations where there are none")
    embedded = [take.embeddings for take in takes if take.embeddings is not None]
    if "visited" not in reads:
        traces = view.index.nearest(np.concatenate(embedded))
        ends = np.cumsum([len(part) for part in embedded])[:-1]
        parts = zip(takes, np.split(traces.best, ends), np.split(traces.frame, ends), strict=True)
        return [replace(take, nearest=Trace(best, frame)) for take, best, frame in parts]
    counts = [[int(window.sum()) for window in take.windows] for take in takes]
    covered = cover(view.index, embedded, counts, Demos.of(view.frame_demo, view.frame_step))
    return [
        replace(take, nearest=trace, visited=visited) for take, (trace, visited) in zip(takes, covered, strict=True)
    ]


def split(items: Sequence[_T], sizes: Sequence[int]) -> list[list[_T]]:
    """Split ``items`` into consecutive lists of these ``sizes``."""
    ends = np.cumsum([0, *sizes])
    return [list(items[first:last]) for first, last in pairwise(ends)]
