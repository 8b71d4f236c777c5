"""How a diagnosis scores its takes: all at the end, or for a run until decided round by round."""

from __future__ import annotations

import logging

from besttake.encoders.base import Encoder
from besttake.encoders.cache import CachedEncoder
from besttake.measure.scores import SCORERS, Scores
from besttake.progress import Reporter
from besttake.scorers.scoring import score_takes
from besttake.takes.store import Store
from besttake.verbs.diagnose.session import Session
from besttake.verbs.diagnose.setup import (
    Setup,
    context_of,
    encoder_without_demos,
    length_note,
)

_log = logging.getLogger(__name__)


class TakeScores:
    """Scores the takes of a diagnosis: all at the end, or for a run until decided round by round."""

    def __init__(self, setup: Setup, store: Store, session: Session) -> None:
        self.setup, self.store, self.session = setup, store, session
        plan, encoder = setup.plan, setup.encoder
        if encoder is None:  # there are no demonstrations: scorers that need none may still see embeddings
            encoder = encoder_without_demos(plan.encoder)
        self.encoder: Encoder = encoder
        self._new = 0

    def so_far(self, progress: bool | Reporter = False) -> Scores:
        """The scores of all takes that are there; those that the run has already are read."""
        scores = score_takes(
            self.store, self.setup.library, self.encoder, self.setup.panel,
            context=context_of(self.setup.envs.values()), progress=progress,
        )  # fmt: skip
        self._new += scores.new
        return scores

    def finish(self) -> Scores | None:
        """The scores of all takes, None where there are none, with what there is to say about them."""
        scores, encoder = self.so_far(self.session.reporter), self.encoder
        self._say_what_was_lost(scores)
        self.session.encoded = self._new
        if isinstance(encoder, CachedEncoder):
            _log.info("embeddings: %d encoded, %d from the cache", encoder.encoded, encoder.reused)
            self.session.encoded = encoder.encoded
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


def say_what_was_mended(store: Store, reporter: Reporter) -> None:
    """Say which parts of a run were damaged and are mended."""
    while store.mended:
        reporter.note(store.mended.pop(0))
