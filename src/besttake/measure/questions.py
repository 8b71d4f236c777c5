"""The one list of questions that a diagnosis asks of a cell, each estimated once.

The verdict, the table of arms, headroom, the selectors, the report and `besttake plan` all read these estimates.

| name | value of a start | kind |
| --- | --- | --- |
| ``headroom`` | pass@n - pass@1 of base | headroom |
| ``gain`` | best-scored of n base takes - pass@1 of base | choice |
| ``shortest`` | shortest of n base takes - pass@1 of base | choice |
| ``ARM`` | pass@1 of the arm - pass@1 of base | difference |
| ``ARM_selection`` | best-scored of n takes of the arm - its pass@1 | choice |
| ``ARM_selected`` | best-scored of n takes of the arm - pass@1 of base | pick |
| ``content`` | pass@1 of retrieve - pass@1 of cooled | difference |
| ``ARM_beyond_control`` | pass@1 of the arm - pass@1 of its control, where that is not base | difference |
| ``beyond_shuffled`` | pass@1 of retrieve - pass@1 of shuffled | difference |
| ``combine`` | best-scored of n retrieve takes - best-scored of n base takes | pick |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from besttake.core import select, stats, verdict
from besttake.core.headroom import start_headroom, start_pass_at_k, tally
from besttake.core.sequential import Looks, fixed_stake
from besttake.core.stats import Estimate, Finding
from besttake.types import F64

Kind = Literal["headroom", "choice", "difference", "pick"]
"""What sort of value a question is about: it says where values can lie, and what a later look stakes on them."""


_CONTENT = ("retrieve", "cooled")
"""The arm and the control of the question ``content``."""


@dataclass(frozen=True)
class ScoredTakes:
    """The takes of one arm: ``outcomes`` (S, N), ``scores`` (S, N) on the window that decides, ``lengths`` (S, N)."""

    outcomes: ArrayLike
    scores: ArrayLike | None = None
    lengths: ArrayLike | None = None


@dataclass(frozen=True)
class Question:
    """Is the mean over starts of ``values`` (S,) worth acting on? NaN where a start has no value.

    ``ruling`` (S,): the same without starts that have too few takes to keep the best of n. The best of fewer gains
    less, so a NO may not rest on them. ``scale``: where the values of these starts can lie. ``reason``: why no start
    has a value.

    A test that is looked at again bets ``stake`` on values within ``widest``. Both follow from the plan and not from
    the takes that were made, so that no start changes what was decided before it.
    """

    name: str
    values: F64
    scale: stats.Scale
    widest: stats.Scale
    stake: float
    ruling: F64
    reason: str = ""

    def estimate(self, looks: Looks | None = None) -> Estimate:
        """The mean with its interval, by the test for repeated looks where there were earlier ones."""
        if self.reason:
            return Estimate(reason=self.reason)
        if looks is None or not looks.anytime:
            return stats.mean_interval(self.values, self.scale)
        return verdict.estimate_again(self.values, self.widest, looks, self.stake)

    def ask(self, worth: float, looks: Looks | None = None, *, rng: stats.Rng = 0, draws: int = 10_000) -> Finding:
        """The answer, with the same estimate."""
        if self.reason:
            return Finding("open", Estimate(reason=self.reason))
        if looks is None or not looks.anytime:
            return verdict.ask(self.values, self.scale, worth, ruling=self.ruling, rng=rng, draws=draws)
        return verdict.ask_again(self.values, self.widest, worth, looks, self.stake, name=self.name, ruling=self.ruling)


def question(
    name: str, kind: Kind, values: ArrayLike, n: int, takes: ArrayLike, *, seeds: int | None = None
) -> Question:
    """A question about ``values`` (S,) where one of n takes is kept; ``takes``: those of each start, of ``seeds``."""
    x, reason = np.asarray(values, dtype=np.float64), ""
    counts = np.broadcast_to(np.asarray(takes, dtype=np.int64), x.shape)
    most = int(counts.max(initial=0))
    if kind in ("headroom", "choice") and min(n, most) < 2:
        x, reason = np.full_like(x, np.nan), "one take per start leaves nothing to choose from"
    used = counts[np.isfinite(x) & (counts > 0)]
    scale, fewest = stats.pick_scale(), int(used.min(initial=most or n))
    if kind == "headroom":
        scale = stats.headroom_scale(n, used)
    elif kind == "choice":
        scale = stats.gain_scale(n, used)
    elif kind == "difference":
        scale = stats.difference_scale(fewest)
    widest = scale
    if kind in ("headroom", "choice"):
        # However many takes a start has, no value leaves the range of n takes.
        reach = stats.headroom_scale(n).hi
        widest = replace(scale, lo=-reach if kind == "choice" else 0.0, hi=reach)
    enough = (counts >= n) | (kind == "difference")
    stake = fixed_stake("content" if kind in ("difference", "pick") else "gain", seeds or most)
    return Question(name, x, scale, widest, stake, np.where(enough, x, np.nan), reason)


def beyond_control(arm: str, control: str) -> str:
    """The name of the question whether an arm is better than its control."""
    return arm if control == "base" else "content" if (arm, control) == _CONTENT else f"{arm}_beyond_control"


def questions_of(arms: Mapping[str, ScoredTakes], n: int, controls: Mapping[str, str] | None = None) -> list[Question]:
    """Every question that the takes of ``arms`` can answer; their rows are the same starts, ``base`` among them.

    ``controls``: the arm that an arm is compared with, besides base.
    """
    base = arms["base"]
    takes = {name: tally(arm.outcomes)[0] for name, arm in arms.items()}
    for name, counts in takes.items():
        if len(counts) != len(takes["base"]):
            raise ValueError(f"arm {name} has {len(counts)} starts, base has {len(takes['base'])}: they must match")
    ones = {name: start_pass_at_k(arm.outcomes, 1) for name, arm in arms.items()}
    kept = {
        name: select.select(arm.outcomes, arm.scores, n).successes
        for name, arm in arms.items()
        if arm.scores is not None
    }
    others = [name for name in arms if name != "base"]
    # With the arms that are compared, or whose best of n takes is kept.
    asked: list[tuple[str, Kind, tuple[str, ...], ArrayLike]] = [
        ("headroom", "headroom", ("base",), start_headroom(base.outcomes, n))
    ]
    if "base" in kept:
        asked.append(("gain", "choice", ("base",), kept["base"] - ones["base"]))
    if base.lengths is not None:
        asked.append(("shortest", "choice", ("base",), select.shortest(base.outcomes, base.lengths, n).gains))
    compared = [(name, name, "base") for name in others]
    compared += [("content", "retrieve", "cooled"), ("beyond_shuffled", "retrieve", "shuffled")]
    compared += [
        (beyond_control(name, control), name, control)
        for name, control in (controls or {}).items()
        if control != "base" and (name, control) != _CONTENT
    ]
    asked += [
        (name, "difference", (arm, control), ones[arm] - ones[control])
        for name, arm, control in compared
        if {arm, control} <= set(arms)
    ]
    asked += [(f"{name}_selection", "choice", (name,), kept[name] - ones[name]) for name in others if name in kept]
    asked += [(f"{name}_selected", "pick", (name,), kept[name] - ones["base"]) for name in others if name in kept]
    if {"retrieve", "base"} <= set(kept):
        asked.append(("combine", "pick", ("retrieve", "base"), kept["retrieve"] - kept["base"]))
    seeds = int(np.asarray(base.outcomes).shape[1])
    return [
        question(name, kind, values, n, np.minimum.reduce([takes[arm] for arm in about]), seeds=seeds)
        for name, kind, about, values in asked
    ]


def answer(
    questions: Iterable[Question],
    worth: float,
    looks: Looks | None = None,
    *,
    rng: stats.Rng = 0,
    draws: int = 10_000,
) -> dict[str, Finding]:
    """The answer to each question, by name. ``worth`` is a fraction: .03 is 3 points.

    ``looks``: where the run was looked at before with fewer starts.
    """
    if not 0 < worth < 1:
        raise ValueError(f"worth must be a fraction between 0 and 1, as 0.03 for 3 points, not {worth}")
    return {question.name: question.ask(worth, looks, rng=rng, draws=draws) for question in questions}
