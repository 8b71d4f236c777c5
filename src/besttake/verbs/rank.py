"""Rank takes that were already recorded: videos, folders of pictures, or episodes of a LeRobot data set.

Takes are compared on the window `common` by default: only the first frames that all of them have, because where a
recording stops at success its length gives the outcome away.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from besttake import registry
from besttake.core.score import window_until
from besttake.demos.base import Bad
from besttake.demos.frames import Unreadable
from besttake.demos.resolve import open_or_build
from besttake.demos.video import read_frames
from besttake.demos.view import View
from besttake.encoders.base import Encoder
from besttake.encoders.cache import cached
from besttake.errors import PlanError
from besttake.files import as_paths
from besttake.reporting.notebook import Table, Tabular
from besttake.scorers.base import Footage, Score, Scorer
from besttake.scorers.judge import Judged, embed, judge
from besttake.threads import one_thread
from besttake.types import U8

if TYPE_CHECKING:
    from besttake.reporting.drawing import Figure

WINDOWS = ("common", "episode")


@dataclass(frozen=True)
class RankedTake:
    """A take with its place (1 is best), its score and the frames it rests on.

    ``best[i]`` is the highest cosine of the frame at ``steps[i]`` to any demonstration frame, ``nearest[i]`` that
    frame of the library; they are empty where the scorer does not compare frames with demonstrations. A take that could
    not be read or scored has no place, and ``problem`` says why.
    """

    name: str
    place: int | None
    score: float | None
    frames: int
    scored: int
    steps: tuple[int, ...] = ()
    best: tuple[float, ...] = ()
    nearest: tuple[int, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class RankResult(Tabular):
    """Takes from best to worst, and what their scores mean."""

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

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    def plot(self) -> Figure | None:
        """The score of each take over time, as an SVG figure; None where no take has a score."""
        from besttake.reporting.ranking import traces

        return traces(self, self.takes)

    def _table(self) -> Table:
        rows = [(t.place, t.name, t.score, t.scored, t.frames, t.problem) for t in self.takes]
        heading = f"{len(rows)} takes ranked by {self.scorer} on the window {self.window}"
        return Table(heading, ("place", "take", "score", "scored", "frames", "problem"), rows, self.notes)


def rank(
    takes: str | Path | Sequence[str | Path],
    demos: str | Path,
    *,
    task: str = "",
    window: str = "common",
    scorer: str = "manifold",
    encoder: str | None = None,
    stride: int = 1,
) -> RankResult:
    """Order recorded ``takes`` (a list or one) by a ``scorer``: by default, by how close they stay to ``demos``.

    ``demos`` is a library directory, a URI, or a folder of videos; ``task`` picks the demonstrations of one task.
    ``encoder`` is the library's own, or `pixels` where a library has to be built.
    """
    if window not in WINDOWS:
        raise PlanError(f"`window` {window}: recordings can be ranked on {' or '.join(WINDOWS)}")
    if stride < 1:
        raise PlanError(f"`stride` {stride}: must be at least 1")
    if not takes:
        raise PlanError("no takes to rank; name videos, folders of pictures, or LeRobot episodes as DATASET#3")
    chosen = registry.scorer(scorer)
    if missing := sorted({"actions", "states"} & set(chosen.spec.reads)):
        raise PlanError(f"`scorer` {scorer} reads {' and '.join(missing)}, and recordings have pictures only")
    films = [film for name in as_paths(takes) for film in _films(str(name))]
    with one_thread():
        library = open_or_build(str(demos), encoder)
        view, coder = library.view(task), cached(library.encoder())
        readable = [film.frames for film in films if film.frames is not None]
        ranked = _ranked(films, _footage(readable, coder, window, stride, task), chosen, view)
    return RankResult(
        takes=tuple(ranked), window=window, scorer=chosen.spec.name, encoder=coder.spec.name,
        library=library.head.source, demos=len(view.demos), frames=len(view.frames), task=task,
        matched=view.matched, notes=tuple(_notes(window, films, view, task)),
    )  # fmt: skip


@dataclass(frozen=True)
class _Recorded:
    """A recorded take: its ``frames`` uint8 (F, h, w, 3), or what is wrong with it."""

    name: str
    frames: U8 | None
    problem: str = ""


def _footage(films: Sequence[U8], encoder: Encoder, window: str, stride: int, task: str) -> list[Footage]:
    """The takes as a scorer sees them: every ``stride``-th frame of those in the window."""
    takes, shortest = [], min(map(len, films), default=0)
    for film in films:
        steps, end = np.arange(0, len(film), stride, dtype=np.int32), len(film) - 1
        if window == "common":
            end = shortest - 1
        frames, until = film[steps], (window_until(steps, end),)
        (embedded,) = embed(encoder, [frames])
        takes.append(Footage(steps, until, (end,), frames=frames, embeddings=embedded, instruction=task))
    return takes


def _ranked(films: Sequence[_Recorded], footage: Sequence[Footage], scorer: Scorer, view: View) -> list[RankedTake]:
    """Readable takes from best to worst, then those without a score."""
    readable = [film for film in films if film.frames is not None]
    judged = judge([scorer], [footage], view)[0] if footage else []
    takes = [
        _scored(film, take, one, one.scores[scorer.spec.name])
        for film, take, one in zip(readable, footage, judged, strict=True)
    ]
    takes += [RankedTake(film.name, None, None, 0, 0, problem=film.problem) for film in films if film.frames is None]
    valid = sorted((take for take in takes if take.score is not None), key=lambda take: -float(take.score or 0.0))
    placed = [replace(take, place=place) for place, take in enumerate(valid, start=1)]
    return [*placed, *(take for take in takes if take.score is None)]


def _scored(film: _Recorded, take: Footage, judged: Judged, score: Score) -> RankedTake:
    assert film.frames is not None
    (value,), (window,) = score.values, take.windows
    sizes = len(film.frames), int(window.sum())
    if not math.isfinite(value):
        problem = "it has no valid score, because a frame's embedding is not finite"
        return RankedTake(film.name, None, None, *sizes, problem=problem)
    compared = np.flatnonzero(judged.nearest >= 0)
    steps, nearest = take.steps[compared].tolist(), judged.nearest[compared].tolist()
    best = tuple(round(cosine, 5) for cosine in judged.best[compared].tolist())
    return RankedTake(film.name, None, float(value), *sizes, tuple(steps), best, tuple(nearest))


def _notes(window: str, films: Sequence[_Recorded], view: View, task: str) -> list[str]:
    notes = []
    lengths = [len(film.frames) for film in films if film.frames is not None]
    differ = len(set(lengths)) > 1
    if window == "common" and differ:
        notes.append(
            f"takes differ in length: only the first {min(lengths)} frames of each are compared (window common)"
        )
    elif window == "common" and len(lengths) > 1:
        notes.append(f"all {lengths[0]} frames of each take were compared (window common)")
    elif window == "episode" and differ:
        notes.append(
            "takes of different length were compared on all their frames (window episode): where recordings stop at"
            " success, length gives the outcome away"
        )
    if task and view.matched == "all":
        notes.append(f"no demonstration is of task {task!r}, so all were used")
    return notes


def _films(name: str) -> list[_Recorded]:
    """The takes that one argument names: a video, a folder of pictures, or one or several LeRobot episodes."""
    dataset, hash_, episodes = name.rpartition("#")
    if hash_ and not Path(name).exists():
        source = registry.demos(f"lerobot:{dataset.removeprefix('lerobot:')}", episodes=episodes)
        films = []
        for number, demo in enumerate(source, start=int(episodes.partition(":")[0] or 0)):
            label = f"{dataset}#{number}"
            bad = isinstance(demo, Bad)
            films.append(_Recorded(label, None, demo.reason) if bad else _Recorded(label, demo.frames))
        if not films:
            raise PlanError(f"{name}: the data set has no such episode")
        return films
    path = Path(name)
    if not path.exists():
        raise PlanError(f"{name}: no such file or folder; name a video, a folder of pictures, or DATASET#3")
    try:
        return [_Recorded(name, read_frames(path))]
    except Unreadable as error:
        return [_Recorded(name, None, str(error))]
