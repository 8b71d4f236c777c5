"""Make the live page of a run that is not finished: what is decided so far, and its takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from besttake.arms import COOLED, RETRIEVE
from besttake.measure.partial import PartialCell
from besttake.reporting.html import takes_scripts, takes_section
from besttake.reporting.numbers import count, percent, time_text
from besttake.reporting.page import Page, Section, prose
from besttake.reporting.table import Entry, Table, in_points
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
    " you stop. An answer tests one side only, at 5 %, but the bounds hold on both sides, at 95 %: an answer can come"
    " a little before they leave 0."
)
_UNTIL = "The run itself stops by the same bounds."
_FIXED = (
    "They are wider than those of the report, which scores the takes and judges the planned sample once, with 95 %"
    " intervals, when it is complete; what a score gains is known only then. If you add starts because of what you see"
    " here, that counts as a second look. Only starts with all their takes count, in the order of the plan."
)


@dataclass(frozen=True)
class State:
    """What the live page shows of a run.

    ``phase`` is a key of `PHASES`, ``planned`` the number of planned takes (0: not known), ``left`` the seconds to go,
    and ``failures`` has each reason why takes failed, how many did, and the first of them.
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
    """Make the page of the run called ``name`` as it is now."""
    most = "at most " if state.until else ""
    parts = [count(state.done, "take") + (f" of {most}{state.planned:,}" if state.planned else "")]
    parts += [f"{count(state.failed, 'take')} failed to run"] if state.failed else []
    if state.phase == "running":
        parts += [f"{time_text(state.left)} left{' at most' if state.until else ''}"] if state.left is not None else []
        parts += [state.doing] if state.doing else []
    sections = [_decided(state), takes_section(takes, [each.cell for each in state.cells], scored=False)]
    if state.failures:
        table = Table("", ("reason", "takes", "first of them"), state.failures).section()
        sections.append(Section("failed", "Takes that failed to run", [table], "Failures"))
    heading = "What is decided so far"
    return Page(f"{name}, live", " · ".join([name, *parts]), heading, sections, *takes_scripts(takes), stamp=stamp)


def _decided(state: State) -> Section:
    """Show the answer to each question so far."""
    played = min(state.done + state.failed, state.planned)
    bar = Markup('<progress max="{}" value="{}" aria-label="takes"></progress>').format(state.planned, played)
    parts = [prose(PHASES[state.phase], "headline"), *([bar] if state.planned else [])]
    rows: list[Sequence[object]] = []
    for partial in state.cells:
        cell, path = partial.cell, partial.cell.path
        starts = f"{cell.starts} of {partial.planned}" if partial.planned is not None else str(cell.starts)
        first = (cell.policy, "all tasks" if cell.group == "*" else cell.group, starts, percent(partial.pass_1))
        for name, finding in partial.findings.items():
            settled = path.settled.get(name) if path else None
            when = "" if settled is None else f"after {count(settled, 'take')}"
            rows.append((*first, _QUESTIONS[name], _ANSWERS[finding.answer], in_points(finding.estimate), when))
    if rows:
        head = ("policy", "tasks", "complete starts", "pass@1", "question", "answer", "gain so far, points", "settled")
        parts += [Table("", head, rows).section(name="answers"), prose(f"{_HELD} {_UNTIL if state.until else _FIXED}")]
    else:
        parts.append(prose("Nothing yet: no start has all its takes.", "none"))
    return Section("decided", "", parts, "So far")
