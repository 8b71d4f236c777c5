"""The forecast of a cell: how many more starts would settle each part of its verdict that is open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.core.estimate import Forecast
from besttake.core.forecast import Futures, forecast, futures
from besttake.core.sequential import Looks
from besttake.core.verdict import Decided
from besttake.measure.questions import Question

MOST = 500
"""No forecast looks further ahead than this many starts: the test is laid out for them."""
_OPEN = ("undecided", "cool-or-retrieve")
_SETTLES = ("open", "choice", "cooled-only")
"""Why a part is open where more starts would settle it."""
_ASKED = {
    "reuse": ("headroom", "gain"),
    "retrieve": ("retrieve", "cooled", "content"),
    "combine": ("combine", "retrieve_selection", "combine_cooled", "cooled_selection"),
}


def ahead(
    asked: Sequence[Question], looks: Looks, worth: float, most: int, parts: Sequence[str], *, draws: int = 100
) -> Futures | None:
    """Futures of the questions that ``parts`` of the verdict rest on; None where none of them has a value."""
    names = {name for part in parts for name in _ASKED[part]}
    known = [q for q in asked if q.name in names and not q.reason and np.isfinite(q.ruling).any()]
    if not known or most < 1:
        return None
    values = np.stack([question.ruling[looks.order] for question in known], axis=1)
    scales, stakes = [q.widest for q in known], [q.stake for q in known]
    # What a fixed sample leaves open is decided by later looks, which share what is left of alpha.
    alpha = looks.left()
    return futures(values, [q.name for q in known], scales, stakes, worth, most, alpha=alpha, draws=draws)


def forecasts(
    decided: Decided, asked: Sequence[Question], looks: Looks, worth: float, spare: int | None
) -> dict[str, Forecast]:
    """For each open part of a verdict, the further starts that would settle it; ``spare``: how many there are."""
    parts = [p for p in _ASKED if getattr(decided, p).answer in _OPEN and getattr(decided, p).reason in _SETTLES]
    most = MOST if spare is None else min(MOST, spare)
    if not parts:
        return {}
    if most < 1:
        return dict.fromkeys(parts, Forecast(None, None, 0))
    drawn = ahead(asked, looks, worth, most, parts)
    settled = {part: drawn.settled(part) for part in parts} if drawn is not None else {}
    return {part: forecast(times, most) for part, times in settled.items() if times is not None}
