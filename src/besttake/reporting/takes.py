"""Which takes the report shows, and their films, traces and nearest demonstration frames as data for the page.

Per cell and in the order of the starts, so that nothing is hand-picked: starts that selection rescued, starts it
missed, and a few where all takes ended alike, until the size budget is spent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from besttake.core.select import pick
from besttake.errors import BestTakeError
from besttake.measure.scores import ScoreName, Scores
from besttake.result import Cell, Result
from besttake.takes.film import Film
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store
from besttake.types import U8

if TYPE_CHECKING:
    from besttake.demos.library import Library

BUDGET = 9_500_000
"""Bytes of pictures in a page, before base64 adds a third."""
LIMIT = 100
"""Starts in a page."""
TAKES = 8
"""Takes shown per start."""
KINDS = {
    "rescued": "Rescued: a failure avoided",
    "missed": "Missed: the pick failed",
    "failed": "All takes failed",
    "succeeded": "All takes succeeded",
    "unscored": "Without a score",
}
_ROUNDS = ("rescued", "missed", "failed", "succeeded", "unscored", "rescued", "missed", "rescued", "missed")
_SIDE = 160
_FRAMES = 90
_HEAVY = 2_500
_MISSES = 3
"""After so many starts that do not fit no other is tried: a film costs as much to pack when it is left out."""


@dataclass(frozen=True)
class Candidate:
    """A start that could be shown: its base takes, the seed that was picked, and what became of it."""

    cell: Cell
    rows: tuple[Row, ...]
    picked: int | None
    kind: str


@dataclass(frozen=True)
class PageTake:
    """A take for the page: its film, and the cosine to the ``nearest`` demonstration frame over time."""

    seed: int
    success: bool
    success_step: int | None
    steps: int
    picked: bool
    score: float | None
    film: Film | None
    film_steps: list[int]
    trace_steps: list[int]
    best: list[float | None]
    nearest: list[int | None]


@dataclass(frozen=True)
class PageStart:
    """A start for the page: its takes side by side, and ``demo``, the demonstration frames that they point at.

    ``errors`` tells which takes could not be made, and why.
    """

    kind: str
    policy: str
    env: str
    task: str
    start: int
    scorer: str
    window: str
    takes: list[PageTake]
    hidden: int
    demo: Film | None
    errors: list[str]


@dataclass(frozen=True)
class PageTakes:
    """What the page shows of a run's takes; where there are none, ``note`` says why."""

    starts: list[PageStart]
    note: str = ""


def candidates(result: Result, rows: Sequence[Row], scores: Scores | None) -> dict[int, list[Candidate]]:
    """Starts per cell (by its place in ``result.cells``), in canonical order."""
    cell_of = {(cell.policy, line.env, line.task): i for i, cell in enumerate(result.cells) for line in cell.tasks}
    starts: dict[tuple[str, str, str, int], list[Row]] = {}
    for row in rows:
        if row.key.arm == "base":
            starts.setdefault((row.key.policy, row.key.env, row.key.task, row.key.start), []).append(row)
    by_cell: dict[int, list[Candidate]] = {}
    for (policy, env, task, _), members in starts.items():
        index = cell_of.get((policy, env, task))
        if index is not None and any(row.status == "done" for row in members):
            by_cell.setdefault(index, []).append(_judge(result.cells[index], members, scores))
    return by_cell


def choose(by_cell: Mapping[int, Sequence[Candidate]]) -> Iterator[Candidate]:
    """Candidates in the order in which they should enter the page: round by round, every cell in each."""
    queues = {(i, kind): [c for c in own if c.kind == kind] for i, own in by_cell.items() for kind in KINDS}
    for kind in _ROUNDS:
        for i in sorted(by_cell):
            if queues[i, kind]:
                yield queues[i, kind].pop(0)


def page_takes(run: Path, result: Result, *, budget: int = BUDGET) -> PageTakes:
    """The takes of a run that the page shows, with at most ``budget`` bytes of pictures."""
    if not (run / "takes.sqlite").exists():
        return PageTakes([], "This run holds outcomes only, no films, so there are no takes to show.")
    with Store.open(run) as store:
        rows = store.rows()
        scores, library = Scores.open(run), _library(run, store.manifest)
        shown: list[PageStart] = []
        spent = misses = 0
        for candidate in choose(candidates(result, rows, scores)):
            start, size = _start(store, candidate, scores, _DemoSheet(library))
            if spent + size > budget:
                misses += 1
            else:
                shown.append(start)
                spent += size
            if misses == _MISSES or len(shown) == LIMIT:
                break
    if shown:
        return PageTakes(shown)
    return PageTakes([], "No take of this run can be shown." if rows else "This run has no takes yet.")


def _judge(cell: Cell, rows: list[Row], scores: Scores | None) -> Candidate:
    outcomes = np.array([[float(row.success) if row.success is not None else np.nan for row in rows]])
    values = np.array([[_score(scores, row.key, cell) for row in rows]])
    ended = outcomes[np.isfinite(outcomes)]
    picked = int(pick(values, outcomes).index[0]) if np.isfinite(values).any() else None
    if ended.all():
        kind = "succeeded"
    elif not ended.any():
        kind = "failed"
    elif picked is None:
        kind = "unscored"
    else:
        kind = "rescued" if outcomes[0, picked] == 1 else "missed"
    return Candidate(cell, tuple(rows), None if picked is None else rows[picked].key.seed, kind)


def _score(scores: Scores | None, key: TakeKey, cell: Cell) -> float:
    """The score that the cell's verdict rests on; NaN where the take has none."""
    score = scores.get(key) if scores is not None else None
    return score.scores.get(ScoreName(cell.scorer, cell.window), math.nan) if score is not None else math.nan


def _start(store: Store, candidate: Candidate, scores: Scores | None, demo: _DemoSheet) -> tuple[PageStart, int]:
    """A start for the page, and how many bytes its pictures have."""
    cell, key, picked = candidate.cell, candidate.rows[0].key, candidate.picked
    done = [row for row in candidate.rows if row.status == "done"]
    kept = done[:TAKES]
    if picked is not None and all(row.key.seed != picked for row in kept):
        kept = [*kept[:-1], *(row for row in done if row.key.seed == picked)]
    takes, size = [], 0
    for row in kept:
        take = store.load(row)
        film, steps = _compact(take.film, take.frame_steps)
        size += len(film.data)
        trace = scores.get(row.key) if scores is not None else None
        takes.append(
            PageTake(
                row.key.seed, bool(row.success), row.success_step, row.steps, row.key.seed == picked,
                score=_finite(_score(scores, row.key, cell)),
                film=film if film.count else None,
                film_steps=[int(step) for step in steps],
                trace_steps=[int(step) for step in trace.steps] if trace else [],
                best=[_finite(value, 4) for value in trace.best] if trace else [],
                nearest=[demo.place(int(frame)) for frame in trace.nearest] if trace else [],
            )
        )  # fmt: skip
    sheet = demo.film()
    failed = [row for row in candidate.rows if row.status == "error"]
    start = PageStart(
        candidate.kind, key.policy, key.env, key.task, key.start, cell.scorer, cell.window, takes,
        hidden=len(done) - len(kept), demo=sheet,
        errors=[f"Take {row.key.seed} could not be made: {row.error or ''}" for row in failed],
    )  # fmt: skip
    return start, size + (len(sheet.data) if sheet else 0)


class _DemoSheet:
    """The demonstration frames that a start's traces point at, each once."""

    def __init__(self, library: Library | None) -> None:
        self._library = library
        self._places: dict[int, int] = {}
        self._frames: list[U8] = []

    def place(self, index: int) -> int | None:
        """Where frame ``index`` of the library stands in the sheet; None when it has no picture."""
        if self._library is None or index < 0:
            return None
        if index not in self._places:
            frame = _shrink(np.asarray(self._library.frame_image(index), np.uint8))
            if self._frames and frame.shape != self._frames[0].shape:
                height, width = self._frames[0].shape[:2]
                frame = np.asarray(Image.fromarray(frame).resize((width, height)), np.uint8)
            self._places[index] = len(self._frames)
            self._frames.append(frame)
        return self._places[index]

    def film(self) -> Film | None:
        """All frames as one picture; None where there is none."""
        return Film.pack(np.stack(self._frames), quality=86) if self._frames else None


def _compact(film: Film, steps: Any) -> tuple[Film, Any]:
    """A film small enough for a page: large pictures are shrunk, long films thinned."""
    if film.count == 0 or (film.count <= _FRAMES and len(film.data) <= film.count * _HEAVY):
        return film, steps
    kept = np.unique(np.linspace(0, film.count - 1, min(film.count, _FRAMES)).round().astype(int))
    frames = np.stack([_shrink(frame) for frame in film.unpack()[kept]])
    return Film.pack(frames, quality=72), np.asarray(steps)[kept]


def _shrink(frame: U8) -> U8:
    height, width = frame.shape[:2]
    factor = _SIDE / max(height, width)
    if factor >= 1:
        return frame
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX), np.uint8)


def _finite(value: float, digits: int = 17) -> float | None:
    return round(float(value), digits) if math.isfinite(value) else None


def _library(run: Path, manifest: Manifest) -> Library | None:
    """The run's library; None when it has none, or when it is no longer where it was."""
    from besttake.demos.library import Library

    try:
        return Library.open(run / manifest.library) if manifest.library else None
    except (OSError, BestTakeError):
        return None
