"""What every reader gives: one outcome per episode, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field

from besttake.errors import BestTakeError


class IngestError(BestTakeError):
    """A file of outcomes is damaged, of no format we know, or lacks what headroom needs."""


@dataclass(frozen=True)
class Episode:
    """One episode. ``start`` names its initial state within the task; ``seed`` tells repeats apart, where known.

    ``success`` is None where the episode could not be run (``error`` says why).
    """

    task: str
    start: str
    success: bool | None
    policy: str = ""
    env: str = ""
    seed: str = ""
    steps: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Recording:
    """What one file held. ``evaluation`` names the evaluation, so that a file and its export are not counted twice."""

    path: str
    format: str
    outcomes: tuple[Episode, ...]
    evaluation: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
