"""The arm `base`: the frozen policy as it is."""

from __future__ import annotations

from besttake.arms.base import Acting, ArmSpec, Request, Sample, Tools


class Base:
    """One sample, executed."""

    spec = ArmSpec("base", control=None)

    def act(self, take: Request, tools: Tools) -> Acting:
        """``a_init = eps``."""
        return (yield Sample(take.observation, take.draw))


def make(_: str = "") -> Base:
    """``base``."""
    return Base()
