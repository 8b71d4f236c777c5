"""Choose the takes that the report shows, with their films, traces and nearest demonstration frames.

`candidates.film_order` says which starts come first; films are added until the size budget is spent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from besttake.arms import BASE
from besttake.errors import BestTakeError
from besttake.reporting.candidates import Candidate, candidates, film_order, score_of
from besttake.result import Cell
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.scores import ScoreName, Scores
from besttake.takes.store import Store
from besttake.takes.take import Film
from besttake.types import U8

if TYPE_CHECKING:
    from besttake.demos.library import Library

TAKES = 8
"""For each start and arm, at most this many takes are shown."""
_SIDE = 160
_FRAMES = 90
_HEAVY = 2_500
_MOMENTS = 120
_MOMENT_BYTES = 15
"""Bytes of one moment of a trace: its step, its cosine and its demonstration frame."""
_REASONS, _REASON = 5, 300
"""How many reasons for failed takes are shown if no take was finished, and the most characters of each."""
_MISSES = 3
"""After this many starts that do not fit, no other is tried, because packing films takes long."""


@dataclass(frozen=True)
class PageLimits:
    """How many films a page holds: at most ``bytes`` of pictures and traces (before base64), and ``starts`` starts.

    ``newest``: the newest starts come first, instead of the most informative ones.
    """

    bytes: int = 6_000_000
    starts: int = 100
    newest: bool = False


REPORT = PageLimits()


@dataclass(frozen=True)
class PageTake:
    """A take for the page: its film, and the cosine to the ``nearest`` demonstration frame over time."""

    arm: str
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
    """A start for the page: its takes, how many more are ``hidden``, and why others failed (``errors``).

    ``demo`` holds the demonstration frames to which ``nearest`` of its takes points.
    """

    kind: str
    policy: str
    group: str
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
class HeatArm:
    """The takes of one arm of a start, one letter per seed: 1 success, 0 failure, x ended in an error, - not played.

    ``steps``: the step at which each succeeded, else its length. ``picked`` is the seed of the picked take.
    """

    takes: str
    steps: list[int]
    picked: int | None


@dataclass(frozen=True)
class HeatStart:
    """A start in the map; ``film`` is its index among the starts whose films are in the page."""

    cell: int
    task: str
    start: int
    kind: str
    arms: list[HeatArm]
    film: int | None


@dataclass(frozen=True)
class Heat:
    """The map of all starts of a run, with the names of its arms and of its cells (policy, tasks)."""

    arms: list[str]
    cells: list[tuple[str, str]]
    starts: list[HeatStart]


@dataclass(frozen=True)
class PageTakes:
    """The takes of a run for the page: the outcomes of all (``heat``) and the films of some ``starts``.

    If there are none, ``note`` says why.
    """

    starts: list[PageStart]
    note: str = ""
    heat: Heat | None = None


def page_takes(run: Path, cells: Sequence[Cell], limits: PageLimits = REPORT) -> PageTakes:
    """Return the takes of a run for the page: the outcomes of all, and films within ``limits``."""
    if not (run / "takes.sqlite").exists():
        return PageTakes([], "This run holds outcomes only, no films, so there are no takes to show.")
    with Store.open(run) as store:
        scores, library, rows = Scores.open(run), _library(run, store.manifest), store.rows()
        by_cell = candidates(cells, rows, scores)
        every = [candidate for starts in by_cell.values() for candidate in starts]
        if not every:
            return PageTakes([], _why_no_takes(rows))
        shown: list[PageStart] = []
        films: dict[TakeKey, int] = {}
        spent = misses = 0
        for candidate in reversed(every) if limits.newest else film_order(by_cell):
            start, size = _start(candidate, store, scores, library, limits.bytes - spent)
            if spent + size > limits.bytes:
                misses += 1
            else:
                films[candidate.key] = len(shown)
                shown.append(start)
                spent += size
            if misses == _MISSES or len(shown) == limits.starts:
                break
    note = "" if shown else "No take of this run can be shown."
    return PageTakes(shown, note, _heat(sorted(every, key=lambda c: c.cell_index), cells, scores, films))


def _why_no_takes(rows: Sequence[Row]) -> str:
    """Say why no take was finished."""
    reasons = Counter(row.error or "for no known reason" for row in rows if row.status == "error")
    failed = (f" {count} failed: {reason[:_REASON]}." for reason, count in reasons.most_common(_REASONS))
    return f"No take of this run was finished.{''.join(failed)}" if reasons else "This run has no takes yet."


def _start(
    candidate: Candidate, store: Store, scores: Scores | None, library: Library | None, room: float
) -> tuple[PageStart, int]:
    """Return a start for the page and its size in bytes. Arms that do not fit into ``room`` are left out."""
    cell, key, demo = candidate.cell, candidate.key, _DemoSheet(library)
    takes: list[PageTake] = []
    size = hidden = 0
    for arm, rows in candidate.arms.items():
        picked = candidate.pick_of(arm, scores)
        done = [row for row in rows if row.status == "done"]
        kept = _first_and_picked(done, picked)
        films = [compact(take.film, take.frame_steps) for take in map(store.load, kept)]
        weight = sum(len(film.data) for film, _ in films) + sum(_trace_bytes(scores, row) for row in kept)
        if arm != BASE and size + weight > room:
            hidden += len(done)
            continue
        for row, (film, steps) in zip(kept, films, strict=True):
            takes.append(_take(row, film, steps, cell, scores, demo, picked=row.key.seed == picked))
        size, hidden = size + weight, hidden + len(done) - len(kept)
    sheet = demo.film()
    failed = [row for rows in candidate.arms.values() for row in rows if row.status == "error"]
    start = PageStart(
        candidate.kind, key.policy, cell.group, key.env, key.task, key.start, cell.scorer, cell.window, takes,
        hidden=hidden, demo=sheet,
        errors=[f"Take {row.key.seed} of {row.key.arm} could not be made: {row.error or ''}" for row in failed],
    )  # fmt: skip
    return start, size + (len(sheet.data) if sheet else 0)


def _heat(
    every: Sequence[Candidate], cells: Sequence[Cell], scores: Scores | None, films: Mapping[TakeKey, int]
) -> Heat:
    """Return the map of a run's starts; ``films`` has the index of a start's films in the page, by its key."""
    arms = list(dict.fromkeys(arm for candidate in every for arm in candidate.arms))
    seeds = {arm: 1 + max((row.key.seed for c in every for row in c.arms.get(arm, ())), default=-1) for arm in arms}
    starts = [
        HeatStart(
            c.cell_index, c.key.task, c.key.start, c.kind,
            [_heat_arm(c.arms.get(a, ()), seeds[a], c.pick_of(a, scores) if a in c.arms else None) for a in arms],
            films.get(c.key),
        )
        for c in every
    ]  # fmt: skip
    return Heat(arms, [(cell.policy, cell.group) for cell in cells], starts)


def _heat_arm(rows: Sequence[Row], seeds: int, picked: int | None) -> HeatArm:
    letters, steps = ["-"] * seeds, [0] * seeds
    for row in rows:
        seed = row.key.seed
        letters[seed] = "x" if row.success is None else "1" if row.success else "0"
        steps[seed] = row.success_step if row.success_step is not None else row.steps
    return HeatArm("".join(letters), steps, picked)


def _first_and_picked(done: Sequence[Row], picked: int | None) -> list[Row]:
    """Return the first `TAKES` takes; the picked one replaces the last of them if it comes later."""
    kept = list(done[:TAKES])
    if picked is not None and all(row.key.seed != picked for row in kept):
        kept = [*kept[:-1], *(row for row in done if row.key.seed == picked)]
    return kept


def _trace_bytes(scores: Scores | None, row: Row) -> int:
    trace = scores.get(row.key) if scores is not None else None
    return _MOMENT_BYTES * min(len(trace.steps), _MOMENTS) if trace is not None else 0


def _take(
    row: Row, film: Film, steps: Any, cell: Cell, scores: Scores | None, demo: _DemoSheet, *, picked: bool
) -> PageTake:
    trace = scores.get(row.key) if scores is not None else None
    moments = _thinned(len(trace.steps), _MOMENTS) if trace is not None else []
    return PageTake(
        row.key.arm, row.key.seed, bool(row.success), row.success_step, row.steps, picked,
        score=_finite(score_of(scores, row.key, ScoreName(cell.scorer, cell.window))),
        film=film if film.count else None,
        film_steps=[int(step) for step in steps],
        trace_steps=[int(trace.steps[i]) for i in moments] if trace else [],
        best=[_finite(trace.best[i], 4) for i in moments] if trace else [],
        nearest=[demo.place(int(trace.nearest[i])) for i in moments] if trace else [],
    )  # fmt: skip


class _DemoSheet:
    """The demonstration frames to which a start's traces point, each once."""

    def __init__(self, library: Library | None) -> None:
        self._library = library
        self._places: dict[int, int] = {}
        self._frames: list[U8] = []

    def place(self, index: int) -> int | None:
        """Return the place of the library's frame ``index`` in the sheet; None if it has no picture."""
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
        """Return all frames as one picture; None if there are none."""
        return Film.pack(np.stack(self._frames), quality=86) if self._frames else None


def compact(film: Film, steps: Any) -> tuple[Film, Any]:
    """Make a film small enough for a page: shrink large pictures, and thin out long films."""
    if film.count == 0 or (film.count <= _FRAMES and len(film.data) <= film.count * _HEAVY):
        return film, steps
    kept = _thinned(film.count, _FRAMES)
    frames = np.stack([_shrink(frame) for frame in film.unpack()[kept]])
    return Film.pack(frames, quality=72), np.asarray(steps)[kept]


def _thinned(count: int, most: int) -> list[int]:
    """Return at most ``most`` of ``count`` indexes, evenly spread, with the first and the last."""
    return [int(i) for i in np.unique(np.linspace(0, count - 1, min(count, most)).round())]


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
    """Open the run's library; None if it has none, or if it is no longer where it was."""
    from besttake.demos.library import Library

    try:
        return Library.open(run / manifest.library) if manifest.library else None
    except (OSError, BestTakeError):
        return None
