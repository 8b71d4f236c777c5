"""A scorer that fails loses its own scores, and nobody else's.

Scorers of this package that are short pieces of numpy are asked in this process. All others (a user's own, a plug-in's,
a reward model, a server) are asked in a child process, start by start, with a deadline: one that raises, hangs, dies or
gives the wrong number of scores is not asked again, and `Guard.lost` says why in one line. What was scored until then
is kept in a `Journal`. Making a scorer can hang or crash as well, so `make_scorer` has foreign code do it in a child.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from besttake import registry
from besttake.demos.library import Library
from besttake.demos.view import Matched, View
from besttake.errors import BestTakeError, ComponentError, one_line
from besttake.scorers.base import Footage, Score, Scorer, ScorerSpec
from besttake.scorers.journal import Journal
from besttake.scorers.judge import asked, cut, shown
from besttake.takes.process import READY, WorkerProcess

_OURS = "besttake.scorers."
_OUTSIDE = ("besttake.scorers.lerobot_reward", "besttake.scorers.judge_server")
"""Modules of this package whose scorers run foreign models or wait for servers."""
_STARTING, _MAKING = 120.0, 600.0
_SLICE = 1.0
_RTOL, _ATOL = 1e-3, 1e-6
"""How far the same score may move with the length of the take, by rounding."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Elsewhere:
    """Stands for a scorer that only child processes make: all that is known of it here is its spec."""

    spec: ScorerSpec

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """ComponentError: `Guard.ask` asks it."""
        raise ComponentError(f"scorer {self.spec.name}: it can be asked in a process of its own alone")


def make_scorer(uri: str) -> Scorer:
    """The scorer ``uri``; one that is not of this package as `Elsewhere`, made in a child that then ends.

    ComponentError where it cannot be made: it raises, takes the process down, or is not there in time.
    """
    registry.check_scheme("scorers", uri)
    if registry.is_ours("scorers", uri) or registry.Uri.parse(uri).rest.startswith("__main__:"):
        return registry.scorer(uri)  # what a script or a notebook defines is nowhere else
    registry.hand_over(uri)
    process, who = WorkerProcess(), f"scorer {uri}"
    try:
        values = _answer(process, partial(_describe, uri, registry.trusted()), who, _STARTING, _MAKING)
    finally:
        process.end()
    return Elsewhere(ScorerSpec(**values))


def _describe(uri: str, trusted: frozenset[Any]) -> dict[str, Any]:
    """In the child: the fields of the scorer's spec, as plain values."""
    registry.trust(*trusted)
    with _ending_alone(f"scorer {uri}"):
        spec = _scorer(uri).spec
        return {one.name: getattr(spec, one.name) for one in fields(ScorerSpec)}


def inside(scorer: Scorer) -> bool:
    """Whether a scorer is one of ours that can neither hang nor take this process down."""
    module = type(scorer).__module__
    return module.startswith(_OURS) and module not in _OUTSIDE and not isinstance(scorer, Elsewhere)


def longest(scorer: Scorer, takes: int) -> float:
    """The seconds after which a scorer in a child has answered for so many takes or was given up; 0 for ours."""
    return 0.0 if inside(scorer) else _STARTING + scorer.spec.loading + 2 * scorer.spec.seconds * takes


class Guard:
    """Asks scorers, which were made from ``uris`` (by name), and keeps what children give in ``journal``.

    ``seconds`` is what each scorer has taken for so many ``takes``. ``length`` are those that say, or were seen, to
    depend on what follows a window.
    """

    def __init__(self, uris: dict[str, str], journal: Journal | None = None) -> None:
        self.lost: dict[str, str] = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.takes: Counter[str] = Counter()
        self.length: set[str] = set()
        self._uris, self._journal = uris, journal
        self._children: dict[str, _Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.end()
        self._children.clear()

    def ask(
        self, scorer: Scorer, starts: Sequence[Sequence[Footage]], view: View | None, names: Sequence[str] = ()
    ) -> list[Score] | None:
        """The scores of all takes of ``starts``, whose ``names`` the journal keeps; None where the scorer is lost."""
        name = scorer.spec.name
        if name in self.lost:
            return None
        began = time.perf_counter()
        try:
            _check_camera(scorer, starts)
            if inside(scorer):
                return asked(scorer, starts, view)
            return [score for i, start in enumerate(starts) for score in self._start(scorer, start, view, names[i:])]
        except BestTakeError as error:
            self.lost[name] = _named(name, one_line(error))
            self._give_up(name)
            return None
        finally:
            self.seconds[name] += time.perf_counter() - began
            self.takes[name] += sum(map(len, starts))

    def _start(
        self, scorer: Scorer, start: Sequence[Footage], view: View | None, names: Sequence[str]
    ) -> Sequence[Score]:
        """The scores of one start, from the journal if it has them."""
        key = f"{scorer.spec.fingerprint} {names[0]}" if names else ""
        known = self._journal.get(scorer.spec.name, key) if self._journal is not None and key else None
        if self._journal is not None and self._journal.get(scorer.spec.name, _length(scorer.spec)) is not None:
            self.length.add(scorer.spec.name)
        if known is not None and len(known) == len(start):
            return known
        child = self._children.get(scorer.spec.name)
        if child is None:
            child = self._children[scorer.spec.name] = _Child(scorer, self._uris[scorer.spec.name])
        scores = child.ask(start, view)
        self._watch_length(child, start, scores, view)
        if self._journal is not None and key:
            self._journal.put(scorer.spec.name, key, scores)
        return scores

    def _watch_length(
        self, child: _Child, start: Sequence[Footage], scores: Sequence[Score], view: View | None
    ) -> None:
        """Once, where takes go on after their last window: do scores change when what follows it is cut away?"""
        if child.watched or all(take.windows[-1].all() for take in start):
            return
        child.watched = True
        whole, short = _last(scores), _last(child.ask([cut(take) for take in start], view))
        if np.allclose(whole, short, rtol=_RTOL, atol=_ATOL, equal_nan=True):
            return
        again = _last(child.ask(start, view))
        if not np.allclose(whole, again, rtol=_RTOL, atol=_ATOL, equal_nan=True):
            _log.warning("the scorer %s gives the same take another score each time it is asked", child.spec.name)
        gaps = np.abs(again - whole)
        noise = 3 * float(np.max(gaps, initial=0.0, where=np.isfinite(gaps)))
        if not np.allclose(whole, short, rtol=_RTOL, atol=_ATOL + noise, equal_nan=True):
            self.length.add(child.spec.name)
            if self._journal is not None:  # a run that goes on may find all scores here, and watch nothing
                self._journal.put(child.spec.name, _length(child.spec), [])

    def _give_up(self, name: str) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            child.end()


def _named(name: str, reason: str) -> str:
    """Why a scorer was lost, with its name: errors that it raised as ours need not have it."""
    return reason if name in reason else f"scorer {name}: {reason}"


def _last(scores: Sequence[Score]) -> NDArray[np.float64]:
    """The score of each take on its last window."""
    return np.array([score.values[-1] for score in scores], np.float64)


def _length(spec: ScorerSpec) -> str:
    """Where a journal keeps that a scorer depends on what follows a window."""
    return f"{spec.fingerprint} length"


def _check_camera(scorer: Scorer, starts: Sequence[Sequence[Footage]]) -> None:
    wanted = scorer.spec.camera
    for given in {take.camera for start in starts for take in start} if wanted else ():
        if given and given != wanted:
            raise ComponentError(
                f"scorer {scorer.spec.name}: it needs the camera {wanted!r}, and takes keep the pictures of {given!r}"
            )


class _Child:
    """A process of its own for one scorer."""

    def __init__(self, scorer: Scorer, uri: str) -> None:
        self.spec, self.watched = scorer.spec, scorer.spec.length
        self._uri, self._first = uri, True
        self._scorer = scorer
        self._process = WorkerProcess()

    def ask(self, start: Sequence[Footage], view: View | None) -> list[Score]:
        """The scores of the takes of a start; ComponentError when there are none in time."""
        demos = None if view is None else (str(view.library.path), tuple(view.demos.tolist()), view.matched)
        whole = _InChild(self._uri, registry.trusted(), tuple(shown(self._scorer, start)), demos)
        limit = self.spec.seconds * len(start) + (self.spec.loading if self._first else 0.0)
        starting, self._first = _STARTING if self._first else None, False
        scores = _answer(self._process, partial(_call, whole), f"scorer {self.spec.name}", starting, limit)
        return [Score(values, trace) for values, trace in scores]

    def end(self) -> None:
        """End the process."""
        self._process.end()


def _answer(process: WorkerProcess, work: Callable[[], Any], who: str, starting: float | None, limit: float) -> Any:
    """What ``work`` gives in the child within ``limit`` seconds; a child that is new may take ``starting`` more."""
    if starting is not None and _hear(process, who, starting) != READY:
        raise ComponentError(f"{who}: its process could not be started")
    process.send(work)
    answer = _hear(process, who, limit)
    if isinstance(answer, BestTakeError):
        raise answer
    if isinstance(answer, Exception):
        raise ComponentError(f"{who}: {one_line(answer)}")
    return answer[0]


def _hear(process: WorkerProcess, who: str, limit: float) -> Any:
    """The next message. A machine that slept costs no scorer: no more than a second counts per look."""
    waited = 0.0
    try:
        while not (heard := process.pipe.poll(min(_SLICE, max(limit - waited, 0.0)))) and waited + _SLICE < limit:
            waited += _SLICE
        answer = process.pipe.recv() if heard else None
    except (EOFError, OSError) as error:
        raise ComponentError(f"{who}: its process died (out of memory, or a fault in a library it uses)") from error
    except Exception as error:  # what it sent cannot be made again here
        raise ComponentError(f"{who}: its answer cannot be read ({one_line(error)})") from error
    if not heard:
        raise ComponentError(f"{who}: it gave no answer within {limit:g} s")
    return answer


@contextmanager
def _ending_alone(who: str) -> Iterator[None]:
    """A scorer that leaves the program ends itself, not its process: so the line can say why."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        raise ComponentError(f"{who}: {one_line(error)}") from None


class _InChild:
    """One call, as it travels to the child."""

    def __init__(
        self,
        uri: str,
        trusted: frozenset[Any],
        takes: tuple[Footage, ...],
        demos: tuple[str, tuple[int, ...], Matched] | None,
    ) -> None:
        self.uri, self.trusted, self.takes, self.demos = uri, trusted, takes, demos


_Plain = tuple[NDArray[np.float64], NDArray[np.float32] | None]


def _call(call: _InChild) -> list[_Plain]:
    """Score in the child; plain arrays travel back, whatever the scorer made them of."""
    registry.trust(*call.trusted)
    view = None if call.demos is None else _view(*call.demos)
    scorer = _scorer(call.uri)
    with _ending_alone(f"scorer {scorer.spec.name}"):
        scores = asked(scorer, [call.takes], view)
    return [
        (np.asarray(s.values, np.float64), None if s.trace is None else np.asarray(s.trace, np.float32)) for s in scores
    ]


@lru_cache(maxsize=1)
def _scorer(uri: str) -> Scorer:
    os.dup2(2, 1)  # what a scorer prints must not get into the JSON that the parent prints
    return registry.scorer(uri)


@lru_cache(maxsize=1)
def _library(path: str) -> Library:
    return Library.open(path)


@lru_cache(maxsize=8)
def _view(path: str, demos: tuple[int, ...], matched: Matched) -> View:
    return View(_library(path), np.array(demos, np.int64), matched)
