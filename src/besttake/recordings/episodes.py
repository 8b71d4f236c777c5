"""What every reader returns: episodes with their outcomes, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass, field

from besttake.errors import BestTakeError


class IngestError(BestTakeError):
    """A file of outcomes is damaged, of an unknown format, or lacks what headroom needs."""


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
    """One evaluation as a file holds it. ``evaluation`` is its name: a file and its export then count once."""

    path: str
    format: str
    episodes: tuple[Episode, ...]
    evaluation: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
