"""Takes to scores: frames are embedded, compared with the demonstrations of their task, and summed up per window.

The scores of a run are kept in ``scores.safetensors`` beside its takes, with the per-frame traces for the report.
They are made again whenever takes or library have changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from besttake.core.cover import Demos, cover
from besttake.core.score import common_window, coverage, episode_window, full_window, manifold
from besttake.demos.library import Library, View
from besttake.encoders.base import Encoder
from besttake.measure.scores import ScoreName, TakeScore
from besttake.measure.scores import Scores as Scores
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import LocalPool
from besttake.takes.store import Store
from besttake.takes.take import Take

_ENCODE = 512
_PORTION = 16


def score_run(
    store: Store,
    library: Library,
    encoder: Encoder,
    *,
    instructions: Mapping[str, str] | None = None,
    pool: LocalPool | None = None,
    on_takes: Callable[[int], None] = lambda count: None,
) -> Scores:
    """Score every finished take of a run, or read the scores when they are there and still true.

    ``instructions`` of the tasks find demonstrations that their names do not. With a ``pool`` its workers share the
    work, each with an encoder of its own made from the library.
    """
    found_by = {
        task: words
        for task, words in (instructions or {}).items()
        if library.view(task).matched == "all" and library.view(task, words).matched != "all"
    }
    parts = (store.digest(), library.fingerprint, encoder.spec.fingerprint, *([found_by] if found_by else []))
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    kept = Scores.open(store.path)
    if kept is not None and kept.fingerprint == fingerprint:
        return kept
    rows = [row for row in store.rows() if row.status == "done"]
    compared = [list(group) for _, group in groupby(rows, key=lambda row: astuple(row.key)[:5])]
    portions = [compared[first : first + _PORTION] for first in range(0, len(compared), _PORTION)]

    def told(portion: list[list[Row]]) -> None:
        on_takes(sum(map(len, portion)))

    table: dict[TakeKey, TakeScore] = {}
    if pool is not None:
        for scored in pool.map(_Elsewhere(str(store.path), str(library.path), found_by), portions, told):
            table.update(scored)
    else:
        for portion in portions:
            table.update(_score_portion(store, library, encoder, portion, found_by))
            told(portion)
    scores = Scores(table, fingerprint)
    scores.save(store)
    return scores


@dataclass(frozen=True)
class _Elsewhere:
    """Scores takes of a run in another process."""

    run: str
    library: str
    instructions: Mapping[str, str]

    def __call__(self, portion: list[list[Row]]) -> dict[TakeKey, TakeScore]:
        library, encoder = _opened(self.library)
        with Store.open(self.run) as store:
            return _score_portion(store, library, encoder, portion, self.instructions)


@lru_cache(maxsize=1)
def _opened(path: str) -> tuple[Library, Encoder]:
    library = Library.open(path)
    return library, library.encoder()


def _score_portion(
    store: Store,
    library: Library,
    encoder: Encoder,
    portion: Sequence[Sequence[Row]],
    instructions: Mapping[str, str],
) -> dict[TakeKey, TakeScore]:
    """Score several starts; their frames are embedded together, and those of one task compared together."""
    groups = [[store.load(row) for row in rows] for rows in portion]
    embedded = iter(_embed(encoder, [take for group in groups for take in group]))
    views: dict[int, tuple[View, list[_Framed]]] = {}
    for group in groups:
        task = group[0].key.task
        view = library.view(task, instructions.get(task, ""))
        framed = [_Framed(take, next(embedded), windows) for take, windows in zip(group, _windows(group), strict=True)]
        views.setdefault(id(view), (view, []))[1].extend(framed)
    found = {key: score for view, takes in views.values() for key, score in _score_takes(view, takes)}
    return {take.key: found[take.key] for group in groups for take in group}


@dataclass(frozen=True)
class _Framed:
    """A take, its frames' embeddings (F, d), and which of its frames (F,) each window holds."""

    take: Take
    embeddings: NDArray[np.float32]
    windows: dict[str, NDArray[np.bool_]]


def _windows(takes: Sequence[Take]) -> list[dict[str, NDArray[np.bool_]]]:
    """The windows of the takes that a selector chooses among: one policy, start and arm."""
    ends = [take.success_step if take.success_step is not None else take.steps for take in takes]
    return [
        {
            "episode": episode_window(take.frame_steps, end),
            "full": full_window(take.frame_steps, take.steps),
            "common": common_window(take.frame_steps, ends),
        }
        for take, end in zip(takes, ends, strict=True)
    ]


def _score_takes(view: View, takes: Sequence[_Framed]) -> Iterator[tuple[TakeKey, TakeScore]]:
    """Score takes by one view. Every window is the first so many frames of a take."""
    counts = [[int(window.sum()) for window in one.windows.values()] for one in takes]
    demos = Demos.of(view.frame_demo, view.frame_step)
    covered = cover(view.index, [one.embeddings for one in takes], counts, demos)
    for one, (trace, shares) in zip(takes, covered, strict=True):
        scores = {}
        for (name, window), share in zip(one.windows.items(), shares, strict=True):
            scores[ScoreName("manifold", name)] = manifold(trace, window)
            scores[ScoreName("coverage", name)] = coverage(trace, float(share), window)
        nearest = np.where(trace.frame >= 0, view.frames[trace.frame], -1)
        yield one.take.key, TakeScore(one.take.frame_steps, trace.best, nearest, scores)


def _embed(encoder: Encoder, takes: Sequence[Take]) -> list[NDArray[np.float32]]:
    frames = np.concatenate([take.frames() for take in takes])
    coded = [encoder.encode(frames[i : i + _ENCODE]) for i in range(0, len(frames), _ENCODE)]
    flat = np.concatenate(coded) if coded else np.zeros((0, encoder.spec.dim), np.float32)
    return np.split(flat, np.cumsum([len(take.frame_steps) for take in takes])[:-1])
