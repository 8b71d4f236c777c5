"""The name of a take, and its row in the table of takes: plain data that is cheap to import."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass


@dataclass(frozen=True, order=True)
class TakeKey:
    """The name of a take. The order of the fields is the canonical order of takes."""

    policy: str
    env: str
    task: str
    start: int
    arm: str
    seed: int

    @property
    def id(self) -> str:
        """A short file-system-safe name."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:20]

    @property
    def file(self) -> str:
        """The take's file in its run directory."""
        return f"takes/{self.id[:2]}/{self.id}.take"


@dataclass(frozen=True)
class Row:
    """One row of the table of takes. ``error`` is the reason if ``status`` is "error"."""

    key: TakeKey
    status: str
    success: bool | None
    success_step: int | None
    steps: int
    calls: int
    file: str | None
    size: int
    sha256: str | None
    error: str | None
    seconds: float

    @property
    def identity(self) -> str:
        """What a finished take adds to the digest: its name, its outcome and the sha256 of its file."""
        return json.dumps([astuple(self.key), self.success, self.success_step, self.steps, self.calls, self.sha256])
