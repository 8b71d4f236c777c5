"""The arm `renoised`: a sample of the policy's own, carried back to flow time alpha and sampled on from there.

It is the control of ``retrieve?way=path``: as much noise, and a chunk of the policy instead of a demonstration.
Where the flow is exact its takes are distributed as those of `base`.
"""

from __future__ import annotations

from dataclasses import dataclass

from besttake.arms.base import Acting, ArmSpec, Request, Sample, Tools
from besttake.arms.cooled import strength
from besttake.arms.ways import NEEDS
from besttake.core.warmstart import on_step
from besttake.types import Warm


@dataclass(frozen=True)
class Renoised:
    """Two samples, the second begun from the first. ``alpha``: the flow time, where it is not the plan's."""

    alpha: float | None = None

    @property
    def spec(self) -> ArmSpec:
        """It depends on the plan's alpha, or on its own."""
        if self.alpha is None:
            return ArmSpec("renoised", NEEDS["path"], settings=("alpha",))
        return ArmSpec("renoised", NEEDS["path"], fingerprint=f"alpha {self.alpha:g}")

    def act(self, take: Request, tools: Tools) -> Acting:
        """``a_init = alpha * (another sample) + (1 - alpha) eps``, at flow time alpha."""
        own = yield Sample(take.observation, take.draw.candidate(1))
        time = on_step(tools.config.alpha if self.alpha is None else self.alpha, tools.policy.flow_steps)
        return (yield Sample(take.observation, take.draw, Warm(time, own, time)))


def make(_: str = "", alpha: float | str | None = None) -> Renoised:
    """``renoised``, or with a flow time of its own, ``renoised?alpha=0.5``."""
    return Renoised(strength("renoised", alpha))
