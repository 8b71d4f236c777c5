"""Find the open parts of a cell's verdict in a run until decided, and the arms that these need.

After each round, `verbs/diagnose/until.py` asks `CellTracks` which arms a cell has to run. The answer depends only on
the takes, in the order of the run.
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
"""Starts per cell in one round."""

StopReason = Literal["decided", "budget", "starts", "hopeless"]
"""Why a cell was stopped: it is decided, the budget is spent, there are no more starts, or no take can settle it."""
CellName = tuple[str, str]
"""A cell of one policy: (env, task group)."""
SHOWN = ("headroom", "gain", RETRIEVE, COOLED, "content")
"""The questions that the live page shows: those behind the first two answers of the verdict."""
PAPER_STARTS = 500
"""Starts per cell in the paper's protocol: 50 of each of 10 tasks."""


def arms_of(question: str) -> frozenset[str]:
    """The arms whose takes answer a question."""
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
class CellTracks:
    """The track of every question that a cell can answer along its starts, in the order of the run."""

    tracks: Mapping[str, Track]
    n: int
    most_takes: int
    deterministic: bool = False
    leak_free: bool = True

    @classmethod
    def of(
        cls, arms: Mapping[str, ScoredTakes], order: NDArray[np.int64], n: int, worth: float, *,
        deterministic: bool = False, leak_free: bool = True,
    ) -> CellTracks:  # fmt: skip
        """From the takes of each arm (S, N), NaN where one is missing, and the ``order`` (T,) of the starts."""
        questions = [question for question in questions_of(arms, n) if not question.reason]
        most = int(tally(arms[BASE].outcomes)[0].max(initial=0))
        if not questions:
            return cls({}, n, most, deterministic, leak_free)
        values = np.stack([question.values[order] for question in questions], axis=1)
        ruling = np.stack([question.ruling[order] for question in questions], axis=1)
        along = tracks(values, [q.widest for q in questions], [q.stake for q in questions], worth, ruling=ruling)
        return cls(dict(zip((q.name for q in questions), along, strict=True)), n, most, deterministic, leak_free)

    def findings(self, starts: Mapping[str, int]) -> dict[str, Finding]:
        """The answer to each question, if each arm was run from the first ``starts[arm]`` starts."""
        findings = {"headroom": Finding("open", Estimate(reason="not measured"))}
        for name, track in self.tracks.items():
            count = min(starts.get(arm, 0) for arm in arms_of(name))
            mean = float(track.mean[count - 1]) if count and track.count[count - 1] else None
            findings[name] = Finding(track.answer(count), Estimate(mean), *track.p_values(count))
        return findings

    def open_parts(self, starts: Mapping[str, int], run: Collection[str]) -> dict[str, frozenset[str]]:
        """The open parts of the verdict, with the arms that each needs, if each arm has ``starts[arm]`` starts.

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
    """The arms that each open part of a verdict needs; the parts are takes, cooling, demonstrations and arms."""

    def is_open(name: str) -> bool:
        return name in findings and findings[name].answer == "open"

    parts: dict[str, frozenset[str]] = {}
    takes, demonstrations = answers["takes"], answers["demonstrations"]
    if takes.answer == "open":
        # Even without a score, more takes may rule out headroom, and with it any gain.
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


def first_arms(run: Collection[str]) -> frozenset[str]:
    """The arms of the first round. `shuffled` waits until `retrieve` beats `cooled`, if both are run."""
    return frozenset(run) - ({SHUFFLED} if {RETRIEVE, COOLED} <= set(run) else set())


@dataclass
class Rounds:
    """Chooses the next takes of a policy. ``budget`` is the number of takes that are left.

    ``order`` has all its starts, ``cell_of`` the cell of each, and ``played`` the arms of each start so far, in the
    order in which they were chosen.
    """

    order: Sequence[Unit]
    cell_of: Mapping[Unit, CellName]
    seeds: int
    budget: int
    played: dict[Unit, frozenset[str]]

    def next(self, needed: Mapping[CellName, frozenset[str]]) -> list[tuple[Unit, frozenset[str]]]:
        """Choose the next starts of the cells that need arms, about `ROUND` per cell, within the budget."""
        candidates = [
            (unit, needed[self.cell_of[unit]])
            for unit in self.order
            if unit not in self.played and needed.get(self.cell_of[unit])
        ]
        chosen: list[tuple[Unit, frozenset[str]]] = []
        for unit, arms in candidates[: ROUND * len({self.cell_of[unit] for unit, _ in candidates})]:
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
    """Why a cell of a run until decided was stopped, and after how many takes each question was settled."""
    assert settings.places is not None
    order = looks_until(data.units, settings.places).order
    takes = np.stack([np.isfinite(arm.outcomes).sum(axis=1) for arm in data.arms.values()])
    spent = np.cumsum(takes.sum(axis=0)[order])
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
    settled = {}
    for name, track in CellTracks.of(arms, order, settings.n, settings.worth).tracks.items() if BASE in arms else ():
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
