"""The arm `cooled`: calmer noise, or a lower temperature, and nothing else. It is the control of `retrieve`."""

from __future__ import annotations

from besttake.arms.base import Acting, ArmSpec, Request, Sample, Tools
from besttake.types import Warm


class Cooled:
    """One sample from less noise."""

    spec = ArmSpec("cooled", needs=("cooling",), settings=("alpha",))

    def act(self, take: Request, tools: Tools) -> Acting:
        """``a_init = (1 - alpha) eps``."""
        return (yield Sample(take.observation, take.draw, Warm(tools.config.alpha)))


def make(_: str = "") -> Cooled:
    """``cooled``."""
    return Cooled()
