"""What one invocation of a diagnosis keeps count of."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from besttake.core.offline import Check
from besttake.errors import BestTakeError
from besttake.measure.cells import CellData, Settings
from besttake.measure.partial import ROUNDS, PartialCell, partial_cell, round_json
from besttake.progress import Reporter, Whole
from besttake.takes.heartbeat import Beat
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store

_log = logging.getLogger(__name__)
Play = Callable[[Collection[TakeKey]], None]


@dataclass
class Session:
    """What one invocation keeps count of: seconds per stage, remarks, checks of retrieval, frames that it encoded.

    ``lost``: whether a scorer gave no scores. ``made``: takes that it tried to make.
    """

    reporter: Reporter
    whole: Whole = field(default_factory=lambda: Whole({}))
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    checks: dict[str, Check] = field(default_factory=dict)
    encoded: int = 0
    rounds: dict[str, list[PartialCell]] = field(default_factory=dict)
    lost: bool = False
    made: int = 0

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the time within as ``stage``'s."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began
            _log.debug("%s: %.2f s", stage, time.perf_counter() - began)

    def beat(self) -> Beat:
        """What is going on, for those who watch."""
        return Beat(self.whole.doing(), self.whole.done, self.whole.total, self.whole.left())

    def keep_round(self, store: Store, policy: str, cells: list[CellData], settings: Settings) -> None:
        """Keep the cells of a round of a run until decided, for those who watch."""
        self.rounds[policy] = [partial_cell(cell, settings, None) for cell in cells if cell.units]
        every = [cell for own in self.rounds.values() for cell in own]
        with suppress(BestTakeError, OSError):  # the run does without it
            store.write_bytes(ROUNDS, round_json(every))

    def saw(self, row: Row) -> None:
        """A take is kept."""
        self.made += 1
        self.whole.saw(row.key.arm, row.success)

    def timing(self, stage: str, work: Play) -> Play:
        """``work``, with its time counted as ``stage``'s."""

        def timed(keys: Collection[TakeKey]) -> None:
            with self.timed(stage):
                work(keys)

        return timed
