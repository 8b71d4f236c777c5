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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from besttake import registry
from besttake.core.cover import Demos, cover
from besttake.core.score import common_window, coverage, full_window, manifold
from besttake.demos.frames import Unreadable
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.demos.source import Bad
from besttake.demos.video import read_frames
from besttake.demos.view import View
from besttake.encoders.base import Encoder
from besttake.encoders.cache import cached
from besttake.errors import PlanError
from besttake.reporting.notebook import Table, Tabular
from besttake.threads import one_thread
from besttake.types import U8

if TYPE_CHECKING:
    from besttake.reporting.drawing import Figure

WINDOWS = ("common", "episode")
SCORERS = ("manifold", "coverage")
_BLOCK = 256


@dataclass(frozen=True)
class RankedTake:
    """A take with its place (1 is best), its score and the frames it rests on.

    ``best[i]`` is the highest cosine of the frame at ``steps[i]`` to any demonstration frame, ``nearest[i]`` that
    frame. A take that could not be read has no place, and ``problem`` says why.
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
    takes: Sequence[str | Path],
    demos: str | Path,
    *,
    task: str = "",
    window: str = "common",
    scorer: str = "manifold",
    encoder: str | None = None,
    stride: int = 1,
) -> RankResult:
    """Order ``takes`` by how close they stay to ``demos``: a library directory, a URI, or a folder of videos.

    ``task`` picks the demonstrations of one task. ``encoder`` is the library's, or `pixels` where one has to be built.
    """
    if window not in WINDOWS:
        raise PlanError(f"--window {window}: recordings can be ranked on {' or '.join(WINDOWS)}")
    if scorer not in SCORERS:
        raise PlanError(f"--scorer {scorer}: choose {' or '.join(SCORERS)}")
    if stride < 1:
        raise PlanError(f"--stride {stride}: must be at least 1")
    if not takes:
        raise PlanError("no takes to rank; name videos, folders of pictures, or LeRobot episodes as DATASET#3")
    films = [film for name in takes for film in _films(str(name))]
    with one_thread():
        library = open_or_build(str(demos), encoder)
        view = library.view(task)
        return _ranked(films, library, view, task, window, scorer, stride)


def _ranked(
    films: Sequence[tuple[str, U8 | str]],
    library: Library,
    view: View,
    task: str,
    window: str,
    scorer: str,
    stride: int,
) -> RankResult:
    coder = cached(library.encoder())
    steps = [np.arange(0, len(f), stride) if not isinstance(f, str) else np.arange(0) for _, f in films]
    ends = [len(f) - 1 for _, f in films if not isinstance(f, str)]
    if window == "common" and not ends:
        ends = [0]
    found = []
    for (name, film), at in zip(films, steps, strict=True):
        if isinstance(film, str):
            found.append(RankedTake(name, None, None, 0, 0, problem=film))
            continue
        inside = common_window(at, ends) if window == "common" else full_window(at, len(film))
        found.append(_scored(name, film, at, inside, coder, view, scorer))
    valid = sorted((t for t in found if t.score is not None), key=lambda t: -float(t.score or 0.0))
    placed = [replace(take, place=i) for i, take in enumerate(valid, start=1)]
    broken = [take for take in found if take.score is None]
    return RankResult(
        takes=(*placed, *broken),
        window=window,
        scorer=scorer,
        encoder=coder.spec.name,
        library=str(library.source["name"]),
        demos=len(view.demos),
        frames=len(view.frames),
        task=task,
        matched=view.matched,
        notes=tuple(_notes(window, ends, view, task)),
    )


def _scored(
    name: str, film: U8, at: NDArray[Any], inside: NDArray[np.bool_], coder: Encoder, view: View, scorer: str
) -> RankedTake:
    shown = film[at]
    coded = [coder.encode(shown[i : i + _BLOCK]) for i in range(0, len(shown), _BLOCK)]
    embedded = np.concatenate(coded)
    if scorer == "coverage":
        demos = Demos.of(view.frame_demo, view.frame_step)
        trace, shares = cover(view.index, [embedded], [[int(inside.sum())]], demos)[0]
        score = coverage(trace, float(shares[0]), inside)
    else:
        trace = view.index.nearest(embedded)
        score = manifold(trace, inside)
    return RankedTake(
        name=name,
        place=None,
        score=score if math.isfinite(score) else None,
        frames=len(film),
        scored=int(inside.sum()),
        steps=tuple(int(s) for s in at),
        best=tuple(round(float(v), 5) for v in trace.best),
        nearest=tuple(int(i) for i in view.frames[trace.frame]),
        problem="" if math.isfinite(score) else "its embedding is not finite, so it has no valid score",
    )


def _notes(window: str, ends: Sequence[int], view: View, task: str) -> list[str]:
    notes = []
    if window == "common" and len(ends) > 1:
        if min(ends) < max(ends):
            notes.append(
                f"takes differ in length: only the first {min(ends) + 1} frames of each are compared (window common)"
            )
        else:
            notes.append(f"all {ends[0] + 1} frames of each take were compared (window common)")
    if window == "episode" and len(set(ends)) > 1:
        notes.append(
            "takes of different length were compared on all their frames (window episode): where recordings stop at"
            " success, length gives the outcome away"
        )
    if task and view.matched == "all":
        notes.append(f"no demonstration is of task {task!r}, so all were used")
    return notes


def _films(name: str) -> list[tuple[str, U8 | str]]:
    """(name, frames or what is wrong) of one argument; a LeRobot argument may name several episodes."""
    dataset, hash_, episodes = name.rpartition("#")
    if hash_ and not Path(name).exists():
        source = registry.demos(f"lerobot:{dataset.removeprefix('lerobot:')}", episodes=episodes)
        films: list[tuple[str, U8 | str]] = []
        for number, demo in enumerate(source, start=int(episodes.partition(":")[0] or 0)):
            label = f"{dataset}#{number}"
            films.append((label, demo.reason if isinstance(demo, Bad) else demo.frames))
        if not films:
            raise PlanError(f"{name}: the data set has no such episode")
        return films
    path = Path(name)
    if not path.exists():
        raise PlanError(f"{name}: no such file or folder; name a video, a folder of pictures, or DATASET#3")
    try:
        return [(name, read_frames(path))]
    except Unreadable as error:
        return [(name, str(error))]
