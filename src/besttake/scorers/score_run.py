"""Score the takes of a run: `score_takes` scores all finished takes that have no scores yet.

Scores are stored in ``scores.safetensors`` beside the takes (`besttake.takes.scores`). They are computed again if
takes of the same start, the library, the encoder or the scorer have changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from besttake import registry
from besttake.core.score import window_until
from besttake.demos.library import Library, View
from besttake.encoders.base import Encoder
from besttake.errors import BestTakeError, ComponentError, RunError, one_line
from besttake.progress import Reporter, as_reporter
from besttake.scorers.apply import (
    ScoredFootage,
    apply_scorers,
    call_scorer,
    cut,
    embed,
    need_embeddings,
    needs_demos,
    reads_of,
)
from besttake.scorers.base import Footage, Score, Scorer
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import SCORERS, WINDOWS, ScoreName, Scores, TakeScore
from besttake.takes.store import Store
from besttake.takes.take import Take

_BATCH = 16
"""Starts whose frames are embedded together."""
_RTOL, _ATOL = 1e-3, 1e-6
"""Tolerance for rounding when the same score is computed on takes of different length."""


def all_scorers(named: Iterable[str], *, demos: bool = True) -> tuple[str, ...]:
    """The scorers that a diagnosis measures: `SCORERS` if there are ``demos``, and those that the plan ``named``."""
    return tuple(dict.fromkeys((*(SCORERS if demos else ()), *named)))


def make_scorers(uris: Iterable[str]) -> dict[str, Scorer]:
    """Make scorers, by URI; ComponentError if two have the same name, because scores are stored by name."""
    scorers = {uri: registry.scorer(uri) for uri in uris}
    owner: dict[str, str] = {}
    for uri, scorer in scorers.items():
        other = owner.setdefault(scorer.spec.name, uri)
        if other != uri:
            raise ComponentError(
                f"the scorers {other} and {uri} are both named {scorer.spec.name!r}, and scores are stored by name:"
                " rename one (?name=… for those of a plug-in, in its spec for your own)"
            )
    return scorers


@dataclass(frozen=True)
class Context:
    """The instruction and the score camera of each task, as far as they are known."""

    instructions: Mapping[str, str] = field(default_factory=dict)
    cameras: Mapping[str, str] = field(default_factory=dict)


def score_takes(
    store: Store,
    library: Library | None,
    encoder: Encoder | None,
    scorers: Sequence[Scorer],
    *,
    context: Context | None = None,
    reported: Collection[str] = (),
    progress: bool | Reporter = False,
) -> Scores:
    """Score every finished take of a run with ``scorers``, reusing the scores that the run already has.

    The fast scorers of this package run together, then each other scorer alone, and scores are stored after each of
    these steps: if a slow scorer is stopped with Ctrl-C, the scores of those before it are kept. A scorer that raises
    loses only its own scores; `Scores.lost` gives the reason in one line. Instructions in ``context`` match
    demonstrations that the names of tasks do not. ``reported``: names of scorers that a report shows, whose scores may
    not be replaced by those of another scorer of the same name. Without a ``library`` only scorers that need no
    demonstrations can score.
    """
    sources, reporter = _Sources(library, encoder, context or Context()), as_reporter(progress)
    rows = [row for row in store.rows() if row.status == "done"]
    starts = [_Start(takes, sources.hash(takes)) for takes in by_start(rows)]
    wanted = {scorer.spec.name: sources.fingerprint(scorer) for scorer in scorers}
    scores = _valid_scores(store, {row.key: start.source for start in starts for row in start.rows})
    for name, fingerprint in wanted.items():
        if name in reported and scores.scorers.get(name, fingerprint) != fingerprint:
            raise ComponentError(
                f"{store.path} was diagnosed with another scorer named {name!r}; rename this one, or diagnose again"
                " with it"
            )
    scores = scores.only(name for name, made_by in scores.scorers.items() if wanted.get(name, made_by) == made_by)
    lost = {s.spec.name: why for s in scorers if (why := sources.barred(s))}
    new: set[TakeKey] = set()
    able = [scorer for scorer in scorers if scorer.spec.name not in lost]
    for group in ([s for s in able if _is_builtin(s)], *([s] for s in able if not _is_builtin(s))):
        lacking = [s for s in group if not all(scores.has(row.key, s.spec.name) for row in rows)]
        missing = {row.key for row in rows for s in lacking if not scores.has(row.key, s.spec.name)}
        todo = [start for start in starts if any(row.key in missing for row in start.rows)]
        if not todo:
            continue
        panel = _Panel(store, sources, lacking)
        with reporter.stage("scores", sum(len(start.rows) for start in todo), "takes") as stage:
            new_scores = panel.score(todo, stage.advance)
        new |= new_scores.keys()
        scores = scores.joined(new_scores)
        lost |= panel.lost
        for name in (s.spec.name for s in lacking if s.spec.name not in lost):
            if unscored(scores, name) == len(scores):
                lost[name] = f"scorer {name}: it gave none of {len(scores)} takes a number"
        complete = [n for n in scores.scorers if n not in lost and all(scores.has(row.key, n) for row in rows)]
        scores.only(complete).save(store)
    scores = scores.only(name for name in wanted if name not in lost)
    scores.lost, scores.new = lost, sum(len(scores[key].steps) for key in new)
    return scores


def by_start(rows: Iterable[Row]) -> list[list[Row]]:
    """The takes that a selector chooses among: those of one policy, start and arm. ``rows`` are in canonical order."""
    groups = groupby(rows, key=lambda row: (row.key.policy, row.key.env, row.key.task, row.key.start, row.key.arm))
    return [list(group) for _, group in groups]


@dataclass(frozen=True)
class _Start:
    """The takes of one policy, start and arm, and a hash of what their scores are made from."""

    rows: list[Row]
    source: str


def _valid_scores(store: Store, sources: Mapping[TakeKey, str]) -> Scores:
    """The stored scores of takes that have not changed; empty if the file is damaged. All others are deleted."""
    try:
        stored = Scores.open(store.path)
    except RunError:
        store.mended.append("scores.safetensors was damaged; takes are scored anew")
        Scores.remove(store)
        return Scores({})
    if stored is None:
        return Scores({})
    table = {key: take for key, take in stored.items() if sources.get(key) == take.source}
    valid = Scores(table, stored.scorers, length=stored.length)
    if len(valid) < len(stored):
        valid.save(store)
    return valid


def _is_builtin(scorer: Scorer) -> bool:
    """Whether a scorer belongs to this package; these are plain numpy, hence fast."""
    return type(scorer).__module__.startswith("besttake.scorers.")


def unscored(scores: Scores, scorer: str) -> int:
    """The number of takes without a finite score by ``scorer``, for example because an embedding is not finite."""
    values = [[value for name, value in take.scores.items() if name.scorer == scorer] for take in scores.values()]
    return sum(not any(map(math.isfinite, numbers)) for numbers in values)


@dataclass(frozen=True)
class _Sources:
    """The inputs of scores besides the takes: library, encoder and context."""

    library: Library | None
    encoder: Encoder | None
    context: Context

    @cached_property
    def _matching(self) -> dict[str, str]:
        """The instructions of tasks whose name matches no demonstrations, but whose instruction does."""
        library = self.library
        if library is None:
            return {}
        return {
            task: text
            for task, text in self.context.instructions.items()
            if library.view(task).matched == "all" and library.view(task, text).matched != "all"
        }

    def view(self, task: str) -> View | None:
        """The demonstrations of a task; None without a library."""
        return None if self.library is None else self.library.view(task, self._matching.get(task, ""))

    def hash(self, rows: Sequence[Row]) -> str:
        """A hash of everything but the scorers on which the scores of one start's takes depend."""
        library = None if self.library is None else self.library.fingerprint
        encoder = None if self.encoder is None else self.encoder.spec.fingerprint
        return _sha256([row.identity for row in rows], library, encoder, self._matching.get(rows[0].key.task))

    def fingerprint(self, scorer: Scorer) -> str:
        """The fingerprint of a scorer and of the instructions if it reads them."""
        spec = scorer.spec
        if "instruction" not in spec.reads:
            return spec.fingerprint
        return _sha256(spec.fingerprint, dict(self.context.instructions))

    def barred(self, scorer: Scorer) -> str:
        """The reason why a scorer cannot score this run at all; empty if it can."""
        spec = scorer.spec
        if self.library is None and needs_demos(scorer):
            return f"scorer {spec.name}: it needs demonstrations; name them with `demos`"
        if spec.encoder and (self.encoder is None or self.encoder.spec.fingerprint != spec.encoder):
            return f"scorer {spec.name}: it was made with another encoder, or with one fitted to another library"
        return ""


def _sha256(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class _Panel:
    """Scorers that run on the same takes. ``lost`` gives the reason for each that failed."""

    def __init__(self, store: Store, sources: _Sources, scorers: Sequence[Scorer]) -> None:
        self.lost: dict[str, str] = {}
        self._store, self._sources, self._scorers = store, sources, scorers
        self._length = {scorer.spec.name for scorer in scorers if scorer.spec.length}
        self._watched = {*self._length, *(scorer.spec.name for scorer in scorers if _is_builtin(scorer))}

    def score(self, starts: Sequence[_Start], done: Callable[[int], None]) -> Scores:
        """The scores of all takes of ``starts``, without those of scorers that failed."""
        table: dict[TakeKey, TakeScore] = {}
        for first in range(0, len(starts), _BATCH):
            batch = starts[first : first + _BATCH]
            table |= self._score_batch(batch)
            done(sum(len(start.rows) for start in batch))
        working = [scorer for scorer in self._scorers if scorer.spec.name not in self.lost]
        names = {scorer.spec.name: self._sources.fingerprint(scorer) for scorer in working}
        table = {key: take.only(names) for key, take in table.items()} if names else {}
        return Scores(table, names, length=self._length & names.keys())

    def _score_batch(self, batch: Sequence[_Start]) -> dict[TakeKey, TakeScore]:
        """Score some starts. All frames are embedded together; those of one task are compared together."""
        starts = [[self._store.load(row) for row in start.rows] for start in batch]
        scorers = [scorer for scorer in self._scorers if scorer.spec.name not in self.lost]
        takes, embeds = [take for start in starts for take in start], need_embeddings(scorers)
        frames = {take.key: take.frames() for take in takes} if embeds or "frames" in reads_of(scorers) else {}
        embedded = {}
        if embeds and self._sources.encoder is not None:
            embedded = dict(zip(frames, embed(self._sources.encoder, list(frames.values())), strict=True))
        tasks: dict[str, list[tuple[list[Take], str]]] = {}
        for start, rows in zip(starts, batch, strict=True):
            tasks.setdefault(start[0].key.task, []).append((start, rows.source))
        context = self._sources.context
        table: dict[TakeKey, TakeScore] = {}
        for task, of_task in tasks.items():
            instruction, camera = context.instructions.get(task, ""), context.cameras.get(task, "")
            footage = [
                [
                    replace(
                        part, frames=frames.get(take.key), embeddings=embedded.get(take.key), instruction=instruction,
                        camera=camera,
                    )
                    for take, part in zip(start, windowed(start), strict=True)
                ]
                for start, _ in of_task
            ]  # fmt: skip
            scored = apply_scorers(scorers, footage, self._sources.view(task), self._call)
            for (start, source), parts in zip(of_task, scored, strict=True):
                table |= {take.key: _take_score(take, part, source) for take, part in zip(start, parts, strict=True)}
        return {take.key: table[take.key] for take in takes}

    def _call(self, scorer: Scorer, starts: Sequence[Sequence[Footage]], view: View | None) -> list[Score] | None:
        """The scores of all takes of ``starts``; None if the scorer fails, now or in an earlier batch."""
        name = scorer.spec.name
        if name in self.lost:
            return None
        try:
            _check_camera(scorer, starts)
            scores = call_scorer(scorer, starts, view)
            self._watch_length(scorer, starts, scores, view)
        except BestTakeError as error:
            reason = one_line(error)
            self.lost[name] = reason if name in reason else f"scorer {name}: {reason}"
            return None
        return scores

    def _watch_length(
        self, scorer: Scorer, starts: Sequence[Sequence[Footage]], scores: Sequence[Score], view: View | None
    ) -> None:
        """Check once whether scores change if takes are cut off at the end of their last window."""
        name, first = scorer.spec.name, 0
        for start in starts if name not in self._watched else ():
            if not all(take.windows[-1].all() for take in start):
                break
            first += len(start)
        else:
            return
        self._watched.add(name)
        whole = _last(scores[first : first + len(start)])
        short = _last(call_scorer(scorer, [[cut(take) for take in start]], view))
        if np.allclose(whole, short, rtol=_RTOL, atol=_ATOL, equal_nan=True):
            return
        # The scorer may never give the same take the same score.
        gaps = np.abs(_last(call_scorer(scorer, [start], view)) - whole)
        noise = 3 * float(np.max(gaps, initial=0.0, where=np.isfinite(gaps)))
        if not np.allclose(whole, short, rtol=_RTOL, atol=_ATOL + noise, equal_nan=True):
            self._length.add(name)


def _last(scores: Sequence[Score]) -> NDArray[np.float64]:
    """The score of each take on its last window."""
    return np.array([score.values[-1] for score in scores], np.float64)


def _check_camera(scorer: Scorer, starts: Sequence[Sequence[Footage]]) -> None:
    needed = scorer.spec.camera
    for camera in {take.camera for start in starts for take in start} if needed else ():
        if camera and camera != needed:
            raise ComponentError(
                f"scorer {scorer.spec.name}: it needs the camera {needed!r}, but takes have pictures of {camera!r}"
            )


def windowed(takes: Sequence[Take]) -> list[Footage]:
    """Turn the takes of one start into `Footage`, with the windows in the order of `WINDOWS`."""
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


def _take_score(take: Take, scored: ScoredFootage, source: str) -> TakeScore:
    values = {
        ScoreName(scorer, window): float(value)
        for scorer, score in scored.scores.items()
        for window, value in zip(WINDOWS, score.values, strict=True)
    }
    return TakeScore(take.frame_steps, scored.best, scored.nearest, values, source)
