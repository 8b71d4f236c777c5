"""The arm `shuffled`: a warm start from a chunk of a random event, which tells what any demonstrated chunk does."""

from __future__ import annotations

from besttake.arms.base import Acting, ArmSpec, Request, Sample, Tools
from besttake.types import Warm


class Shuffled:
    """One sample, started from a demonstrated chunk that has nothing to do with what is seen."""

    spec = ArmSpec("shuffled", needs=("warm start",), library=True, settings=("retrieval",))

    def act(self, take: Request, tools: Tools) -> Acting:
        """``a_init = alpha * (a random event's chunk) + (1 - alpha) eps``."""
        chunk = tools.retriever(take).random(take.draw.generator("shuffle")).chunk
        return (yield Sample(take.observation, take.draw, Warm(tools.config.alpha, chunk)))


def make(_: str = "") -> Shuffled:
    """``shuffled``."""
    return Shuffled()
