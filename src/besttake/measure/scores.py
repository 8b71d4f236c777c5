"""The scores of a run's takes, and the file that keeps them: ``scores.safetensors`` in the run directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from besttake.files import safetensors_metadata
from besttake.takes.key import TakeKey

if TYPE_CHECKING:
    from besttake.takes.store import Store

SCORERS = ("manifold", "coverage")
WINDOWS = ("episode", "full", "common")
_FILE = "scores.safetensors"


class ScoreName(NamedTuple):
    """Which score: the scorer, and the window of frames that it read. Written ``manifold/full``."""

    scorer: str
    window: str

    @classmethod
    def parse(cls, text: str) -> ScoreName:
        """The name that ``str`` wrote."""
        return cls(*text.rsplit("/", 1))

    def __str__(self) -> str:
        return f"{self.scorer}/{self.window}"


SCORE_NAMES = tuple(ScoreName(scorer, window) for scorer in SCORERS for window in WINDOWS)


@dataclass(frozen=True)
class TakeScore:
    """One take: ``steps`` (F,), best cosine ``best`` (F,) and library frame ``nearest`` (F,) of its scored frames.

    ``scores`` holds one number per scorer and window, ``traces`` one per frame (F,) of a scorer with its own.
    """

    steps: NDArray[np.int32]
    best: NDArray[np.float32]
    nearest: NDArray[np.int64]
    scores: dict[ScoreName, float]
    traces: dict[str, NDArray[np.float32]] = field(default_factory=dict)


class Scores(Mapping[TakeKey, TakeScore]):
    """The scores of all takes of a run by their key: ``scores[key].scores["manifold", "full"]`` is a number.

    ``fingerprint`` says which takes, library and encoder they were made from; ``scorers`` maps the name of each scorer
    to its own fingerprint.
    """

    def __init__(
        self, table: dict[TakeKey, TakeScore], fingerprint: str, scorers: Mapping[str, str] | None = None
    ) -> None:
        self._takes = table
        self.fingerprint = fingerprint
        self.scorers = dict(scorers or {})

    def __getitem__(self, key: TakeKey) -> TakeScore:
        return self._takes[key]

    def __iter__(self) -> Iterator[TakeKey]:
        return iter(self._takes)

    def __len__(self) -> int:
        return len(self._takes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} takes by {', '.join(self.scorers) or 'no scorer'}>"

    @property
    def names(self) -> list[ScoreName]:
        """Which scores each take has."""
        return list(next(iter(self.values())).scores) if self else list(SCORE_NAMES)

    @property
    def frames(self) -> int:
        """How many frames were scored."""
        return sum(len(score.steps) for score in self.values())

    def joined(self, table: Mapping[TakeKey, TakeScore], scorers: Mapping[str, str]) -> Scores:
        """These scores and those that ``scorers`` gave the same takes."""
        merged = dict(table)
        for key, old in self.items():
            new = table[key]
            compared = old if (old.nearest >= 0).any() else new
            scores, traces = {**old.scores, **new.scores}, {**old.traces, **new.traces}
            merged[key] = replace(compared, scores=scores, traces=traces)
        return Scores(merged, self.fingerprint, {**self.scorers, **scorers})

    def only(self, scorers: Iterable[str]) -> Scores:
        """The scores of these scorers alone."""
        names = list(scorers)
        if set(names) == set(self.scorers):
            return self
        table = {
            key: replace(
                one,
                scores={name: value for name, value in one.scores.items() if name.scorer in names},
                traces={name: trace for name, trace in one.traces.items() if name in names},
            )
            for key, one in self.items()
        }
        return Scores(table, self.fingerprint, {name: self.scorers[name] for name in names})

    @classmethod
    def open(cls, run: str | Path) -> Self | None:
        """The scores kept in a run directory; None when there are none that can be read."""
        try:
            data = (Path(run) / _FILE).read_bytes()
            head = json.loads(safetensors_metadata(data)["head"])
            arrays = load(data)
        except (OSError, ValueError, KeyError, SafetensorError):
            return None
        names = [ScoreName.parse(text) for text in head["kinds"]]
        ends = np.cumsum(arrays["counts"])[:-1]
        parts = [np.split(arrays[name], ends) for name in ("steps", "best", "nearest")]
        table = {
            TakeKey(*key): TakeScore(steps, best, nearest, dict(zip(names, values.tolist(), strict=True)))
            for key, values, steps, best, nearest in zip(head["keys"], arrays["scores"], *parts, strict=False)
        }
        for scorer in head.get("traces", ()):
            for one, trace in zip(table.values(), np.split(arrays[f"trace {scorer}"], ends), strict=True):
                one.traces[scorer] = trace
        return cls(table, head["fingerprint"], head.get("scorers"))

    def save(self, store: Store) -> None:
        """Keep the scores in the run directory."""
        entries = list(self.values())
        names = self.names
        values = np.array([[entry.scores[name] for name in names] for entry in entries], np.float64)
        arrays = {
            "counts": np.array([len(entry.steps) for entry in entries], np.int64),
            "scores": values.reshape(-1, len(names)),
            "steps": _joined((entry.steps for entry in entries), np.int32),
            "best": _joined((entry.best for entry in entries), np.float32),
            "nearest": _joined((entry.nearest for entry in entries), np.int64),
        }
        traces = sorted({scorer for entry in entries for scorer in entry.traces})
        for scorer in traces:
            none = [np.full(len(entry.steps), np.nan) for entry in entries]
            own = (entry.traces.get(scorer, nan) for entry, nan in zip(entries, none, strict=True))
            arrays[f"trace {scorer}"] = _joined(own, np.float32)
        head = {
            "keys": [astuple(key) for key in self],
            "kinds": [str(name) for name in names],
            "fingerprint": self.fingerprint,
            "scorers": self.scorers,
            "traces": traces,
        }
        store.write_bytes(_FILE, bytes(save(arrays, {"head": json.dumps(head)})))


def _joined(parts: Iterable[NDArray[np.generic]], dtype: type[np.generic]) -> NDArray[np.generic]:
    arrays = list(parts)
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)
