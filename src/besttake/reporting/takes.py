"""Which takes the report shows, and their films, traces and nearest demonstration frames as data for the page.

Per cell and in the order of the starts, so that nothing is hand-picked: starts that selection rescued, starts it
missed, and a few where all takes ended alike, until the size budget is spent.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from besttake.core.select import pick
from besttake.errors import BestTakeError
from besttake.measure.scores import ScoreName, Scores
from besttake.result import Cell, Result
from besttake.takes.film import Film
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store
from besttake.types import U8

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
"""Starts that do not fit before the rest is not even tried: packing a film that is then left out costs as much."""


class Pictures(Protocol):
    """Frames of the demonstrations (`besttake.demos.library.Library`)."""

    def frame_image(self, index: int) -> U8:
        """The picture of library frame ``index``, uint8 (H, W, 3)."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A start that could be shown: its base takes, which was picked, and what became of it."""

    cell: Cell
    rows: tuple[Row, ...]
    picked: int | None
    kind: str


def candidates(result: Result, rows: Sequence[Row], scores: Scores | None) -> dict[int, list[Candidate]]:
    """Starts per cell (by its place in ``result.cells``), in canonical order."""
    where = {(cell.policy, line.env, line.task): i for i, cell in enumerate(result.cells) for line in cell.tasks}
    starts: dict[tuple[str, str, str, int], list[Row]] = {}
    for row in rows:
        if row.key.arm == "base":
            starts.setdefault((row.key.policy, row.key.env, row.key.task, row.key.start), []).append(row)
    found: dict[int, list[Candidate]] = {}
    for (policy, env, task, _), members in starts.items():
        index = where.get((policy, env, task))
        if index is not None and any(row.status == "done" for row in members):
            found.setdefault(index, []).append(_judge(result.cells[index], members, scores))
    return found


def choose(found: Mapping[int, Sequence[Candidate]]) -> Iterator[Candidate]:
    """Candidates in the order in which they should enter the page: round by round, every cell in each."""
    queues = {(i, kind): [c for c in own if c.kind == kind] for i, own in found.items() for kind in KINDS}
    for kind in _ROUNDS:
        for i in sorted(found):
            if queues[i, kind]:
                yield queues[i, kind].pop(0)


def gather(run: Path, result: Result, *, budget: int = BUDGET) -> dict[str, Any]:
    """The takes of a run as data for the page: ``{"starts": [...], "note": "why there are none"}``."""
    if not (run / "takes.sqlite").exists():
        return {"starts": [], "note": "This run holds outcomes only, no films, so there are no takes to show."}
    with Store.open(run) as store:
        rows = store.rows()
        scores, pictures = Scores.open(run), _pictures(run, store.manifest)
        shown: list[dict[str, Any]] = []
        spent = misses = 0
        for candidate in choose(candidates(result, rows, scores)):
            data, size = _start(store, candidate, scores, pictures)
            if spent + size > budget:
                misses += 1
                if misses == _MISSES:
                    break
                continue
            shown.append(data)
            spent += size
            if len(shown) == LIMIT:
                break
    note = ""
    if not shown:
        note = "No take of this run can be shown." if rows else "This run has no takes yet."
    return {"starts": shown, "note": note, "demo": pictures is not None}


def _judge(cell: Cell, rows: list[Row], scores: Scores | None) -> Candidate:
    outcomes = np.array([[float(row.success) if row.success is not None else np.nan for row in rows]])
    values = np.array([[_score(scores, row.key, ScoreName(cell.scorer, cell.window)) for row in rows]])
    ended = outcomes[np.isfinite(outcomes)]
    scored = bool(np.isfinite(values).any())
    picked = int(pick(values, outcomes).index[0]) if scored else None
    if ended.all():
        kind = "succeeded"
    elif not ended.any():
        kind = "failed"
    elif picked is None:
        kind = "unscored"
    else:
        kind = "rescued" if outcomes[0, picked] == 1 else "missed"
    return Candidate(cell, tuple(rows), None if picked is None else rows[picked].key.seed, kind)


def _score(scores: Scores | None, key: TakeKey, name: ScoreName) -> float:
    found = scores.get(key) if scores is not None else None
    return float(found.scores.get(name, math.nan)) if found is not None else math.nan


def _start(
    store: Store, candidate: Candidate, scores: Scores | None, pictures: Pictures | None
) -> tuple[dict[str, Any], int]:
    cell, key = candidate.cell, candidate.rows[0].key
    done = [row for row in candidate.rows if row.status == "done"]
    kept = done[:TAKES]
    if candidate.picked is not None and all(row.key.seed != candidate.picked for row in kept):
        kept = [*kept[:-1], *(row for row in done if row.key.seed == candidate.picked)]
    takes, size, demo = [], 0, _DemoSheet(pictures)
    for row in kept:
        take = store.load(row)
        film, steps = _compact(take.film, take.frame_steps)
        score = scores.get(row.key) if scores is not None else None
        value = _score(scores, row.key, ScoreName(cell.scorer, cell.window))
        size += len(film.data)
        takes.append(
            {
                "seed": row.key.seed,
                "success": bool(row.success),
                "successStep": row.success_step,
                "steps": row.steps,
                "picked": row.key.seed == candidate.picked,
                "score": value if math.isfinite(value) else None,
                "film": _film(film),
                "filmSteps": [int(step) for step in steps],
                "traceSteps": [int(s) for s in score.steps] if score is not None else [],
                "best": [_rounded(v) for v in score.best] if score is not None else [],
                "nearest": [demo.place(int(i)) for i in score.nearest] if score is not None else [],
            }
        )
    sheet = demo.film()
    size += len(sheet.data)
    data = {
        "kind": candidate.kind,
        "policy": key.policy,
        "env": key.env,
        "task": key.task,
        "start": key.start,
        "scorer": cell.scorer,
        "window": cell.window,
        "takes": takes,
        "hidden": len(done) - len(kept),
        "demo": _film(sheet),
        "errors": [{"seed": r.key.seed, "reason": r.error or ""} for r in candidate.rows if r.status == "error"],
    }
    return data, size


class _DemoSheet:
    """The demonstration frames that a start's traces point at, each once."""

    def __init__(self, pictures: Pictures | None) -> None:
        self._pictures = pictures
        self._places: dict[int, int] = {}
        self._frames: list[U8] = []

    def place(self, index: int) -> int | None:
        """Where frame ``index`` of the library stands in the sheet; None when it has no picture."""
        if self._pictures is None or index < 0:
            return None
        if index not in self._places:
            frame = _shrink(np.asarray(self._pictures.frame_image(index), np.uint8))
            if self._frames and frame.shape != self._frames[0].shape:
                height, width = self._frames[0].shape[:2]
                frame = np.asarray(Image.fromarray(frame).resize((width, height)), np.uint8)
            self._places[index] = len(self._frames)
            self._frames.append(frame)
        return self._places[index]

    def film(self) -> Film:
        """All frames as one picture."""
        return _lossy(np.stack(self._frames), 86) if self._frames else Film(b"", 0, 0, 0, 0)


def _compact(film: Film, steps: Any) -> tuple[Film, Any]:
    """A film small enough for a page: large pictures are shrunk, long films thinned."""
    if film.count == 0 or (film.count <= _FRAMES and len(film.data) <= film.count * _HEAVY):
        return film, steps
    kept = np.unique(np.linspace(0, film.count - 1, min(film.count, _FRAMES)).round().astype(int))
    frames = film.unpack()[kept]
    return _lossy(np.stack([_shrink(frame) for frame in frames])), np.asarray(steps)[kept]


def _shrink(frame: U8) -> U8:
    height, width = frame.shape[:2]
    factor = _SIDE / max(height, width)
    if factor >= 1:
        return frame
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX), np.uint8)


def _lossy(frames: U8, quality: int = 72) -> Film:
    count, height, width, _ = frames.shape
    columns = min(count, 16383 // width)
    rows = -(-count // columns)
    sheet = np.zeros((rows * columns, height, width, 3), np.uint8)
    sheet[:count] = frames
    picture = sheet.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, -1, 3)
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="WEBP", quality=quality, method=2)
    return Film(buffer.getvalue(), count, height, width, columns)


def _film(film: Film) -> dict[str, Any] | None:
    if film.count == 0:
        return None
    source = base64.b64encode(film.data).decode()
    return {"src": source, "count": film.count, "w": film.width, "h": film.height, "columns": film.columns}


def _rounded(value: Any) -> float | None:
    return round(float(value), 4) if math.isfinite(float(value)) else None


def _pictures(run: Path, manifest: Mapping[str, Any]) -> Pictures | None:
    """The run's library; None when it has none, or when it is no longer where it was."""
    name = manifest.get("library")
    if not name:
        return None
    try:
        from besttake.demos.library import Library

        library: Pictures = Library.open(run / str(name))
        return library
    except (ImportError, OSError, BestTakeError):
        return None
