"""Some starts of a run, scored together: here, or in a worker, which imports no more than this needs."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

from besttake import registry
from besttake.core.score import window_until
from besttake.demos.library import Library
from besttake.demos.view import View
from besttake.encoders.base import Encoder
from besttake.errors import ComponentError
from besttake.measure.scores import WINDOWS, ScoreName, TakeScore
from besttake.scorers.base import Footage, Scorer
from besttake.scorers.guard import Elsewhere, Guard, make_scorer
from besttake.scorers.journal import Journal
from besttake.scorers.judge import Judged, compares_frames, embed, judge, needs_demos, reads_of, sees_embeddings
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store, load_take
from besttake.takes.take import Take

Start = list[Row]
"""The takes that a selector chooses among: one policy, start and arm."""


@dataclass(frozen=True)
class Context:
    """What a run's takes are scored with besides the library: words and camera of each task, where they are known."""

    instructions: Mapping[str, str] = field(default_factory=dict)
    cameras: Mapping[str, str] = field(default_factory=dict)


def make_scorers(uris: Iterable[str]) -> dict[str, Scorer]:
    """Scorers by URI; ComponentError when two of them have one name, by which scores are kept."""
    scorers = {uri: make_scorer(uri) for uri in uris}
    of: dict[str, str] = {}
    for uri, scorer in scorers.items():
        other = of.setdefault(scorer.spec.name, uri)
        if other != uri:
            raise ComponentError(
                f"the scorers {other} and {uri} are both named {scorer.spec.name!r}, and scores are kept by name: give"
                " one another name (?name=… for those of BestTake, in its spec for your own)"
            )
    return scorers


def _matching(library: Library | None, instructions: Mapping[str, str]) -> dict[str, str]:
    """The instructions of tasks whose name matches no demonstrations, but whose instruction does."""
    if library is None:
        return {}
    return {
        task: text
        for task, text in instructions.items()
        if library.view(task).matched == "all" and library.view(task, text).matched != "all"
    }


def _sha256(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Work:
    """What takes are scored with; ``scorers`` by their URI.

    ``matching`` are the instructions that find demonstrations where names do not.
    """

    library: Library | None
    encoder: Encoder | None
    scorers: Mapping[str, Scorer]
    context: Context
    matching: Mapping[str, str]

    @classmethod
    def made(cls, library: Library | None, encoder: Encoder | None, scorers: Iterable[str], context: Context) -> Work:
        """With the scorers of these URIs."""
        return cls(library, encoder, make_scorers(scorers), context, _matching(library, context.instructions))

    @property
    def wanted(self) -> dict[str, str]:
        """The fingerprint of each scorer, by its name."""
        return {scorer.spec.name: self.fingerprint(scorer) for scorer in self.scorers.values()}

    @property
    def probability(self) -> frozenset[str]:
        """The scorers that say how likely a take succeeded."""
        return frozenset(scorer.spec.name for scorer in self.scorers.values() if scorer.spec.probability)

    def fingerprint(self, scorer: Scorer) -> str:
        """What a scorer's scores depend on, besides takes, library and encoder."""
        spec = scorer.spec
        if "instruction" not in spec.reads:
            return spec.fingerprint
        return _sha256((spec.fingerprint, dict(self.context.instructions)))

    def sources(self, store: Store) -> str:
        """What scores are made from: takes, demonstrations and encoder."""
        return _sha256((store.digest(), *self._made_with()))

    def start(self, rows: Start) -> str:
        """What the scores of the takes of one start are made from."""
        words = self.context.instructions.get(rows[0].key.task, "")
        return _sha256(([row.identity for row in rows], words, *self._made_with()))

    def view(self, task: str) -> View | None:
        """The demonstrations of a task."""
        return None if self.library is None else self.library.view(task, self.matching.get(task, ""))

    def barred(self, scorer: Scorer) -> str:
        """Why a scorer cannot score this run at all; "" where it can."""
        spec = scorer.spec
        if self.library is None and needs_demos(scorer):
            return f"scorer {spec.name}: it needs demonstrations; name them with `demos`"
        if spec.encoder and (self.encoder is None or self.encoder.spec.fingerprint != spec.encoder):
            return f"scorer {spec.name}: it was made with another encoder, or with one fitted to another library"
        return ""

    def _made_with(self) -> list[object]:
        library = None if self.library is None else self.library.fingerprint
        encoder = None if self.encoder is None else self.encoder.spec.fingerprint
        return [library, encoder, *([dict(self.matching)] if self.matching else [])]


@dataclass
class Made:
    """The scores of some takes, the scorers that were ``lost`` and why, and what each scorer took."""

    table: dict[TakeKey, TakeScore] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    length: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    takes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Made) -> None:
        """Add what another portion gave."""
        self.table.update(other.table)
        self.lost = {**other.lost, **self.lost}
        self.length |= other.length
        self.seconds = {name: self.seconds.get(name, 0.0) + more for name, more in other.seconds.items()}
        self.takes.update(other.takes)

    def whole(self) -> Made:
        """Without the scores of scorers that were lost on the way."""
        if not self.lost:
            return self
        table = {
            key: replace(
                one,
                scores={name: value for name, value in one.scores.items() if name.scorer not in self.lost},
                traces={name: trace for name, trace in one.traces.items() if name not in self.lost},
            )
            for key, one in self.table.items()
        }
        return replace(self, table=table)


def guard_of(run: Path, scorers: Mapping[str, Scorer]) -> Guard:
    """Who asks these scorers about takes of a run."""
    return Guard({scorer.spec.name: uri for uri, scorer in scorers.items()}, Journal(run))


@dataclass(frozen=True)
class InWorker:
    """Scores takes of a run in another process.

    ``scorers`` by their URI: those of this package are made there anew. ``patience``: the seconds that a portion may
    take because scorers may, beyond what a pool allows other work.
    """

    run: str
    library: str
    scorers: tuple[tuple[str, Elsewhere | None], ...]
    context: Context
    matching: Mapping[str, str]
    patience: float = 0.0
    trusted: frozenset[str | Path] = field(default_factory=registry.trusted)

    def __call__(self, portion: list[Start]) -> Made:
        """The scores of a portion."""
        registry.trust(*self.trusted)
        library, encoder, scorers, guard = _opened(self.library, self.scorers, self.run)
        work = Work(library, encoder, scorers, self.context, self.matching)
        return score_portion(Path(self.run), work, portion, guard)


@lru_cache(maxsize=1)
def _opened(
    path: str, named: tuple[tuple[str, Elsewhere | None], ...], run: str
) -> tuple[Library, Encoder, dict[str, Scorer], Guard]:
    library, scorers = Library.open(path), {uri: known or registry.scorer(uri) for uri, known in named}
    return library, library.encoder(), scorers, guard_of(Path(run), scorers)


def numberless(table: Mapping[TakeKey, TakeScore], scorers: Iterable[str]) -> dict[str, str]:
    """The scorers that gave not one take a number, and why they are lost."""
    empty = {}
    for name in scorers if table else ():
        values = (value for one in table.values() for score, value in one.scores.items() if score.scorer == name)
        if not any(map(math.isfinite, values)):
            empty[name] = f"scorer {name}: it gave none of {len(table)} takes a number"
    return empty


def score_portion(run: Path, work: Work, portion: Sequence[Start], guard: Guard) -> Made:
    """Score several starts; their frames are embedded together, and those of one task compared together."""
    guard.seconds.clear()
    guard.takes.clear()
    scorers = list(work.scorers.values())
    starts = [[load_take(run, row) for row in rows] for rows in portion]
    takes = [take for start in starts for take in start]
    embeds = sees_embeddings(scorers) and work.encoder is not None
    frames = {take.key: take.frames() for take in takes} if embeds or "frames" in reads_of(scorers) else {}
    embedded, began = {}, time.perf_counter()
    if embeds and work.encoder is not None:
        embedded = dict(zip(frames, embed(work.encoder, list(frames.values())), strict=True))
    embedding, began = time.perf_counter() - began, time.perf_counter()
    views: dict[int, tuple[View | None, list[tuple[list[Take], str]]]] = {}
    for rows, start in zip(portion, starts, strict=True):
        view = work.view(start[0].key.task)
        views.setdefault(id(view), (view, []))[1].append((start, work.start(rows)))
    scores = {}
    for view, own in views.values():
        footage = [
            [
                replace(
                    one, frames=frames.get(take.key), embeddings=embedded.get(take.key),
                    instruction=work.context.instructions.get(take.key.task, ""),
                    camera=work.context.cameras.get(take.key.task, ""),
                )
                for take, one in zip(start, windowed(start), strict=True)
            ]
            for start, _ in own
        ]  # fmt: skip
        ask = partial(guard.ask, names=[name for _, name in own])
        for (start, _), judged in zip(own, judge(scorers, footage, view, ask), strict=True):
            scores.update({take.key: _take_score(take, one) for take, one in zip(start, judged, strict=True)})
    comparing = time.perf_counter() - began - sum(guard.seconds.values())
    for scorer in scorers:
        shared = embedding * sees_embeddings([scorer]) + comparing * compares_frames(scorer)
        guard.seconds[scorer.spec.name] += shared
    length = guard.length | {scorer.spec.name for scorer in scorers if scorer.spec.length}
    table = {take.key: scores[take.key] for take in takes}
    return Made(table, dict(guard.lost), length, dict(guard.seconds), Counter(guard.takes))


def windowed(takes: Sequence[Take]) -> list[Footage]:
    """The takes that a selector chooses among, with their windows in the order of `WINDOWS`."""
    ends = [take.success_step if take.success_step is not None else take.steps for take in takes]
    footage = []
    for take, end in zip(takes, ends, strict=True):
        until = (end, take.steps, min(ends))
        windows = tuple(window_until(take.frame_steps, last) for last in until)
        footage.append(
            Footage(
                take.frame_steps, windows, until, actions=take.actions, states=take.states, policy=take.key.policy,
                task=take.key.task,
            )
        )  # fmt: skip
    return footage


def _take_score(take: Take, judged: Judged) -> TakeScore:
    values = {
        ScoreName(scorer, window): float(value)
        for scorer, score in judged.scores.items()
        for window, value in zip(WINDOWS, score.values, strict=True)
    }
    traces = {
        scorer: score.trace
        for scorer, score in judged.scores.items()
        if score.trace is not None and score.trace is not judged.best
    }
    return TakeScore(take.frame_steps, judged.best, judged.nearest, values, traces)
