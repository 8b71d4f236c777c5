"""The scores of a run's takes, and the file that keeps them: ``scores.safetensors`` in the run directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from besttake.errors import RunError
from besttake.files import read_regular, safetensors_metadata
from besttake.takes.key import TakeKey

if TYPE_CHECKING:
    from besttake.takes.store import Store

SCORERS = ("manifold", "coverage")
WINDOWS = ("episode", "full", "common")
_FILE = "scores.safetensors"
_SCHEMA = 2
_COMMON = ("counts", "steps", "best", "nearest")


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
    to its own fingerprint. ``length``: scorers that depend on what follows a window, which can give the outcome away.
    ``probability``: scorers that say how likely a take succeeded. ``lost`` says why scorers that were asked gave none;
    it is not kept.
    """

    def __init__(
        self, table: dict[TakeKey, TakeScore], fingerprint: str, scorers: Mapping[str, str] | None = None
    ) -> None:
        self._takes = table
        self.fingerprint = fingerprint
        self.scorers = dict(scorers or {})
        self.length: frozenset[str] = frozenset()
        self.probability: frozenset[str] = frozenset()
        self.lost: dict[str, str] = {}

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

    def with_length(self, length: Iterable[str]) -> Self:
        """The same, where these scorers depend on what follows a window."""
        self.length = frozenset(length)
        return self

    def with_probability(self, probability: Iterable[str]) -> Self:
        """The same, where these scorers say how likely a take succeeded."""
        self.probability = frozenset(probability)
        return self

    def with_lost(self, lost: Mapping[str, str]) -> Self:
        """The same, where these scorers failed, for these reasons."""
        self.lost = dict(lost)
        return self

    def joined(self, table: Mapping[TakeKey, TakeScore], scorers: Mapping[str, str]) -> Scores:
        """These scores and those that ``scorers`` gave the same takes."""
        merged = dict(table)
        for key, old in self.items():
            new = table[key]
            compared = old if (old.nearest >= 0).any() else new
            scores, traces = {**old.scores, **new.scores}, {**old.traces, **new.traces}
            merged[key] = replace(compared, scores=scores, traces=traces)
        every = Scores(merged, self.fingerprint, {**self.scorers, **scorers})
        return every.with_length(self.length).with_probability(self.probability)

    def only(self, scorers: Iterable[str]) -> Scores:
        """The scores of these scorers alone, in this order."""
        names = list(scorers)
        if names == list(self.scorers):
            return self
        table = {
            key: replace(
                one,
                scores={name: one.scores[name] for scorer in names for name in one.scores if name.scorer == scorer},
                traces={name: one.traces[name] for name in names if name in one.traces},
            )
            for key, one in self.items()
        }
        own = {name: self.scorers[name] for name in names if name in self.scorers}  # none where no take was scored
        left = Scores(table, self.fingerprint, own)
        return left.with_length(self.length & {*names}).with_probability(self.probability & {*names})

    @classmethod
    def open(cls, run: str | Path) -> Self | None:
        """The scores kept in a run directory; None when there are none, RunError when they are damaged."""
        scores, damaged = cls.intact(run, older=True)
        if damaged:
            raise RunError(
                f"{Path(run) / _FILE} is damaged ({', '.join(damaged)}); run the same diagnosis again: it makes these"
                " scores anew"
            )
        return scores

    @classmethod
    def intact(cls, run: str | Path, *, older: bool = False) -> tuple[Self | None, list[str]]:
        """The scores of a run that are what was written, and the names of those that are not.

        Scores of a version that kept no checksums count as none unless ``older`` is asked for.
        """
        try:
            data = read_regular(Path(run) / _FILE)
        except FileNotFoundError:
            return None, []
        except OSError as error:
            return None, [error.strerror or "cannot be read"]
        except ValueError as error:
            return None, [str(error)]
        try:
            head = json.loads(safetensors_metadata(data)["head"])
            if "schema" not in head and "sha256" not in head:
                return (_older(cls, head, load(data)) if older else None), []
            if head.pop("sha256", None) != _sha256(json.dumps(head, sort_keys=True).encode()):
                return None, ["its head"]
            arrays = load(data)
            whole = {name for name, checksum in head["checks"].items() if checksum == _array_checksum(arrays.get(name))}
            if not whole.issuperset(_COMMON):
                return None, [f"the array {min(set(_COMMON) - whole)!r}"]
            lost = [s for s in head["scorers"] if not whole.issuperset(_own_arrays(s, head["traces"]))]
            return _assembled(cls, head, arrays, lost), lost
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, SafetensorError):
            return None, ["all of it"]

    def save(self, store: Store) -> None:
        """Keep the scores in the run directory, each array with a checksum."""
        entries = list(self.values())
        arrays = {
            "counts": np.array([len(entry.steps) for entry in entries], np.int64),
            "steps": _joined((entry.steps for entry in entries), np.int32),
            "best": _joined((entry.best for entry in entries), np.float32),
            "nearest": _joined((entry.nearest for entry in entries), np.int64),
        }
        kinds = {
            scorer: [name for name in self.names if name.scorer == scorer]
            for scorer in dict.fromkeys(name.scorer for name in self.names)
        }
        for scorer, names in kinds.items():
            values = np.array([[entry.scores[name] for name in names] for entry in entries], np.float64)
            arrays[f"scores {scorer}"] = values.reshape(-1, len(names))
        traces = sorted({scorer for entry in entries for scorer in entry.traces})
        for scorer in traces:
            none = [np.full(len(entry.steps), np.nan) for entry in entries]
            own = (entry.traces.get(scorer, nan) for entry, nan in zip(entries, none, strict=True))
            arrays[f"trace {scorer}"] = _joined(own, np.float32)
        head = {
            "schema": _SCHEMA,
            "keys": [astuple(key) for key in self],
            "kinds": {scorer: [str(name) for name in names] for scorer, names in kinds.items()},
            "fingerprint": self.fingerprint,
            "scorers": {scorer: self.scorers.get(scorer, "") for scorer in {**kinds, **self.scorers}},
            "traces": traces,
            "length": sorted(self.length),
            "probability": sorted(self.probability),
            "checks": {name: _array_checksum(array) for name, array in arrays.items()},
        }
        head["sha256"] = _sha256(json.dumps(head, sort_keys=True).encode())
        store.write_bytes(_FILE, bytes(save(arrays, {"head": json.dumps(head)})))

    def digest(self) -> str:
        """The sha256 over all scores in canonical order, to the last bit."""
        whole = hashlib.sha256()
        for key in sorted(self):
            one = self[key]
            values = sorted((str(name), float(value).hex()) for name, value in one.scores.items())
            whole.update(json.dumps([astuple(key), values]).encode())
            traces = [one.traces[name] for name in sorted(one.traces)]
            for array in (one.steps, one.best, one.nearest, *traces):
                whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()


def run_digest(takes: str, scores: Scores | None) -> str:
    """The digest of a run: of its takes with their outcomes (`Store.digest`) and of its scores."""
    return _sha256(f"{takes} {'' if scores is None else scores.digest()}".encode())


_S = TypeVar("_S", bound=Scores)


def _assembled(cls: type[_S], head: Any, arrays: Mapping[str, NDArray[Any]], lost: Collection[str]) -> _S:
    """Scores from what was read, without those of the scorers in ``lost``."""
    ends = np.cumsum(arrays["counts"])[:-1]
    parts = [np.split(arrays[name], ends) for name in ("steps", "best", "nearest")]
    keys = [TakeKey(*key) for key in head["keys"]]
    table = {key: TakeScore(steps, best, nearest, {}) for key, steps, best, nearest in zip(keys, *parts, strict=False)}
    for scorer, texts in head["kinds"].items():
        names = [ScoreName.parse(text) for text in texts]
        for one, values in zip(table.values(), arrays[f"scores {scorer}"] if scorer not in lost else (), strict=False):
            one.scores.update(zip(names, values.tolist(), strict=True))
    for scorer in head["traces"]:
        if scorer not in lost:
            for one, trace in zip(table.values(), np.split(arrays[f"trace {scorer}"], ends), strict=True):
                one.traces[scorer] = trace
    own = {name: text for name, text in head["scorers"].items() if name not in lost}
    length, probability = ({*head.get(key, ())} & {*own} for key in ("length", "probability"))
    return cls(table, head["fingerprint"], own).with_length(length).with_probability(probability)


def _older(cls: type[_S], head: Any, arrays: Mapping[str, NDArray[Any]]) -> _S:
    """Scores of a version that kept all scorers in one array, and no checksums."""
    names = [ScoreName.parse(text) for text in head["kinds"]]
    kinds = {s: [str(n) for n in names if n.scorer == s] for s in dict.fromkeys(n.scorer for n in names)}
    own = {f"scores {s}": arrays["scores"][:, [n.scorer == s for n in names]] for s in kinds}
    whole = {"scorers": {}, "traces": [], **head, "kinds": kinds}
    return _assembled(cls, whole, {**arrays, **own}, ())


def _own_arrays(scorer: str, traces: Collection[str]) -> set[str]:
    return {f"scores {scorer}", *([f"trace {scorer}"] if scorer in traces else [])}


def _array_checksum(array: NDArray[Any] | None) -> str:
    """Of type, shape and content."""
    if array is None:
        return ""
    return _sha256(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _joined(parts: Iterable[NDArray[np.generic]], dtype: type[np.generic]) -> NDArray[np.generic]:
    arrays = list(parts)
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)
