"""The scores of a run's takes, made once and kept in ``scores.safetensors`` beside them (`besttake.measure.scores`).

They are made again when takes, library or encoder have changed; a scorer that is asked for later is added to them. A
scorer that fails loses its own scores alone (`besttake.scorers.guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple, replace
from itertools import groupby
from pathlib import Path

from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.errors import ComponentError, one_line
from besttake.files import read_sealed_json, sealed_json
from besttake.measure.scores import SCORERS, Scores
from besttake.scorers.guard import Elsewhere, longest
from besttake.scorers.journal import Journal
from besttake.scorers.portion import Context, InWorker, Made, Start, Work, guard_of, numberless, score_portion
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import LocalPool
from besttake.takes.store import Store

_PORTION = 16
_log = logging.getLogger(__name__)


def named_scorers(named: str | Iterable[str], *, demos: bool = True) -> tuple[str, ...]:
    """The scorers that a diagnosis measures: those of the paper, where there are ``demos``, and those ``named``."""
    given = (named,) if isinstance(named, str) else tuple(named)
    return tuple(dict.fromkeys((*(SCORERS if demos else ()), *given)))


def score_run(
    store: Store,
    library: Library | None,
    encoder: Encoder | None,
    scorers: Sequence[str] = SCORERS,
    *,
    context: Context | None = None,
    reported: Collection[str] = (),
    pool: LocalPool | Callable[[], LocalPool | None] | None = None,
    on_takes: Callable[[int], None] = lambda count: None,
) -> Scores:
    """Score every finished take of a run by ``scorers`` (URIs), or read the scores where they are there and still true.

    Instructions of the ``context`` find demonstrations that the names of tasks do not. ``reported``: scorers whose kept
    scores a report shows, so that they may not be replaced by those of another scorer of the same name. With a ``pool``
    (or what starts one, called only when there is work) its workers share the work, each with an encoder and scorers of
    its own, unless a scorer is not small. Without a ``library`` only scorers that need none can score. `Scores.lost`
    says which scorers failed, and why.
    """
    work = Work.made(library, encoder, scorers, context or Context())
    stored = _intact(store)
    if callable(pool) and (stored is None or any(stored.scorers.get(name) != own for name, own in work.wanted.items())):
        pool = pool()  # its processes start while the digest of all takes is made
    kept = Scores({}, work.sources(store))
    if stored is not None and stored.fingerprint == kept.fingerprint:
        kept = stored
    missing = [uri for uri, s in work.scorers.items() if kept.scorers.get(s.spec.name) != work.fingerprint(s)]
    for uri in missing:
        name = work.scorers[uri].spec.name
        if name in {*reported} & {*kept.scorers}:
            raise ComponentError(
                f"{uri}: {store.path} was diagnosed with another scorer named {name!r}; rename this one, "
                "or diagnose again with it"
            )
    lost: dict[str, str] = {}
    if missing:
        own = replace(work, scorers={uri: work.scorers[uri] for uri in missing})
        rows = [row for row in store.rows() if row.status == "done"]
        made = _scored(store, own, pool() if callable(pool) else pool, on_takes, rows)
        left = [name for name in own.wanted if name not in made.lost]
        made = replace(made, lost={**made.lost, **numberless(made.table, left)}).whole()
        lost = made.lost
        if made.table:
            kept = kept.joined(made.table, {name: made_by for name, made_by in own.wanted.items() if name not in lost})
        kept = kept.with_length({*kept.length, *made.length} - {*lost})
        kept = kept.with_probability({*kept.probability, *own.probability} - {*lost})
        if kept.scorers:
            kept.save(store)
            _keep_costs(store, made)
        if not lost:
            Journal(store.path).clear()
    return kept.only(name for name in work.wanted if name not in lost).with_lost(lost)


class Scoring:
    """Scores the takes of a run as they come in, round by round; scores that are there and still true are read.

    The arguments are those of `score_run`. Takes of a round are scored together in canonical order, so that a run that
    was killed gives each take the same score again.
    """

    def __init__(
        self,
        store: Store,
        library: Library | None,
        encoder: Encoder | None,
        scorers: Sequence[str] = SCORERS,
        context: Context | None = None,
    ) -> None:
        self._store, self._work = store, Work.made(library, encoder, scorers, context or Context())
        stored, wanted = _intact(store), self._work.wanted
        current = (
            stored is not None
            and stored.fingerprint == self._current()
            and all(stored.scorers.get(name) == made_by for name, made_by in wanted.items())
        )
        own = stored.only(wanted) if stored is not None and current else Scores({}, "")
        self._table, self._length = dict(own), set(own.length)
        self._lost: dict[str, str] = {}
        self._costs = Made()

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
        if rows:
            left = {uri: s for uri, s in self._work.scorers.items() if s.spec.name not in self._lost}
            made = _scored(self._store, replace(self._work, scorers=left), pool, on_takes, rows)
            self._lost |= made.lost
            self._length |= made.length
            self._table.update(made.table)
            self._costs.add(replace(made, table={}))
        return self._so_far("")

    def finish(self) -> Scores:
        """Score what is left of the run, keep all scores beside it, and return them."""
        self.add([row.key for row in self._store.rows()])
        scores = self._so_far(self._current())
        if scores.scorers:
            self._with_others(scores).save(self._store)
            _keep_costs(self._store, self._costs)
        if not self._lost:
            Journal(self._store.path).clear()
        return scores

    def _with_others(self, scores: Scores) -> Scores:
        """``scores`` and those that `besttake.score` has added to the same takes since."""
        kept = _intact(self._store)
        if kept is None or kept.fingerprint != scores.fingerprint:
            return scores
        others = kept.only(name for name in kept.scorers if name not in self._work.wanted)
        if not others.scorers:
            return scores
        return (
            scores.joined(dict(others), others.scorers)
            .with_length(scores.length | others.length)
            .with_probability(scores.probability | others.probability)
        )

    def _so_far(self, fingerprint: str) -> Scores:
        left = [name for name in self._work.wanted if name not in self._lost]
        lost = {**self._lost, **numberless(self._table, left)}
        wanted = [name for name in left if name not in lost]
        every = Scores({key: self._table[key] for key in sorted(self._table)}, fingerprint, self._work.wanted)
        every = every.with_length(self._length).with_probability(self._work.probability)
        return every.only(wanted).with_lost(lost)

    def _current(self) -> str:
        return self._work.sources(self._store)


def _intact(store: Store) -> Scores | None:
    """The scores that the run keeps, as far as they are whole; the store notes what is damaged."""
    stored, damaged = Scores.intact(store.path)
    if damaged:
        store.mended.append(f"scores.safetensors was damaged ({', '.join(damaged)}); what it lacks is scored anew")
    return stored


COSTS = "scoring.json"


def costs_of(run: Path) -> dict[str, float]:
    """The seconds per take that each scorer took when its scores were made, as far as the run has kept them."""
    try:
        return {str(name): float(value) for name, value in read_sealed_json(run / COSTS).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        _log.warning("%s is damaged (%s); what scoring cost is not known", run / COSTS, one_line(error, 100))
        return {}


def _keep_costs(store: Store, made: Made) -> None:
    """Keep the seconds per take of each scorer with the run."""
    each = {name: made.seconds[name] / made.takes[name] for name in made.seconds if made.takes[name]}
    store.write_bytes(COSTS, sealed_json({**costs_of(store.path), **each}))


def _scored(
    store: Store, work: Work, pool: LocalPool | None, on_takes: Callable[[int], None], rows: Sequence[Row]
) -> Made:
    """The scores of finished takes (``rows``), some starts at a time, here or by the workers of ``pool``."""
    starts = [list(group) for _, group in groupby(rows, key=lambda row: astuple(row.key)[:5])]
    portions = [starts[first : first + _PORTION] for first in range(0, len(starts), _PORTION)]

    def done(portion: list[Start]) -> None:
        on_takes(sum(map(len, portion)))

    made = Made(lost={s.spec.name: why for s in work.scorers.values() if (why := work.barred(s))})
    work = replace(work, scorers={uri: s for uri, s in work.scorers.items() if s.spec.name not in made.lost})
    shared = pool if all(s.spec.small for s in work.scorers.values()) and work.library is not None else None
    if not work.scorers or not portions:
        return made
    if shared is not None and work.library is not None:
        most = max(sum(map(len, portion)) for portion in portions)
        task = InWorker(
            str(store.path), str(work.library.path),
            tuple((uri, s if isinstance(s, Elsewhere) else None) for uri, s in work.scorers.items()),
            work.context, work.matching,
            patience=sum(longest(scorer, most) for scorer in work.scorers.values()),
        )  # fmt: skip
        for part in shared.map(task, portions, done):
            made.add(part)
    else:
        with guard_of(store.path, work.scorers) as guard:
            for portion in portions:
                made.add(score_portion(store.path, work, portion, guard))
                done(portion)
    return made.whole()
