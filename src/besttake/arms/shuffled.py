"""The arm `shuffled`: the chunk of a random event instead of the best match, which tells what any chunk does."""

from __future__ import annotations

from besttake.arms.base import Acting, ArmSpec, Request, Tools
from besttake.arms.ways import bring_in


class Shuffled:
    """One sample, with a demonstrated chunk in it that has nothing to do with what is seen."""

    spec = ArmSpec("shuffled", needs=("way in",), library=True, settings=("retrieval",))

    def act(self, take: Request, tools: Tools) -> Acting:
        """As `retrieve`, with a random event's chunk."""
        chunk = tools.retriever(take).random(take.draw.generator("shuffle")).chunk
        return (yield from bring_in(take, tools, chunk, tools.config))


def make(_: str = "") -> Shuffled:
    """``shuffled``."""
    return Shuffled()
