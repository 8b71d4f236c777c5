"""The scores of a run's takes, made once and kept in ``scores.safetensors`` beside them (`besttake.measure.scores`).

They are made again when takes, library or encoder have changed; a scorer that is asked for later is added to them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from besttake import registry
from besttake.core.score import window_until
from besttake.demos.library import Library
from besttake.demos.view import View
from besttake.encoders.base import Encoder
from besttake.errors import ComponentError
from besttake.measure.scores import SCORERS, WINDOWS, ScoreName, Scores, TakeScore
from besttake.scorers.base import Footage, Scorer
from besttake.scorers.judge import Judged, embed, judge, reads_of, sees_embeddings
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import LocalPool
from besttake.takes.store import Store, load_take
from besttake.takes.take import Take

_PORTION = 16
Start = list[Row]
"""The takes that a selector chooses among: one policy, start and arm."""


def named_scorers(picks: str) -> tuple[str, ...]:
    """The scorers that a diagnosis measures: those of the paper, always, and the one that ``picks``."""
    return tuple(dict.fromkeys((*SCORERS, picks)))


def score_run(
    store: Store,
    library: Library,
    encoder: Encoder,
    scorers: Sequence[str] = SCORERS,
    *,
    instructions: Mapping[str, str] | None = None,
    reported: Collection[str] = (),
    pool: LocalPool | None = None,
    on_takes: Callable[[int], None] = lambda count: None,
) -> Scores:
    """Score every finished take of a run by ``scorers`` (URIs), or read the scores where they are there and still true.

    ``instructions`` of the tasks find demonstrations that their names do not. ``reported``: scorers whose kept scores
    a report shows, so that they may not be replaced by those of another scorer of the same name. With a ``pool`` its
    workers share the work, each with an encoder and scorers of its own, unless a scorer is not small.
    """
    words = instructions or {}
    matching = _matching(library, words)
    made = {uri: registry.scorer(uri) for uri in scorers}
    wanted = {scorer.spec.name: _fingerprint(scorer, words) for scorer in made.values()}
    kept = Scores({}, _sources(store, library, encoder, matching))
    stored = _intact(store)
    if stored is not None and stored.fingerprint == kept.fingerprint:
        kept = stored
    missing = {uri: s for uri, s in made.items() if kept.scorers.get(s.spec.name) != wanted[s.spec.name]}
    for uri, scorer in missing.items():
        if scorer.spec.name in {*reported} & {*kept.scorers}:
            raise ComponentError(
                f"{uri}: {store.path} was diagnosed with another scorer named {scorer.spec.name!r}; rename this one, "
                "or diagnose again with it"
            )
    if missing:
        work = _Work(library, encoder, tuple(missing.values()), words, matching)
        shared = pool if all(scorer.spec.small for scorer in missing.values()) else None
        rows = [row for row in store.rows() if row.status == "done"]
        table = _scored(store, work, tuple(missing), shared, on_takes, rows)
        kept = kept.joined(table, {s.spec.name: wanted[s.spec.name] for s in missing.values()})
        kept.save(store)
    return kept.only(wanted)


class Scoring:
    """Scores the takes of a run as they come in, round by round; scores that are there and still true are read.

    The arguments are those of `score_run`. Takes of a round are scored together in canonical order, so that a run that
    was killed gives each take the same score again.
    """

    def __init__(
        self,
        store: Store,
        library: Library,
        encoder: Encoder,
        scorers: Sequence[str] = SCORERS,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self._store, self._uris, words = store, tuple(scorers), instructions or {}
        made = {uri: registry.scorer(uri) for uri in scorers}
        self._work = _Work(library, encoder, tuple(made.values()), words, _matching(library, words))
        self._wanted = {scorer.spec.name: _fingerprint(scorer, words) for scorer in made.values()}
        stored = _intact(store)
        current = stored is not None and stored.fingerprint == self._current() and stored.scorers == self._wanted
        self._table = dict(stored) if stored is not None and current else {}

    def add(
        self,
        keys: Collection[TakeKey],
        *,
        pool: LocalPool | None = None,
        on_takes: Callable[[int], None] = lambda count: None,
    ) -> Scores:
        """Score the finished takes of ``keys``; returns all scores so far."""
        wanted = {*keys} - self._table.keys()
        rows = [row for row in self._store.rows() if row.status == "done" and row.key in wanted]
        shared = pool if all(scorer.spec.small for scorer in self._work.scorers) else None
        if rows:
            self._table.update(_scored(self._store, self._work, self._uris, shared, on_takes, rows))
        return Scores(self._table, "", self._wanted)

    def finish(self) -> Scores:
        """Score what is left of the run, keep all scores beside it, and return them."""
        self.add([row.key for row in self._store.rows()])
        scores = Scores({key: self._table[key] for key in sorted(self._table)}, self._current(), self._wanted)
        scores.save(self._store)
        return scores

    def _current(self) -> str:
        return _sources(self._store, self._work.library, self._work.encoder, self._work.matching)


def _fingerprint(scorer: Scorer, instructions: Mapping[str, str]) -> str:
    """What a scorer's scores depend on, besides takes, library and encoder."""
    spec = scorer.spec
    return spec.fingerprint if "instruction" not in spec.reads else _sha256((spec.fingerprint, dict(instructions)))


def _intact(store: Store) -> Scores | None:
    """The scores that the run keeps, as far as they are whole; the store notes what is damaged."""
    stored, damaged = Scores.intact(store.path)
    if damaged:
        store.mended.append(f"scores.safetensors was damaged ({', '.join(damaged)}); what it lacks is scored anew")
    return stored


def _matching(library: Library, instructions: Mapping[str, str]) -> dict[str, str]:
    """The instructions of tasks whose name matches no demonstrations, but whose instruction does."""
    return {
        task: text
        for task, text in instructions.items()
        if library.view(task).matched == "all" and library.view(task, text).matched != "all"
    }


def _sources(store: Store, library: Library, encoder: Encoder, matching: Mapping[str, str]) -> str:
    """What scores are made from: takes, demonstrations and encoder."""
    parts = (store.digest(), library.fingerprint, encoder.spec.fingerprint, *([dict(matching)] if matching else []))
    return _sha256(parts)


def _sha256(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class _Work:
    """What takes are scored with. ``matching`` are the instructions that find demonstrations where names do not."""

    library: Library
    encoder: Encoder
    scorers: tuple[Scorer, ...]
    instructions: Mapping[str, str]
    matching: Mapping[str, str]


def _scored(
    store: Store,
    work: _Work,
    uris: tuple[str, ...],
    pool: LocalPool | None,
    on_takes: Callable[[int], None],
    rows: Sequence[Row],
) -> dict[TakeKey, TakeScore]:
    """The scores of finished takes (``rows``), some starts at a time, here or by the workers of ``pool``."""
    starts = [list(group) for _, group in groupby(rows, key=lambda row: astuple(row.key)[:5])]
    portions = [starts[first : first + _PORTION] for first in range(0, len(starts), _PORTION)]

    def done(portion: list[Start]) -> None:
        on_takes(sum(map(len, portion)))

    table: dict[TakeKey, TakeScore] = {}
    if pool is not None:
        task = _InWorker(str(store.path), str(work.library.path), uris, work.instructions, work.matching)
        for scores in pool.map(task, portions, done):
            table.update(scores)
    else:
        for portion in portions:
            table.update(_score_portion(store.path, work, portion))
            done(portion)
    return table


@dataclass(frozen=True)
class _InWorker:
    """Scores takes of a run in another process."""

    run: str
    library: str
    scorers: tuple[str, ...]
    instructions: Mapping[str, str]
    matching: Mapping[str, str]
    trusted: frozenset[str | Path] = field(default_factory=registry.trusted)

    def __call__(self, portion: list[Start]) -> dict[TakeKey, TakeScore]:
        registry.trust(*self.trusted)
        library, encoder, scorers = _opened(self.library, self.scorers)
        work = _Work(library, encoder, scorers, self.instructions, self.matching)
        return _score_portion(Path(self.run), work, portion)


@lru_cache(maxsize=1)
def _opened(path: str, scorers: tuple[str, ...]) -> tuple[Library, Encoder, tuple[Scorer, ...]]:
    library = Library.open(path)
    return library, library.encoder(), tuple(registry.scorer(uri) for uri in scorers)


def _score_portion(run: Path, work: _Work, portion: Sequence[Start]) -> dict[TakeKey, TakeScore]:
    """Score several starts; their frames are embedded together, and those of one task compared together."""
    starts = [[load_take(run, row) for row in rows] for rows in portion]
    takes = [take for start in starts for take in start]
    embeds = sees_embeddings(work.scorers)
    frames = {take.key: take.frames() for take in takes} if embeds or "frames" in reads_of(work.scorers) else {}
    embedded = dict(zip(frames, embed(work.encoder, list(frames.values())), strict=True)) if embeds else {}
    views: dict[int, tuple[View, list[list[Take]]]] = {}
    for start in starts:
        task = start[0].key.task
        view = work.library.view(task, work.matching.get(task, ""))
        views.setdefault(id(view), (view, []))[1].append(start)
    scores = {}
    for view, own in views.values():
        footage = [
            [
                replace(
                    one, frames=frames.get(take.key), embeddings=embedded.get(take.key),
                    instruction=work.instructions.get(take.key.task, ""),
                )
                for take, one in zip(start, windowed(start), strict=True)
            ]
            for start in own
        ]  # fmt: skip
        for start, judged in zip(own, judge(work.scorers, footage, view), strict=True):
            scores.update({take.key: _take_score(take, one) for take, one in zip(start, judged, strict=True)})
    return {take.key: scores[take.key] for take in takes}


def windowed(takes: Sequence[Take]) -> list[Footage]:
    """The takes that a selector chooses among, with their windows in the order of `WINDOWS`."""
    ends = [take.success_step if take.success_step is not None else take.steps for take in takes]
    footage = []
    for take, end in zip(takes, ends, strict=True):
        until = (end, take.steps, min(ends))
        windows = tuple(window_until(take.frame_steps, last) for last in until)
        footage.append(Footage(take.frame_steps, windows, until, actions=take.actions, states=take.states))
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
