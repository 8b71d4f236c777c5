"""What `besttake runs show` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.terminal.tables import table

if TYPE_CHECKING:
    from besttake.takes.summary import Summary

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
        text.append(f"scores damaged ({', '.join(summary.damaged_scores)}): they are made again when the run goes on")
    text += [f"failed {count} times: {reason}" for reason, count in summary.failures[:10]]
    text.append(f"digest {summary.digest}")
    return Group(table(("policy", "task", "arm", *_COUNTS), rows, right=_COUNTS), *map(Text, text))
