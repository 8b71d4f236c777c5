"""``auto``: the scorer that gained most on other starts, chosen when a run is measured (`besttake.measure.auto`)."""

from __future__ import annotations

from collections.abc import Sequence

from besttake.demos.view import View
from besttake.errors import ComponentError
from besttake.measure.scores import AUTO
from besttake.scorers.base import Footage, Score, ScorerSpec, no_rest


class Auto:
    """Stands for the choice among the scorers of a run."""

    spec = ScorerSpec(AUTO, reads=(), fingerprint="auto 1")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """ComponentError: takes alone say nothing about which scorer to choose."""
        raise ComponentError("scorer auto: it chooses by outcomes, which only a run has; name a scorer")


def make(rest: str) -> Auto:
    """The scorer ``auto``."""
    no_rest(AUTO, rest)
    return Auto()
