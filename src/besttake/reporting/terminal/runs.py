"""What `besttake runs list` and `runs show` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.numbers import percent
from besttake.reporting.terminal.tables import table

if TYPE_CHECKING:
    from besttake.takes.summary import Summary
    from besttake.verbs.runs import ListedRun, RunList

_COUNTS = ("done", "success", "failed", "missing")


def render(summary: Summary) -> RenderableType:
    """How far each policy, task and arm is, why takes failed, and the digest."""
    rows = []
    for line in summary.lines:
        rate = f"{100 * line.succeeded / line.done:.0f} %" if line.done else "-"
        rows.append((line.policy, line.task, line.arm, line.done, rate, line.failed, line.missing))
    text = [f"{summary.done} of {summary.planned} takes done, {summary.failed} failed, {summary.missing} missing"]
    if summary.damaged:
        text.append(f"{summary.damaged} damaged: they are made again when the run goes on")
    if summary.damaged_scores:
        text.append("scores damaged: they are made again when the run goes on")
    text += [f"failed {count} times: {reason}" for reason, count in summary.failures[:10]]
    text.append(f"digest {summary.digest}")
    return Group(table(("policy", "task", "arm", *_COUNTS), rows, right=_COUNTS), *map(Text, text))


def render_list(listed: RunList) -> RenderableType:
    """A block for each run: where it is and how far, then its policies with what they need."""
    if not listed.runs:
        return Text("There are no runs here; `besttake diagnose` makes one.")
    return Group(*(line for run in listed.runs for line in _listed(run)))


def _listed(run: ListedRun) -> list[Text]:
    about = f"{run.created[:16].replace('T', ' ')}, {run.takes} takes" if run.state == "finished" else run.state
    lines = [Text.assemble((run.path, "bold"), f"  {about}")]
    if run.problem:
        lines.append(Text(f"  {run.problem}", style="yellow"))
    wide = max((len(line.policy) for line in run.policies), default=0)
    for line in run.policies:
        lines.append(Text(f"  {line.policy:<{wide}}  pass@1 {percent(line.pass_1) or '-':>7}  {line.needs}"))
    return lines
