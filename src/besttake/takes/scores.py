"""The scores of a run's takes, stored in ``scores.safetensors`` in the run directory."""

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
    """A scorer and the window of frames that it read, written ``manifold/full``."""

    scorer: str
    window: str

    @classmethod
    def parse(cls, text: str) -> ScoreName:
        """Read a name back from its text."""
        return cls(*text.rsplit("/", 1))

    def __str__(self) -> str:
        return f"{self.scorer}/{self.window}"


SCORE_NAMES = tuple(ScoreName(scorer, window) for scorer in SCORERS for window in WINDOWS)


@dataclass(frozen=True)
class TakeScore:
    """The scores of one take, one number per scorer and window.

    Of its F scored frames: ``steps``, the ``best`` cosine to the library, and the library frame ``nearest``. ``source``
    is a hash of the takes of the start, the demonstrations and the encoder that they were made from.
    """

    steps: NDArray[np.int32]
    best: NDArray[np.float32]
    nearest: NDArray[np.int64]
    scores: dict[ScoreName, float]
    source: str = ""

    def only(self, scorers: Iterable[str]) -> TakeScore:
        """Keep only the scores of these scorers, in this order."""
        scores = {name: self.scores[name] for scorer in scorers for name in self.scores if name.scorer == scorer}
        return replace(self, scores=scores)


class Scores(Mapping[TakeKey, TakeScore]):
    """The scores of all takes of a run by their key: ``scores[key].scores["manifold", "full"]`` is a number.

    Attributes:
        scorers: The fingerprint of each scorer, by its name.
        length: Scorers that depend on what follows a window, which can give the outcome away.
        lost: The reason for each scorer that failed; not stored.
        new: How many frames were scored now instead of read from the file; not stored.
    """

    def __init__(
        self, table: dict[TakeKey, TakeScore], scorers: Mapping[str, str] | None = None, *, length: Iterable[str] = ()
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
        """The names of the scores that each take has."""
        return list(next(iter(self.values())).scores) if self else list(SCORE_NAMES)

    @property
    def frames(self) -> int:
        """How many frames were scored."""
        return sum(len(score.steps) for score in self.values())

    def has(self, key: TakeKey, scorer: str) -> bool:
        """Whether a take has scores by ``scorer``."""
        return key in self._takes and ScoreName(scorer, WINDOWS[0]) in self._takes[key].scores

    def joined(self, other: Scores) -> Scores:
        """Join these scores with ``other`` ones, of other takes, other scorers, or both."""
        table = {**self._takes, **other._takes}
        for key in self.keys() & other.keys():
            old, new = self[key], other[key]
            compared = old if (old.nearest >= 0).any() else new
            table[key] = replace(compared, scores={**old.scores, **new.scores}, source=new.source)
        table = {key: table[key] for key in sorted(table)}
        return Scores(table, {**self.scorers, **other.scorers}, length=self.length | other.length)

    def only(self, scorers: Iterable[str]) -> Scores:
        """Keep only the scores of these scorers, in this order."""
        names = list(scorers)
        if names == list(self.scorers):
            return self
        table = {key: score.only(names) for key, score in self.items()}
        scorers = {name: self.scorers[name] for name in names if name in self.scorers}  # empty if no take was scored
        return Scores(table, scorers, length=self.length & {*names})

    @classmethod
    def open(cls, run: str | Path) -> Self | None:
        """Read the scores of a run directory; None if there are none, RunError if they are damaged."""
        path = Path(run) / _FILE
        try:
            data = read_regular(path)
            head = json.loads(safetensors_metadata(data)["head"])
            arrays = load(data)
            if head["schema"] == _SCHEMA and head.pop("sha256") == _checksum(head, arrays):
                check_run(path, head["run"])
                return cls._from_arrays(head, arrays)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, SafetensorError):
            pass
        raise RunError(f"{path} is damaged; run the same diagnosis again: it makes the scores anew")

    @classmethod
    def _from_arrays(cls, head: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
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
        """Write the scores to the run directory, or remove the file if there are none.

        All takes must have scores of the same names.
        """
        if not self.scorers:
            self.remove(store)
            return
        entries = list(self.values())
        arrays: dict[str, NDArray[Any]] = {
            "counts": np.array([len(entry.steps) for entry in entries], np.int64),
            "steps": np.concatenate([np.zeros(0, np.int32), *(entry.steps for entry in entries)], dtype=np.int32),
            "best": np.concatenate([np.zeros(0, np.float32), *(entry.best for entry in entries)], dtype=np.float32),
            "nearest": np.concatenate([np.zeros(0, np.int64), *(entry.nearest for entry in entries)], dtype=np.int64),
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
            score = self[key]
            values = sorted((str(name), float(value).hex()) for name, value in score.scores.items())
            whole.update(json.dumps([astuple(key), values]).encode())
            for array in (score.steps, score.best, score.nearest):
                whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()


def run_digest(takes: str, scores: Scores | None) -> str:
    """The digest of a run, from that of its takes and outcomes (`Store.digest`) and its scores."""
    return hashlib.sha256(f"{takes} {'' if scores is None else scores.digest()}".encode()).hexdigest()


def _checksum(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """The checksum of everything in the file."""
    whole = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        whole.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        whole.update(np.ascontiguousarray(arrays[name]).tobytes())
    return whole.hexdigest()
