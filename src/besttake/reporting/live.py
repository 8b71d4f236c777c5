"""The page of a run that goes on: the report of what is there so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from besttake.arms import COOLED, RETRIEVE
from besttake.measure.partial import PartialCell
from besttake.reporting.html import takes_scripts, takes_section
from besttake.reporting.numbers import count, interval, percent, points, time_text
from besttake.reporting.page import Page, Section, prose
from besttake.reporting.table import Entry, Table
from besttake.reporting.takes import PageTakes

PHASES = {
    "running": "The run goes on.",
    "stopped": "The run is stopped. Finished takes are kept: the same command goes on with them.",
    "lost": "There has been no sign of the run for a while. If it was killed, the same command goes on.",
    "gone": "The run is no longer there: its directory was removed or moved.",
}
_QUESTIONS = {
    "headroom": "Would a perfect pick gain?",
    "gain": "Does keeping the best gain?",
    COOLED: "Does cooling gain?",
    RETRIEVE: "Does retrieval gain?",
    "content": "Does retrieval add to cooling?",
}
_ANSWERS = {"yes": Entry("shown", "better"), "no": Entry("ruled out", "none"), "open": Entry("open", "warn")}
_HELD = (
    "These bounds hold whenever you look: each answer errs in at most 5 % of runs, however long you watch and whenever"
    " you stop. An answer needs one side alone, at 5 %; the bounds hold on both sides at once, at 95 %, so an answer"
    " can come a little before they leave 0."
)
_UNTIL = "The run itself stops by the same bounds."
_FIXED = (
    "They are wider than those of the report: when the planned sample is complete, the report judges it once, with 95 %"
    " intervals, and scores the takes, so what a score gains is known only then. More starts than planned, added"
    " because of what you see here, count there as a second look. Only starts whose takes are all there count, in the"
    " order of the plan."
)


@dataclass(frozen=True)
class State:
    """All that the live page shows of a run.

    ``phase`` is a key of `PHASES`, ``planned`` the takes of the plan (0: not known), ``left``
    the seconds to go. ``failures``: why takes could not be made, how many, and the first of them.
    """

    phase: str
    doing: str = ""
    done: int = 0
    failed: int = 0
    planned: int = 0
    left: float | None = None
    until: bool = False
    cells: Sequence[PartialCell] = ()
    failures: Sequence[tuple[str, int, str]] = ()


def live_page(name: str, state: State, takes: PageTakes, stamp: str) -> Page:
    """The page of the run called ``name`` as it is now."""
    most = "at most " if state.until else ""
    parts = [count(state.done, "take") + (f" of {most}{state.planned:,}" if state.planned else "")]
    parts += [f"{count(state.failed, 'take')} failed to run"] if state.failed else []
    if state.phase == "running":
        parts += [f"{time_text(state.left)} left{' at most' if state.until else ''}"] if state.left is not None else []
        parts += [state.doing] if state.doing else []
    sections = [_decided(state), takes_section(takes, [one.cell for one in state.cells], scored=False)]
    if state.failures:
        rows = [(reason, takes, first) for reason, takes, first in state.failures]
        table = Table("", ("reason", "takes", "first of them"), rows).section()
        sections.append(Section("failed", "Takes that failed to run", [table], "Failures"))
    heading = "What is decided so far"
    return Page(f"{name}, live", " · ".join([name, *parts]), heading, sections, *takes_scripts(takes), stamp=stamp)


def _decided(state: State) -> Section:
    """What each question's answer is so far."""
    made = min(state.done + state.failed, state.planned)
    bar = Markup('<progress max="{}" value="{}" aria-label="takes"></progress>').format(state.planned, made)
    parts = [prose(PHASES[state.phase], "headline"), *([bar] if state.planned else [])]
    rows: list[Sequence[object]] = []
    for one in state.cells:
        starts = f"{one.cell.starts} of {one.planned}" if one.planned is not None else str(one.cell.starts)
        tasks = "all tasks" if one.cell.group == "*" else one.cell.group
        for name, answer in one.answers.items() if one.cell.path is not None else ():
            assert one.cell.path is not None
            last, settled = one.cell.path.points[name][-1], one.cell.path.settled.get(name)
            gain = Entry(f"{points(last.value)} {interval(last.low, last.high, scale=100)}", value=last.value)
            when = "" if settled is None else f"after {count(settled, 'take')}"
            rows.append((
                one.cell.policy, tasks, starts, percent(one.pass_1), _QUESTIONS[name], _ANSWERS[answer], gain, when
            ))  # fmt: skip
    if rows:
        head = ("policy", "tasks", "complete starts", "pass@1", "question", "answer", "gain so far, points", "settled")
        parts += [Table("", head, rows).section(name="answers"), prose(f"{_HELD} {_UNTIL if state.until else _FIXED}")]
    else:
        parts.append(prose("Nothing yet: the first start has to be complete.", "none"))
    return Section("decided", "", parts, "So far")
