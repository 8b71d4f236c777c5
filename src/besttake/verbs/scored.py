"""How a diagnosis scores its takes: all at the end, or for a run until decided round by round."""

from __future__ import annotations

import logging
from collections.abc import Collection

from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.encoders.cache import CachedEncoder
from besttake.encoders.skip import SkippingEncoder, SkipReport
from besttake.measure.scores import SCORERS, Scores
from besttake.progress import Reporter
from besttake.scorers.portion import Context
from besttake.scorers.scoring import Scoring, named_scorers, score_run
from besttake.takes.key import TakeKey
from besttake.takes.pool import LocalPool, Workers
from besttake.takes.store import Store
from besttake.verbs.session import Session
from besttake.verbs.setup import (
    Setup,
    context_of,
    encoder_without_demos,
    length_note,
)

_log = logging.getLogger(__name__)


class TakeScores:
    """Scores takes: all at the end, or for a run until decided round by round."""

    def __init__(self, setup: Setup, store: Store, workers: Workers, session: Session) -> None:
        self.setup, self.store, self.workers, self.session = setup, store, workers, session
        plan, encoder = setup.plan, setup.encoder
        if encoder is None:  # there are no demonstrations: scorers that need none may still see embeddings
            encoder = encoder_without_demos(plan.encoder)
        self.encoder: Encoder = encoder
        self.skipping = SkippingEncoder(encoder, plan.skip_still) if plan.skip_still else None
        self.scoring: Scoring | None = None

    def add(self, keys: Collection[TakeKey]) -> Scores:
        """Score the takes of ``keys``; all scores so far."""
        if self.scoring is None:
            self.scoring = Scoring(*self._sources(), self._context())
        return self.scoring.add(keys, pool=self._pool())

    def finish(self) -> Scores | None:
        """The scores of all takes, None where there are none; those that the run has already are read."""
        count = sum(row.status == "done" for row in self.store.rows())
        with self.session.reporter.stage("scores", count, "takes") as stage:
            if self.scoring is not None:
                scores = self.scoring.finish()
            else:
                scores = score_run(*self._sources(), on_takes=stage.advance, pool=self._pool(), context=self._context())
        self._say_what_was_lost(scores)
        made, encoder = bool(stage.done) or self.scoring is not None, self.encoder
        if self.skipping is not None and made:
            self.session.notes.append(_skipped_note(self.skipping.report()))
        if isinstance(encoder, CachedEncoder):
            _log.info("embeddings: %d encoded, %d from the cache", encoder.encoded, encoder.reused)
        self.session.encoded = encoder.encoded if isinstance(encoder, CachedEncoder) else scores.frames if made else 0
        return scores if scores.scorers else None

    def _say_what_was_lost(self, scores: Scores) -> None:
        """One line per scorer that gave no scores."""
        if self.setup.library is None and not scores.scorers:
            line = (
                "no demonstrations were named: nothing is scored, so selection cannot be judged; name some (`demos`),"
                " or a scorer that needs none (`scorer` consensus)"
            )
            self.session.reporter.note(line)
            self.session.notes.append(line)
            scores.lost = {name: why for name, why in scores.lost.items() if name not in SCORERS}
        declared = {spec.name for spec in self.setup.scorers if spec.length}
        self.session.notes += [length_note(name) for name in sorted(scores.length - declared)]
        self.session.lost = bool(scores.lost)
        for why in scores.lost.values():
            self.session.reporter.note(why)
            self.session.notes.append(why)

    def _sources(self) -> tuple[Store, Library | None, Encoder, tuple[str, ...]]:
        library = self.setup.library
        scorers = named_scorers(self.setup.plan.scorer, demos=library is not None)
        return self.store, library, self.skipping or self.encoder, scorers

    def _pool(self) -> LocalPool | None:
        return self.workers.running if self.skipping is None and self.setup.cheap else None

    def _context(self) -> Context:
        return context_of(self.setup.envs.values())


def say_what_was_mended(store: Store, reporter: Reporter) -> None:
    """Say which parts of a run were damaged and are mended."""
    while store.mended:
        reporter.note(store.mended.pop(0))


def _skipped_note(report: SkipReport) -> str:
    """What skipping still frames saved, and what it cost."""
    return (
        f"{report.skipped} of {report.frames} frames took the embedding of an earlier one; on {report.audited} of them"
        f" that were encoded all the same, the cosine was off by {report.mean_error:.4f} on average, at most"
        f" {report.worst_error:.4f}"
    )
