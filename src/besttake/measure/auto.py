"""``auto``: the scores of a cell by a scorer that was chosen on other starts (`besttake.core.crossfit`).

Takes are picked within a start, so the scores of ``auto`` are, start by start, those of the scorer chosen for it; all
that reads scores then reads the held-out choice. A scorer that depends on what follows its window is never chosen, nor
one that tells no takes apart: one that reads length alone ties them all where the window hides it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from besttake import result as r
from besttake.core import crossfit, select
from besttake.measure.looks import in_order
from besttake.measure.scores import AUTO, CANDIDATES, ScoreName
from besttake.types import F64, I64

if TYPE_CHECKING:
    from besttake.measure.cells import ArmTakes, CellData


@dataclass(frozen=True)
class AutoChoice:
    """The scorer of each start: ``menu[chosen[s]]``, the best on the starts before it; ``gains`` (S, K) of all of them.

    ``final`` is the scorer to use from now on, the best on all starts; ``order`` (S,) says how the starts came.
    """

    menu: tuple[str, ...]
    chosen: I64
    gains: F64
    final: str
    order: I64

    @property
    def counts(self) -> dict[str, int]:
        """At how many starts each scorer was chosen, the most frequent first."""
        counts = {name: int(np.sum(self.chosen == i)) for i, name in enumerate(self.menu)}
        return {name: counts[name] for name in sorted(counts, key=lambda name: -counts[name]) if counts[name]}


def with_auto(data: CellData, n: int, order: I64 | None = None) -> CellData:
    """The cell with the scores of ``auto`` filled in, where it asks for them.

    ``order``: of the starts; by their index, unless given.
    """
    base = data.arms.get("base")
    if base is None or ScoreName(AUTO, data.windows[0]) not in base.scores or data.windows[0] == "episode":
        return data
    menu = tuple(
        name.scorer
        for name in sorted(base.scores, key=_place)
        if name.window == data.windows[0] and name.scorer != AUTO and name.scorer not in data.length
        and (own := base.score(name)) is not None and not select.silent(base.outcomes, own)
    )  # fmt: skip
    if not menu or not len(data.units):
        return data
    scores = [base.scores[ScoreName(name, data.windows[0])] for name in menu]
    gains = np.stack([select.start_gain(base.outcomes, own, n) for own in scores], axis=1)
    order = in_order(data.units) if order is None else order
    chosen = crossfit.chosen_in_order(gains, order)
    choice = AutoChoice(menu, chosen, gains, menu[crossfit.best(gains)], order)
    return replace(data, arms={name: _filled(arm, choice) for name, arm in data.arms.items()}, auto=choice)


def auto_of(choice: AutoChoice) -> r.Auto:
    """The choice in the form of the result."""
    return r.Auto(menu=list(choice.menu), chosen=choice.counts, final=choice.final)


def _place(name: ScoreName) -> tuple[int, str]:
    known = CANDIDATES.index(name.scorer) if name.scorer in CANDIDATES else len(CANDIDATES)
    return known, name.scorer


def _filled(arm: ArmTakes, choice: AutoChoice) -> ArmTakes:
    """The arm with the scores of ``auto``: of each start, those of the scorer that was chosen for it."""
    scores = dict(arm.scores)
    for window in dict.fromkeys(name.window for name in scores):
        if not all(ScoreName(name, window) in scores for name in choice.menu):
            continue
        stacked = np.stack([scores[ScoreName(name, window)] for name in choice.menu])
        scores[ScoreName(AUTO, window)] = stacked[choice.chosen, np.arange(stacked.shape[1])]
    return replace(arm, scores=scores)
