"""The scores of a run's takes, and the file that keeps them: ``scores.safetensors`` in the run directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from besttake.errors import RunError
from besttake.files import check_run, read_regular, safetensors_metadata
from besttake.takes.key import TakeKey

if TYPE_CHECKING:
    from besttake.takes.store import Store

SCORERS = ("manifold", "coverage")
WINDOWS = ("episode", "full", "common")
_FILE = "scores.safetensors"
_SCHEMA = 5


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

    ``scores`` holds one number per scorer and window. ``source`` is a hash of what they were made from: the takes of
    the start, demonstrations and encoder.
    """

    steps: NDArray[np.int32]
    best: NDArray[np.float32]
    nearest: NDArray[np.int64]
    scores: dict[ScoreName, float]
    source: str = ""

    def only(self, scorers: Iterable[str]) -> TakeScore:
        """The same with the scores of these scorers alone, in this order."""
        scores = {name: self.scores[name] for scorer in scorers for name in self.scores if name.scorer == scorer}
        return replace(self, scores=scores)


class Scores(Mapping[TakeKey, TakeScore]):
    """The scores of all takes of a run by their key: ``scores[key].scores["manifold", "full"]`` is a number.

    Attributes:
        scorers: The fingerprint of each scorer, by its name.
        length: Scorers that depend on what follows a window, which can give the outcome away.
        lost: Why scorers that were asked gave no scores; this is not kept.
        new: How many frames were scored now, and not read; this is not kept.
    """

    def __init__(
        self,
        table: dict[TakeKey, TakeScore],
        scorers: Mapping[str, str] | None = None,
        *,
        length: Iterable[str] = (),
    ) -> None:
        self._takes = table
        self.scorers = dict(scorers or {})
        self.length = frozenset(length)
        self.lost: dict[str, str] = {}
        self.new = 0

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

    def has(self, key: TakeKey, scorer: str) -> bool:
        """Whether a take has scores by ``scorer``."""
        return key in self._takes and ScoreName(scorer, WINDOWS[0]) in self._takes[key].scores

    def joined(self, other: Scores) -> Scores:
        """These scores and ``other`` ones, which may be of other takes, by other scorers, or both."""
        table = {**self._takes, **other._takes}
        for key in self.keys() & other.keys():
            old, new = self[key], other[key]
            compared = old if (old.nearest >= 0).any() else new
            table[key] = replace(compared, scores={**old.scores, **new.scores}, source=new.source)
        table = {key: table[key] for key in sorted(table)}
        return Scores(table, {**self.scorers, **other.scorers}, length=self.length | other.length)

    def only(self, scorers: Iterable[str]) -> Scores:
        """The scores of these scorers alone, in this order."""
        names = list(scorers)
        if names == list(self.scorers):
            return self
        table = {key: one.only(names) for key, one in self.items()}
        own = {name: self.scorers[name] for name in names if name in self.scorers}  # none where no take was scored
        return Scores(table, own, length=self.length & {*names})

    @classmethod
    def open(cls, run: str | Path) -> Self | None:
        """The scores kept in a run directory; None when there are none, RunError when they are damaged."""
        path = Path(run) / _FILE
        try:
            data = read_regular(path)
            head = json.loads(safetensors_metadata(data)["head"])
            arrays = load(data)
            if head["schema"] == _SCHEMA and head.pop("sha256") == _checksum(head, arrays):
                check_run(path, head["run"])
                return cls._assembled(head, arrays)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, SafetensorError):
            pass
        raise RunError(f"{path} is damaged; run the same diagnosis again: it makes the scores anew")

    @classmethod
    def _assembled(cls, head: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        ends = np.cumsum(arrays["counts"])[:-1]
        steps, best, nearest = (np.split(arrays[name], ends) for name in ("steps", "best", "nearest"))
        names = [ScoreName.parse(text) for text in head["names"]]
        table = {}
        for i, (key, source) in enumerate(zip(head["keys"], head["sources"], strict=True)):
            values = dict(zip(names, arrays["scores"][i].tolist(), strict=True))
            table[TakeKey(*key)] = TakeScore(steps[i], best[i], nearest[i], values, source)
        return cls(table, head["scorers"], length=head["length"])

    @staticmethod
    def remove(store: Store) -> None:
        """Remove the scores of a run."""
        (store.path / _FILE).unlink(missing_ok=True)

    def save(self, store: Store) -> None:
        """Keep the scores in the run directory, with a checksum; without any scorer, remove those that are there.

        All takes must have the same scores.
        """
        if not self.scorers:
            self.remove(store)
            return
        entries = list(self.values())
        arrays = {
            "counts": np.array([len(entry.steps) for entry in entries], np.int64),
            "steps": _joined((entry.steps for entry in entries), np.int32),
            "best": _joined((entry.best for entry in entries), np.float32),
            "nearest": _joined((entry.nearest for entry in entries), np.int64),
            "scores": np.array([[entry.scores[name] for name in self.names] for entry in entries], np.float64),
        }
        head: dict[str, Any] = {
            "schema": _SCHEMA,
            "run": store.manifest.run,
            "keys": [astuple(key) for key in self],
            "sources": [entry.source for entry in entries],
            "names": [str(name) for name in self.names],
            "scorers": self.scorers,
            "length": sorted(self.length),
        }
        head["sha256"] = _checksum(head, arrays)
        store.write_bytes(_FILE, bytes(save(arrays, {"head": json.dumps(head)})))

    def digest(self) -> str:
        """The sha256 over all scores in canonical order, to the last bit."""
        whole = hashlib.sha256()
        for key in sorted(self):
            one = self[key]
            values = sorted((str(name), float(value).hex()) for name, value in one.scores.items())
            whole.update(json.dumps([astuple(key), values]).encode())
            for array in (one.steps, one.best, one.nearest):
                whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()


def run_digest(takes: str, scores: Scores | None) -> str:
    """The digest of a run: of its takes with their outcomes (`Store.digest`) and of its scores."""
    return hashlib.sha256(f"{takes} {'' if scores is None else scores.digest()}".encode()).hexdigest()


def _checksum(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Of everything that the file holds."""
    whole = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        whole.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        whole.update(np.ascontiguousarray(arrays[name]).tobytes())
    return whole.hexdigest()


def _joined(parts: Iterable[NDArray[np.generic]], dtype: type[np.generic]) -> NDArray[np.generic]:
    arrays = list(parts)
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)
