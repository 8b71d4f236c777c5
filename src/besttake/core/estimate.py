"""A number with its interval, and the answer to a question about it: the values that results are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

YesNo = Literal["yes", "no", "open"]
_DECIMALS = 12


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over ``n`` starts (or other units, where said).

    All three are None, with a ``reason``, where the value is undefined or was not measured.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        # Logarithms and the like differ in the last bit from CPU to CPU; what is printed must not.
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None:
                object.__setattr__(self, name, round(number, _DECIMALS))


@dataclass(frozen=True)
class Forecast:
    """How many further starts would settle something, 8 times in 10: from ``low`` to ``high``.

    ``most`` is how far the forecast looks, never more starts than there are. ``high`` is None where it may take more,
    ``low`` is None where it will hardly be settled within them.
    """

    low: int | None
    high: int | None
    most: int


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a mean over starts: is it worth acting on?

    ``p_not_above_zero`` and ``p_not_below_worth`` are the p-values of the two nulls. ``variance`` is that of the values
    over starts, which plans are worked out from. ``when_answered``: the estimate at the answer, without an interval,
    where later starts of a run until decided moved the mean across what is worth acting on. The answer stays, because
    its test is over; both estimates are to be shown.
    """

    answer: YesNo
    estimate: Estimate
    p_not_above_zero: float = 1.0
    p_not_below_worth: float = 1.0
    variance: float | None = None
    when_answered: Estimate | None = None
