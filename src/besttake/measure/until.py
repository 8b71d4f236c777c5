"""Until decided: what is still open in a cell, and which arms it needs.

`verbs/diagnose/until.py` asks `Watch` after each round which arms a cell has to run. What it answers follows from the
takes in the order of the run, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from besttake import result as r
from besttake.arms import BASE, COOLED, RETRIEVE, SHUFFLED
from besttake.core.headroom import tally
from besttake.core.sequential import Track, tracks
from besttake.core.stats import Estimate, Finding
from besttake.measure.arrays import CellData, ScoredTakes, Settings, Stop
from besttake.measure.looks import Unit, looks_until
from besttake.measure.verdict import answers_of, questions_of
from besttake.result import Answer

ROUND = 10
"""Starts of a cell in one round."""

Stopped = Literal["decided", "budget", "starts", "hopeless"]
"""Why a cell was stopped: it is decided, the budget is spent, there are no more starts, or no take can settle it."""
CellName = tuple[str, str]
"""A cell of one policy: (env, task group)."""
SHOWN = ("headroom", "gain", RETRIEVE, COOLED, "content")
"""The questions that are shown while a run goes on: those behind the first two answers of the verdict."""
PAPER_STARTS = 500
"""Starts of a cell in the paper's protocol: 50 of each of 10 tasks."""


def arms_of(question: str) -> frozenset[str]:
    """The arms whose takes a question is about."""
    pairs = {
        "content": (RETRIEVE, COOLED), "beyond_shuffled": (RETRIEVE, SHUFFLED), "combine": (BASE, RETRIEVE),
    }  # fmt: skip
    if question in pairs:
        return frozenset(pairs[question])
    if question in ("headroom", "gain", "shortest"):
        return frozenset({BASE})
    if question.endswith("_selection"):
        return frozenset({question.removesuffix("_selection")})
    return frozenset({BASE, question.removesuffix("_selected")})


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
        most = int(tally(arms[BASE].outcomes)[0].max(initial=0))
        if not asked:
            return cls({}, n, most, deterministic, leak_free)
        values = np.stack([question.values[order] for question in asked], axis=1)
        ruling = np.stack([question.ruling[order] for question in asked], axis=1)
        made = tracks(values, [q.widest for q in asked], [q.stake for q in asked], worth, ruling=ruling)
        return cls(dict(zip((q.name for q in asked), made, strict=True)), n, most, deterministic, leak_free)

    def findings(self, starts: Mapping[str, int]) -> dict[str, Finding]:
        """The answer to each question where each arm was run from the first so many starts."""
        findings = {"headroom": Finding("open", Estimate(reason="not measured"))}
        for name, track in self.tracks.items():
            seen = min(starts.get(arm, 0) for arm in arms_of(name))
            mean = float(track.mean[seen - 1]) if seen and track.count[seen - 1] else None
            findings[name] = Finding(track.answer(seen), Estimate(mean), *track.p_values(seen))
        return findings

    def open_parts(self, starts: Mapping[str, int], run: Collection[str]) -> dict[str, frozenset[str]]:
        """The open parts of the verdict where each arm was run from the first so many starts, and the arms they need.

        A part that no further take of the arms ``run`` can settle needs none.
        """
        findings = self.findings(starts)
        answers = answers_of(
            findings, self.n, self.most_takes, deterministic=self.deterministic, leak_free=self.leak_free
        )
        return {part: arms & frozenset(run) for part, arms in _needed(findings, answers, run).items()}


def _needed(
    findings: Mapping[str, Finding], answers: Mapping[str, Answer], run: Collection[str]
) -> dict[str, frozenset[str]]:
    """By open part of a verdict (takes, cooling, demonstrations, arms), the arms that it needs."""

    def is_open(name: str) -> bool:
        return name in findings and findings[name].answer == "open"

    parts: dict[str, frozenset[str]] = {}
    takes, demonstrations = answers["takes"], answers["demonstrations"]
    if takes.answer == "open":
        # Without a score headroom may still be ruled out, and with it every gain.
        helps = not takes.reason or (takes.reason == "no-score" and is_open("headroom"))
        parts["takes"] = frozenset({BASE} if helps else ())
    if is_open(COOLED):
        parts["cooling"] = frozenset({BASE, COOLED})
    if demonstrations.answer == "open":
        alone = demonstrations.reason == "no-control"
        parts["demonstrations"] = frozenset(
            {BASE if alone else COOLED, RETRIEVE} if is_open(RETRIEVE) or not alone else ()
        )
    elif (
        demonstrations.answer == "yes"
        and SHUFFLED in run
        and ("beyond_shuffled" not in findings or is_open("beyond_shuffled"))
    ):
        parts["demonstrations"] = frozenset({RETRIEVE, SHUFFLED})
    others = {arm for arm in run if arm not in (BASE, COOLED, SHUFFLED, RETRIEVE) and is_open(arm)}
    if others:
        parts["arms"] = frozenset({BASE, *others})
    return parts


def begin_with(run: Collection[str]) -> frozenset[str]:
    """The arms of the first round: all but ``shuffled``, which is asked only where retrieval is chosen."""
    return frozenset(run) - ({SHUFFLED} if {RETRIEVE, COOLED} <= set(run) else set())


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


def path_of(data: CellData, settings: Settings, stop: Stop) -> r.CellPath:
    """How a run until decided went in a cell: why it stopped, and after how many takes each question was settled."""
    assert settings.places is not None
    order = looks_until(data.units, settings.places).order
    made = np.stack([np.isfinite(arm.outcomes).sum(axis=1) for arm in data.arms.values()])
    spent = np.cumsum(made.sum(axis=0)[order])
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
    settled = {}
    for name, track in Watch.of(arms, order, settings.n, settings.worth).tracks.items() if BASE in arms else ():
        first = min(track.yes, track.no)
        if name in SHOWN and track.count[-1:].any() and first <= len(order):
            settled[name] = int(spent[max(0, first - 1)])
    # The takes of all cells of a policy together are not comparable with a protocol.
    run = [name for name, arm in data.arms.items() if arm.takes]
    paper = 0 if data.group == "*" else PAPER_STARTS * settings.seeds * len(run)
    return r.CellPath(
        stopped=stop.reason, unsettled=list(stop.unsettled), takes=int(spent[-1]) if len(spent) else 0,
        paper_takes=paper, settled=settled,
    )  # fmt: skip
