"""The arm `cooled`: calmer noise, or a lower temperature, and nothing else. It is the control of `retrieve`."""

from __future__ import annotations

from dataclasses import dataclass

from besttake.arms.base import Acting, ArmSpec, Request, Sample, Tools
from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.types import Warm


@dataclass(frozen=True)
class Cooled:
    """One sample from less noise. ``alpha``: how much less, where it is not the plan's."""

    alpha: float | None = None

    @property
    def spec(self) -> ArmSpec:
        """It depends on the plan's alpha, or on its own."""
        if self.alpha is None:
            return ArmSpec("cooled", needs=("cooling",), settings=("alpha",))
        return ArmSpec("cooled", needs=("cooling",), fingerprint=f"alpha {self.alpha:g}")

    def act(self, take: Request, tools: Tools) -> Acting:
        """``a_init = (1 - alpha) eps``."""
        alpha = tools.config.cooled_by if self.alpha is None else self.alpha
        return (yield Sample(take.observation, take.draw, Warm(alpha)))


def make(_: str = "", alpha: float | str | None = None) -> Cooled:
    """``cooled``, or with a strength of its own, ``cooled?alpha=0.5``."""
    return Cooled(strength("cooled", alpha))


def strength(arm: str, alpha: float | str | None) -> float | None:
    """The option ``alpha`` of ``arm``, a number from 0 to 1, or None where it is not given."""
    if alpha is None:
        return None
    value = Reader(arm).number("alpha", alpha, least=0)
    if not value <= 1:
        raise ComponentError(f"{arm}: alpha={alpha} is not a number between 0 and 1")
    return value
