"""Until decided: what is still open in a cell, and which arms it needs.

`verbs.until` asks `Watch` after each round which arms a cell still has to run. What it answers follows from the takes
in the order of the run, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from besttake.core import verdict
from besttake.core.estimate import Estimate, Finding
from besttake.core.headroom import tally
from besttake.core.sequential import Looks
from besttake.core.until import Track, tracks
from besttake.core.verdict import PAIRS, Decided
from besttake.measure.forecast import ahead
from besttake.measure.looks import Unit
from besttake.measure.questions import Question, ScoredTakes, questions_of

_UNASKED = Finding("undecided", Estimate(reason="not measured"))
ROUND = 10
"""Starts of a cell in one round."""

Stopped = Literal["decided", "budget", "starts", "hopeless"]
"""Why a cell was stopped: it is decided, the budget is spent, there are no more starts, or what is left of the budget
cannot decide it."""


def arms_of(question: str) -> frozenset[str]:
    """The arms whose takes a question is about."""
    pairs = {
        "content": ("retrieve", "cooled"), "beyond_shuffled": ("retrieve", "shuffled"),
        "combine": ("base", "retrieve"), "combine_cooled": ("base", "cooled"),
        "combine_content": ("retrieve", "cooled"),
    }  # fmt: skip
    if question in pairs:
        return frozenset(pairs[question])
    if question in ("headroom", "gain", "shortest"):
        return frozenset({"base"})
    if question.endswith("_selection"):
        return frozenset({question.removesuffix("_selection")})
    return frozenset({"base", question.removesuffix("_selected")})


@dataclass(frozen=True)
class Watch:
    """A cell along its starts: the track of every question that its arms can answer, in the order of the run."""

    tracks: Mapping[str, Track]
    n: int
    most_takes: int
    deterministic: bool = False
    leak_free: bool = True

    @classmethod
    def of(
        cls, arms: Mapping[str, ScoredTakes], order: NDArray[np.int64], n: int, worth: float, *,
        deterministic: bool = False, leak_free: bool = True,
    ) -> Watch:  # fmt: skip
        """Watch takes (S, N) by arm, NaN where one was not made; ``order`` (T,) of the starts."""
        asked = [question for question in questions_of(arms, n) if not question.reason]
        most = int(tally(arms["base"].outcomes)[0].max(initial=0))
        if not asked:
            return cls({}, n, most, deterministic, leak_free)
        values = np.stack([question.values[order] for question in asked], axis=1)
        ruling = np.stack([question.ruling[order] for question in asked], axis=1)
        made = tracks(values, [q.widest for q in asked], [q.stake for q in asked], worth, ruling=ruling)
        return cls(dict(zip((q.name for q in asked), made, strict=True)), n, most, deterministic, leak_free)

    def verdict(self, starts: Mapping[str, int]) -> Decided:
        """The verdict where each arm was run from the first so many starts."""
        findings = {}
        for name, track in self.tracks.items():
            seen = min(starts.get(arm, 0) for arm in arms_of(name))
            mean = float(track.mean[seen - 1]) if seen and track.count[seen - 1] else None
            findings[name] = Finding(track.answer(seen), Estimate(mean), *track.p_values(seen))
        findings.setdefault("headroom", _UNASKED)
        return verdict.decide(
            findings, self.n, most_takes=self.most_takes, deterministic=self.deterministic, leak_free=self.leak_free
        )


def beyond_takes(decided: Decided) -> tuple[str, ...]:
    """The parts of a verdict that are open and that no further take of this run can settle."""
    parts = ("reuse", "retrieve")
    return tuple(
        part for part in parts if getattr(decided, part).reason in ("one-take", "no-score", "length-leak", "no-control")
    )


def needs_of(decided: Decided, run: Collection[str]) -> dict[str, frozenset[str]]:
    """By open part of a verdict (reuse, retrieve, combine, arms), the arms that it needs, of those of the plan."""
    # Without a score headroom may still be ruled out, and with it every gain.
    unscored = decided.reuse.reason == "no-score" and decided.questions["headroom"].answer == "undecided"
    parts = {
        "reuse": frozenset({"base"}) if decided.reuse.reason == "open" or unscored else frozenset[str](),
        "retrieve": _for_retrieve(decided, run),
        "combine": _for_combine(decided),
        "arms": _for_others(decided.questions, run),
    }
    return {part: arms & frozenset(run) for part, arms in parts.items() if arms & frozenset(run)}


def _for_retrieve(decided: Decided, run: Collection[str]) -> frozenset[str]:
    findings, part = decided.questions, decided.retrieve
    if part.answer == "retrieve":
        asked = "shuffled" in run and findings.get("beyond_shuffled", _UNASKED).answer == "undecided"
        return frozenset({"retrieve", "shuffled"} if asked else ())
    full, cooled, content = (findings.get(name) for name in ("retrieve", "cooled", "content"))
    if full is None:
        return frozenset({"base", "cooled"} if cooled is not None and cooled.answer == "undecided" else ())
    if cooled is None or content is None:
        return frozenset({"base", "retrieve"} if full.answer == "undecided" else ())
    if part.answer not in ("undecided", "cool-or-retrieve"):
        return frozenset()
    if cooled.answer == "yes":
        return frozenset({"retrieve", "cooled"})
    if full.answer == "no":
        return frozenset({"base", "cooled"})
    return frozenset({"base", "retrieve"} if cooled.answer == "no" else {"base", "cooled", "retrieve"})


def _for_combine(decided: Decided) -> frozenset[str]:
    findings, needed = decided.questions, frozenset[str]()
    if decided.combine.answer != "undecided":
        return needed
    for arm, names in PAIRS.items():
        own = [findings[name].answer for name in names if name in findings]
        if own and "no" not in own:
            needed |= {"base", arm}
    return needed


def _for_others(findings: Mapping[str, Finding], run: Collection[str]) -> frozenset[str]:
    others = [arm for arm in run if arm not in ("base", "cooled", "shuffled", "retrieve")]
    waiting = {arm for arm in others if arm in findings and findings[arm].answer == "undecided"}
    return frozenset({"base", *waiting} if waiting else ())


def begin_with(run: Collection[str]) -> frozenset[str]:
    """The arms of the first round: all but ``shuffled``, which is asked only where retrieval is chosen."""
    return frozenset(run) - ({"shuffled"} if {"retrieve", "cooled"} <= set(run) else set())


def chance_within(asked: Sequence[Question], order: NDArray[np.int64], worth: float, part: str, left: int) -> float:
    """The chance that a part of the verdict is settled by ``left`` further starts."""
    drawn = ahead(asked, Looks(order, (), until=True), worth, left, [part], draws=50)
    settled = drawn.settled(part) if drawn is not None else None
    return 1.0 if settled is None else float(np.mean(settled <= left))


CellName = tuple[str, str]
"""A cell of one policy: (env, task group)."""


@dataclass
class Rounds:
    """Which takes of a policy come next: ``order`` of all its starts, the cell of each, and the takes still affordable.

    ``played`` has the arms of each start so far, in the order in which they were asked for.
    """

    order: Sequence[Unit]
    cell_of: Mapping[Unit, CellName]
    seeds: int
    budget: int
    played: dict[Unit, frozenset[str]]

    def next(self, needed: Mapping[CellName, frozenset[str]]) -> list[tuple[Unit, frozenset[str]]]:
        """The next starts of the cells that need arms, about `ROUND` each, as far as the budget goes."""
        wanted = [
            (unit, needed[self.cell_of[unit]])
            for unit in self.order
            if unit not in self.played and needed.get(self.cell_of[unit])
        ]
        chosen: list[tuple[Unit, frozenset[str]]] = []
        for unit, arms in wanted[: ROUND * len({self.cell_of[unit] for unit, _ in wanted})]:
            cost = len(arms) * self.seeds
            if cost > self.budget:
                break
            self.budget -= cost
            self.played[unit] = arms
            chosen.append((unit, arms))
        return chosen

    def has_starts(self, cell: CellName) -> bool:
        """Whether a cell has starts left."""
        return any(self.cell_of[unit] == cell and unit not in self.played for unit in self.order)
