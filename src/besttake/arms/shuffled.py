"""The arm `shuffled`: the chunk of a random event instead of the best match, which tells what any chunk does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from besttake.arms.base import Acting, ArmSpec, Request, Sample, Tools
from besttake.arms.cooled import cooled_at
from besttake.arms.retrieve import settings_of
from besttake.types import Warm


@dataclass(frozen=True)
class Shuffled:
    """One sample, started from a demonstrated chunk that has nothing to do with what is seen.

    ``changes`` are values of `RetrievalConfig` other than the plan's, as those of `retrieve`.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> ArmSpec:
        """Its control has as much noise as it has."""
        return ArmSpec(
            "shuffled", needs=("warm start",), library=True, control=cooled_at(self.changes.get("noise")),
            settings=("retrieval",), fingerprint=f"{dict(sorted(self.changes.items()))}" if self.changes else "",
        )  # fmt: skip

    def act(self, take: Request, tools: Tools) -> Acting:
        """As `retrieve`, with a random event's chunk."""
        config = tools.config.changed(self.changes)
        chunk = tools.retriever(take, config).random(take.draw.generator("shuffle")).chunk
        return (yield Sample(take.observation, take.draw, Warm(config.noise, config.prior_of(take.task), chunk)))


def make(_: str = "", **given: Any) -> Shuffled:
    """``shuffled``, or with a configuration of its own, ``shuffled?alpha=0.3``."""
    return Shuffled(settings_of("shuffled", given))
