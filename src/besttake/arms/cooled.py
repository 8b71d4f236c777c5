"""The arms `base`, the frozen policy as it is, and `cooled`, the policy with less noise or a lower temperature.

`cooled` is the control of `retrieve`.
"""

from __future__ import annotations

from dataclasses import dataclass

from besttake.arms.base import Acting, ArmSpec, Sample, TakeState, Tools
from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.types import Warm


class Base:
    """The arm ``base``: execute one sample of the policy."""

    spec = ArmSpec("base", control=None)

    def act(self, take: TakeState, tools: Tools) -> Acting:
        """Sample the policy as it is: ``a_init = eps``."""
        return (yield Sample(take.observation, take.draw))


@dataclass(frozen=True)
class Cooled:
    """The arm ``cooled``: execute one sample started from less noise (``noise``, by default the plan's)."""

    noise: float | None = None

    @property
    def spec(self) -> ArmSpec:
        """The spec; it depends on the plan's noise unless the arm has its own."""
        if self.noise is None:
            return ArmSpec("cooled", needs=("cooling",), settings=("noise",))
        return ArmSpec("cooled", needs=("cooling",), fingerprint=f"noise {self.noise:.12g}")

    def act(self, take: TakeState, tools: Tools) -> Acting:
        """Sample with less noise: ``a_init = noise * eps``."""
        noise = tools.config.noise if self.noise is None else self.noise
        return (yield Sample(take.observation, take.draw, Warm(noise)))


def cooled_at(noise: float | None) -> str:
    """URI of the arm ``cooled`` with this noise; None means the plan's."""
    return "cooled" if noise is None else f"cooled?noise={noise:.12g}"


def make(_: str = "", noise: float | str | None = None) -> Cooled:
    """Make ``cooled``, or ``cooled?noise=0.5`` with a noise of its own."""
    if noise is None:
        return Cooled()
    value = Reader("cooled").number("noise", noise, least=0)
    if not value <= 1:
        raise ComponentError(f"cooled: noise={noise} is not a number between 0 and 1")
    return Cooled(value)
