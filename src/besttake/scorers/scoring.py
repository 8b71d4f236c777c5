"""Takes to scores: frames are embedded, compared with the demonstrations of their task, and summed up per window.

The scores of a run are kept in ``scores.safetensors`` beside its takes, with the per-frame traces for the report.
They are made again whenever takes or library have changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from besttake.core.cover import Demos, cover
from besttake.core.score import common_window, coverage, episode_window, full_window, manifold
from besttake.demos.library import Library, View
from besttake.encoders.base import Encoder
from besttake.takes.pool import LocalPool
from besttake.takes.store import Row, Store
from besttake.takes.take import Take, TakeKey

SCORERS = ("manifold", "coverage")
WINDOWS = ("episode", "full", "common")
KINDS = tuple(f"{scorer}/{window}" for scorer in SCORERS for window in WINDOWS)
_FILE = "scores.safetensors"
_ENCODE = 512
_PORTION = 16


@dataclass(frozen=True)
class TakeScore:
    """``steps`` (F,), ``best`` (F,) cosine and ``nearest`` (F,) library frame per scored frame; ``scores[kind]``."""

    steps: NDArray[np.int32]
    best: NDArray[np.float32]
    nearest: NDArray[np.int64]
    scores: dict[str, float]


class Scores:
    """The scores of all takes of a run."""

    def __init__(self, table: dict[TakeKey, TakeScore], fingerprint: str) -> None:
        self.table = table
        self.fingerprint = fingerprint

    def get(self, key: TakeKey) -> TakeScore | None:
        """The scores of a take; None when it has none."""
        return self.table.get(key)

    @property
    def frames(self) -> int:
        """How many frames were scored."""
        return sum(len(score.steps) for score in self.table.values())

    @classmethod
    def open(cls, run: str | Path) -> Scores | None:
        """The scores kept in a run directory; None when there are none that can be read."""
        try:
            data = (Path(run) / _FILE).read_bytes()
            size = int.from_bytes(data[:8], "little")
            head = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["head"])
            arrays = load(data)
        except (OSError, ValueError, KeyError, SafetensorError):
            return None
        ends = np.cumsum(arrays["counts"])
        table = {}
        for index, key in enumerate(head["keys"]):
            part = slice(int(ends[index] - arrays["counts"][index]), int(ends[index]))
            values = {kind: float(arrays["scores"][index, column]) for column, kind in enumerate(head["kinds"])}
            table[TakeKey(*key)] = TakeScore(
                arrays["steps"][part], arrays["best"][part], arrays["nearest"][part], values
            )
        return cls(table, head["fingerprint"])

    def save(self, store: Store) -> None:
        """Keep the scores in the run directory."""
        entries = list(self.table.values())
        arrays = {
            "counts": np.array([len(e.steps) for e in entries], np.int64),
            "scores": np.array([[e.scores[kind] for kind in KINDS] for e in entries], np.float64).reshape(
                -1, len(KINDS)
            ),
            "steps": _joined([e.steps for e in entries], np.int32),
            "best": _joined([e.best for e in entries], np.float32),
            "nearest": _joined([e.nearest for e in entries], np.int64),
        }
        head = {"keys": [astuple(k) for k in self.table], "kinds": KINDS, "fingerprint": self.fingerprint}
        store.write_bytes(_FILE, bytes(save(arrays, {"head": json.dumps(head)})))


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
            scores[f"manifold/{name}"] = manifold(trace, window)
            scores[f"coverage/{name}"] = coverage(trace, float(share), window)
        nearest = np.where(trace.frame >= 0, view.frames[trace.frame], -1)
        yield one.take.key, TakeScore(one.take.frame_steps, trace.best, nearest, scores)


def _embed(encoder: Encoder, takes: Sequence[Take]) -> list[NDArray[np.float32]]:
    frames = np.concatenate([take.frames() for take in takes])
    coded = [encoder.encode(frames[i : i + _ENCODE]) for i in range(0, len(frames), _ENCODE)]
    flat = np.concatenate(coded) if coded else np.zeros((0, encoder.spec.dim), np.float32)
    return np.split(flat, np.cumsum([len(take.frame_steps) for take in takes])[:-1])


def _joined(parts: Iterable[NDArray[np.generic]], dtype: type[np.generic]) -> NDArray[np.generic]:
    arrays = list(parts)
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)
