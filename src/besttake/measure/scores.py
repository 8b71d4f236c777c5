"""The scores of a run's takes, and the file that keeps them: ``scores.safetensors`` in the run directory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

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

    ``scores`` holds one number per scorer and window.
    """

    steps: NDArray[np.int32]
    best: NDArray[np.float32]
    nearest: NDArray[np.int64]
    scores: dict[ScoreName, float]


class Scores:
    """The scores of all takes of a run. ``fingerprint`` says which takes, library and encoder they were made from."""

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
        names = [ScoreName.parse(text) for text in head["kinds"]]
        parts = [np.split(arrays[name], np.cumsum(arrays["counts"])[:-1]) for name in ("steps", "best", "nearest")]
        table = {
            TakeKey(*key): TakeScore(steps, best, nearest, dict(zip(names, values.tolist(), strict=True)))
            for key, values, steps, best, nearest in zip(head["keys"], arrays["scores"], *parts, strict=False)
        }
        return cls(table, head["fingerprint"])

    def save(self, store: Store) -> None:
        """Keep the scores in the run directory."""
        entries = list(self.table.values())
        names = list(entries[0].scores) if entries else list(SCORE_NAMES)
        values = np.array([[entry.scores[name] for name in names] for entry in entries], np.float64)
        arrays = {
            "counts": np.array([len(entry.steps) for entry in entries], np.int64),
            "scores": values.reshape(-1, len(names)),
            "steps": _joined((entry.steps for entry in entries), np.int32),
            "best": _joined((entry.best for entry in entries), np.float32),
            "nearest": _joined((entry.nearest for entry in entries), np.int64),
        }
        head = {
            "keys": [astuple(key) for key in self.table],
            "kinds": [str(name) for name in names],
            "fingerprint": self.fingerprint,
        }
        store.write_bytes(_FILE, bytes(save(arrays, {"head": json.dumps(head)})))


def _joined(parts: Iterable[NDArray[np.generic]], dtype: type[np.generic]) -> NDArray[np.generic]:
    arrays = list(parts)
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)
