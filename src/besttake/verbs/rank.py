"""Rank takes that were already recorded: videos, folders of pictures, or episodes of a LeRobot data set.

Takes are compared by time: frames of all takes are read at the rate of the slowest recording, by default over the
window `common`, the time that all takes have, because the length of a recording that stops at success gives the
outcome away. Two reference scores tell what a score means: that of the library's own demonstrations when they are held
out, and that of the takes with their pixels shuffled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake import registry
from besttake.config import SCORER
from besttake.core.score import window_until
from besttake.demos.library import View
from besttake.demos.resolve import open_or_build
from besttake.encoders.base import Encoder
from besttake.encoders.cache import cached
from besttake.errors import PlanError
from besttake.files import as_paths
from besttake.recordings.footage import FPS, Clock, RecordedTake, clock_of, films_of
from besttake.reporting.numbers import count, number
from besttake.reporting.table import Entry, Head, Table, Tabular, right
from besttake.scorers.apply import ScoredFootage, apply_scorers, embed
from besttake.scorers.base import Footage, Scorer
from besttake.threads import one_thread
from besttake.types import U8

WINDOWS = ("common", "episode")
UNLIKE = "unlike the demonstrations"
_ALIKE = 0.005
"""Scores that differ by less share a place: encoding the same video again changed them by 0.001 to 0.004."""
_BLOCKS = 8
_SAMPLED = 16
_HELD_OUT, _HELD_OUT_FRAMES = 40, 400_000
"""The most demonstrations that are held out. A take like n others scores below all of them with chance 1 / (n + 1)."""
_LIKENESS = {"embeddings", "nearest", "visited", "library"}


@dataclass(frozen=True)
class RankedTake:
    """A take with its place (1 is best), its score and the frames it rests on.

    Takes whose scores lie within each other's error share a place. ``error`` is the standard error of the score: how
    much it changes when stretches of time are left out. ``unlike`` says why a take is marked "unlike the
    demonstrations". ``best[i]`` is the highest cosine of the frame at ``seconds[i]`` to any demonstration frame,
    ``nearest[i]`` that frame of the library; they are empty where the scorer does not compare frames with
    demonstrations. A take that could not be read or scored has no place, and ``problem`` says why.
    """

    name: str
    place: int | None
    score: float | None
    frames: int
    scored: int
    seconds: tuple[float, ...] = ()
    best: tuple[float, ...] = ()
    nearest: tuple[int, ...] = ()
    problem: str = ""
    error: float | None = None
    unlike: str = ""
    duration: float = 0.0


@dataclass(frozen=True)
class ReferenceScores:
    """Scores to compare takes with: the lowest of ``demos`` held-out demonstrations, the highest of shuffled takes."""

    held_out: float | None = None
    demos: int = 0
    shuffled: float | None = None


@dataclass(frozen=True)
class RankResult(Tabular):
    """Takes from best to worst, with the scores to compare them with. ``rate`` is how many frames a second count."""

    takes: tuple[RankedTake, ...]
    window: str
    scorer: str
    encoder: str
    library: str
    demos: int
    frames: int
    task: str
    matched: str
    notes: tuple[str, ...]
    rate: float = 0.0
    references: ReferenceScores = ReferenceScores()

    def _table(self) -> Table:
        rows, places = [], [take.place for take in self.takes]
        for take in self.takes:
            tied = " (tied)" if places.count(take.place) > 1 else ""
            place = Entry("" if take.place is None else f"{take.place}{tied}", value=take.place)
            score, error = (Entry(number(value, 4), value=value) for value in (take.score, take.error))
            note = Entry(take.problem, "worse") if take.place is None else Entry(take.unlike, "warn")
            rows.append((place, take.name, score, error, take.scored, take.frames, note))
        heading = f"{len(rows)} takes ranked by {self.scorer} on the window {self.window}, embedded by {self.encoder}"
        columns: Head = ["place", "take", *right("score", "± error", "scored", "frames"), "note"]
        return Table(heading, columns, rows, self.notes)


def rank(
    takes: str | Path | Sequence[str | Path],
    demos: str | Path,
    *,
    task: str = "",
    window: str = "common",
    scorer: str = SCORER,
    encoder: str | None = None,
    stride: int = 1,
    fps: float = FPS,
) -> RankResult:
    """Rank takes that you have already recorded, from best to worst. No policy or simulator is needed.

    Takes are compared by time: frames of all takes are read at the rate of the slowest recording. Each score comes
    with a standard error, and takes whose scores cannot be told apart share a place.

    Args:
        takes: One take or a list: videos, folders of pictures, or LeRobot episodes (``my_dataset#3``).
        demos: A library directory, a data set by URI, or a folder of videos.
        task: Compare only with demonstrations of this task (default: all demonstrations).
        window: ``"common"`` scores the time that all takes have; ``"episode"`` scores each take to its end,
            which gives the outcome away if recordings stop at success.
        scorer: URI of the scorer. The default, ``coverage``, prefers takes that stay close to the demonstrations.
        encoder: URI of the encoder (default: that of the library, or ``pixels`` if a library has to be built).
        stride: Read only every ``stride``-th of these frames.
        fps: Frames per second of takes that are folders of pictures (default: 10).

    Returns:
        The takes from best to worst, each with its place, score and standard error, and two reference scores: what
        held-out demonstrations score, and what the takes score with shuffled pixels.

    Raises:
        PlanError: There are no takes, one does not exist, or an argument is out of range.

    Examples:
        >>> result = besttake.rank(["take1.mp4", "take2.mp4"], demos="libraries/mine")  # doctest: +SKIP
        >>> result.takes[0].name, result.takes[0].score                                 # doctest: +SKIP
    """
    chosen = _check_arguments(takes, window, scorer, stride, fps)
    films = [film for name in as_paths(takes) for film in films_of(str(name), fps)]
    with one_thread():
        library = open_or_build(str(demos), encoder)
        view, coder = library.view(task), cached(library.encoder())
        clock = clock_of(films, window, stride)
        ranked, references = _Ranking(chosen, view, coder, clock, task).of(films)
    return RankResult(
        takes=tuple(ranked), window=window, scorer=chosen.spec.name, encoder=coder.spec.name,
        library=library.head.source, demos=len(view.demos), frames=len(view.frames), task=task,
        matched=view.matched, notes=tuple(_notes(clock, films, view, task, references)), rate=clock.rate,
        references=references,
    )  # fmt: skip


def _check_arguments(takes: Any, window: str, scorer: str, stride: int, fps: float) -> Scorer:
    """Return the scorer; PlanError if an argument is out of range."""
    if window not in WINDOWS:
        raise PlanError(f"`window` {window}: recordings can be ranked on {' or '.join(WINDOWS)}")
    if stride < 1:
        raise PlanError(f"`stride` {stride}: must be at least 1")
    if not takes:
        raise PlanError("no takes to rank; name videos, folders of pictures, or LeRobot episodes as DATASET#3")
    if not 0 < fps < math.inf:
        raise PlanError(f"`fps` {fps}: must be above 0")
    chosen = registry.scorer(scorer)
    if missing := sorted({"actions", "states"} & set(chosen.spec.reads)):
        raise PlanError(f"`scorer` {scorer} reads {' and '.join(missing)}, and recordings have pictures only")
    return chosen


@dataclass(frozen=True)
class _Ranking:
    """Ranks takes by a scorer, compared with the demonstrations of a view at the ticks of a clock."""

    scorer: Scorer
    view: View
    encoder: Encoder
    clock: Clock
    task: str

    def of(self, films: Sequence[RecordedTake]) -> tuple[list[RankedTake], ReferenceScores]:
        """Takes from best to worst, then those without a score; and the reference scores."""
        compared = [film for film in films if self.clock.compares(film)]
        footage = [self._footage(film) for film in compared]
        scored = self._score(footage) if footage else []
        takes = [self._unplaced(*parts) for parts in zip(compared, footage, scored, strict=True)]
        replicates = [self._without_blocks(take) for take in footage]
        takes = [replace(take, error=_error(scores)) for take, scores in zip(takes, replicates, strict=True)]
        references = ReferenceScores()
        # Only a scorer that reads demonstrations or embeddings tells whether a take is like the demonstrations.
        if footage and not self.scorer.spec.compares and set(self.scorer.spec.reads) & _LIKENESS:
            few, shuffled = self._values([_few_frames(take) for take in footage]), self._shuffled(footage)
            finite = [value for value in shuffled if math.isfinite(value)]
            references = ReferenceScores(*self._held_out(), max(finite, default=None))
            # If held-out demonstrations score no better than shuffled pixels, that a take does not means nothing.
            low = math.inf if references.held_out is None else references.held_out
            rows = zip(takes, few, shuffled, strict=True)
            takes = [replace(take, unlike=_unlike(take, a <= b < low, references)) for take, a, b in rows]
        placed = _placed(list(zip(takes, replicates, strict=True)))
        return [*placed, *(take for take in takes if take.score is None), *self._left_out(films)], references

    def _left_out(self, films: Sequence[RecordedTake]) -> list[RankedTake]:
        left_out = []
        for film in films:
            if film.frames is None:
                left_out.append(RankedTake(film.name, None, None, 0, 0, problem=film.problem))
            elif not self.clock.compares(film):
                length = len(film.frames)
                problem = f"it has {count(length, 'frame')} ({film.duration:.1f} s), too short to be compared"
                left_out.append(RankedTake(film.name, None, None, length, 0, duration=film.duration, problem=problem))
        return left_out

    def _footage(self, film: RecordedTake) -> Footage:
        """A take as a scorer sees it. Its steps are ticks of the clock, which are the same for takes of any rate."""
        assert film.frames is not None
        rows = self.clock.rows(film.times)
        frames = film.frames[rows]
        (embedded,) = embed(self.encoder, [frames])
        return self._cut(np.arange(len(rows)), frames, embedded)

    def _cut(self, ticks: Any, frames: U8 | None, embedded: Any) -> Footage:
        last = len(ticks) - 1
        limit = last if self.clock.end is None else math.ceil(self.clock.end * self.clock.rate - 1e-6) - 1
        end = min(last, max(0, limit))
        steps = np.asarray(ticks, np.int32)
        window = (window_until(steps, end),)
        return Footage(steps, window, (end,), frames=frames, embeddings=embedded, instruction=self.task)

    def _score(self, takes: Sequence[Footage], view: View | None = None) -> list[ScoredFootage]:
        """Score ``takes``; ComponentError if the scorer fails."""
        (scored,) = apply_scorers([self.scorer], [takes], view or self.view)
        return scored

    def _values(self, takes: Sequence[Footage], view: View | None = None) -> list[float]:
        """The score of each take, as a number."""
        return [float(take.scores[self.scorer.spec.name].values[0]) for take in self._score(takes, view)]

    def _without_blocks(self, take: Footage) -> list[float]:
        """The scores of a take, each with another block of frames left out: the replicates of the jackknife."""
        rows = np.flatnonzero(take.windows[0])
        blocks = np.array_split(rows, min(_BLOCKS, len(rows)))
        if len(blocks) < 2 or self.scorer.spec.compares:
            return []
        return self._values([_restricted(take, np.setdiff1d(rows, block)) for block in blocks])

    def _held_out(self) -> tuple[float | None, int]:
        """The lowest score of a demonstration compared with the others, and the number of demonstrations scored."""
        view = self.view
        if len(view.demos) < 2 or "frames" in self.scorer.spec.reads:
            return None, 0
        fps = view.library.head.fps or FPS
        # Each demonstration needs a search index of its own, so fewer are tried if the library is large.
        most = max(2, min(_HELD_OUT, len(view.demos), _HELD_OUT_FRAMES // len(view.frames)))
        places = np.linspace(0, len(view.demos) - 1, most).round().astype(int)
        scores = []
        for demo in view.demos[np.unique(places)]:
            frames = np.flatnonzero(view.frame_demo == demo)
            rows = self.clock.rows((view.frame_step[frames] - view.frame_step[frames[0]]) / fps)
            embedded = np.asarray(view.embeddings[frames[rows]])
            others = View(view.library, view.demos[view.demos != demo], view.matched)
            scores += self._values([self._cut(np.arange(len(rows)), None, embedded)], others)
        finite = [score for score in scores if math.isfinite(score)]
        return (min(finite), len(finite)) if finite else (None, 0)

    def _shuffled(self, footage: Sequence[Footage]) -> list[float]:
        """The score of each take with its pixels shuffled, plus two standard errors."""
        scores, rng = [], np.random.default_rng(0)
        for take in map(_few_frames, footage):
            assert take.frames is not None
            flat = take.frames.reshape(len(take.frames), -1, 3)
            mixed = np.stack([frame[rng.permutation(len(frame))] for frame in flat]).reshape(take.frames.shape)
            (embedded,) = embed(self.encoder, [mixed])
            (scored,) = self._score([replace(take, frames=mixed, embeddings=embedded)])
            value = float(scored.scores[self.scorer.spec.name].values[0])
            spread = float(np.nanstd(scored.best)) if np.isfinite(scored.best).any() else 0.0
            scores.append(value + 2 * spread / math.sqrt(len(take.frames)))
        return scores

    def _unplaced(self, film: RecordedTake, take: Footage, scored: ScoredFootage) -> RankedTake:
        """The row of a take, without its place and error."""
        assert film.frames is not None
        (value,), (window,) = scored.scores[self.scorer.spec.name].values, take.windows
        sizes = len(film.frames), int(window.sum())
        if not math.isfinite(value):
            problem = f"the scorer {self.scorer.spec.name} gave it no number"
            if take.embeddings is not None and not np.isfinite(take.embeddings).all():
                problem = "it has no valid score, because a frame's embedding is not finite"
            return RankedTake(film.name, None, None, *sizes, duration=film.duration, problem=problem)
        compared = np.flatnonzero(scored.nearest >= 0)
        seconds = tuple(round(float(tick) / self.clock.rate, 4) for tick in take.steps[compared])
        best = tuple(round(cosine, 5) for cosine in scored.best[compared].tolist())
        return RankedTake(
            film.name, None, float(value), *sizes, duration=film.duration, seconds=seconds, best=best,
            nearest=tuple(scored.nearest[compared].tolist()),
        )  # fmt: skip


_Replicated = tuple[RankedTake, Sequence[float]]  # a take and the replicates of its score


def _placed(takes: Sequence[_Replicated]) -> list[RankedTake]:
    """The scored takes from best to worst, with their places. Takes tied with the first of a place share it."""
    scored = [(take, replicates) for take, replicates in takes if take.score is not None]
    ordered = sorted(scored, key=lambda row: (-(row[0].score or 0.0), row[0].name))
    placed: list[RankedTake] = []
    first, place = ordered[0] if ordered else None, 1
    for position, row in enumerate(ordered, start=1):
        if first is not None and not _tied(first, row):
            first, place = row, position
        placed.append(replace(row[0], place=place))
    return placed


def _tied(a: _Replicated, b: _Replicated) -> bool:
    """Whether two scores differ by at most 1.96 standard errors of their difference, or by at most `_ALIKE`.

    If both takes have as many replicates, the error is that of the differences between these, so that what the takes
    have in common (every approach looks alike) does not count.
    """
    gap, error = (a[0].score or 0.0) - (b[0].score or 0.0), None
    if len(a[1]) == len(b[1]):
        error = _error(np.subtract(a[1], b[1]).tolist())
    if error is None:
        error = math.hypot(a[0].error or 0.0, b[0].error or 0.0)
    return abs(gap) <= max(1.96 * error, _ALIKE)


def _error(replicates: Sequence[float]) -> float | None:
    """The standard error of a score from its replicates; None if there are fewer than two or one is not finite."""
    if len(replicates) < 2 or not np.isfinite(replicates).all():
        return None
    return float(np.sqrt((len(replicates) - 1) * np.var(replicates)))


def _unlike(take: RankedTake, like_shuffled: bool, references: ReferenceScores) -> str:
    """Why a take is marked as unlike the demonstrations; empty if it is not."""
    if take.score is None:
        return ""
    if like_shuffled:
        return f"{UNLIKE}: no better than its own pixels shuffled"
    if references.held_out is not None and take.score < references.held_out:
        return f"{UNLIKE}: below each of {references.demos} demonstrations that were held out"
    return ""


def _few_frames(take: Footage) -> Footage:
    """The take with at most `_SAMPLED` frames of its window, spread evenly, on which shuffled pixels are compared."""
    rows = np.flatnonzero(take.windows[0])
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(_SAMPLED, len(rows))).round().astype(int))]
    return _restricted(take, rows)


def _restricted(take: Footage, rows: Any) -> Footage:
    """The take as if it had only the frames ``rows``."""
    steps = np.arange(len(rows), dtype=np.int32)
    whole = np.ones(len(rows), bool)
    frames = None if take.frames is None else take.frames[rows]
    embedded = None if take.embeddings is None else take.embeddings[rows]
    return replace(take, steps=steps, windows=(whole,), ends=(len(rows) - 1,), frames=frames, embeddings=embedded)


def _notes(
    clock: Clock, films: Sequence[RecordedTake], view: View, task: str, references: ReferenceScores
) -> list[str]:
    readable = [film for film in films if clock.compares(film)]
    notes, lengths = [], {round(film.duration, 3) for film in readable}
    if len({round(film.rate, 2) for film in readable}) > 1:
        notes.append(f"takes differ in frame rate: all are compared at {clock.rate:g} frames a second")
    if clock.window == "common" and len(lengths) > 1:
        notes.append(f"takes differ in length: only the first {clock.end:.1f} s of each are compared (window common)")
    elif clock.window == "episode" and len(lengths) > 1:
        notes.append(
            "takes of different length were compared on all their frames (window episode): where recordings stop at"
            " success, length gives the outcome away"
        )
    if task and view.matched == "all":
        notes.append(f"no demonstration is of task {task!r}, so all were used")
    if readable and references.held_out is None:
        notes.append("no demonstration could be held out, so it is not known what one like these would score")
    elif readable:
        demos = count(references.demos, "demonstration")
        notes.append(f"the lowest of {demos} held out against the others scores {references.held_out:.4f}")
        if references.shuffled is not None and references.shuffled >= (references.held_out or 0.0):
            notes.append(
                f"takes with shuffled pixels score up to {references.shuffled:.4f}, no lower than that, so the score"
                " does not show which takes are like the demonstrations; more of them, or another encoder, may help"
            )
    return notes
