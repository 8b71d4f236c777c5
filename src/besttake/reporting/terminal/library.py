"""What `besttake library build`, `show` and `tune` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.core.offline import Check
from besttake.reporting import checks
from besttake.reporting.terminal.probe import check_table
from besttake.reporting.terminal.tables import table

if TYPE_CHECKING:
    from besttake.demos.library import Library
    from besttake.verbs.replay import ReplayResult
    from besttake.verbs.tune import Tuned


def render(library: Library) -> RenderableType:
    """Every demonstration with its events."""
    rows = [(d.id, d.task, d.length, ", ".join(map(str, d.events))) for d in library.demos]
    return table(("demo", "task", "steps", "events at"), rows)


def render_checks(kept: Mapping[str, Check], width: int) -> RenderableType:
    """What retrieval does for each policy that was checked with the library."""
    parts: list[RenderableType] = []
    for name, check in kept.items():
        parts += ["", Text(f"{name}: {checks.sentence(check)}", style="bold"), *check_table(check, width)]
    return Group(*parts)


def render_built(directory: object, summary: Mapping[str, Any]) -> RenderableType:
    """How much a new library holds, what it was taken for, and what was left out."""
    text = Text(
        f"{directory}: {summary['demos']} demonstrations, {summary['frames']} frames, {summary['events']} events"
    )
    for note in summary["notes"]:
        text.append(f"\nnote: {note}")
    for bad in summary["left_out"]:
        text.append(f"\nleft out {bad['id']}: {bad['reason']}", style="yellow")
    return text


def render_tuned(tuned: Tuned) -> RenderableType:
    """What was tried, best first; the chosen configuration stands out."""
    rows = [
        (
            Text(trial.name, style="bold" if trial.config == tuned.config else ""),
            f"{100 * trial.success:.1f} %",
            f"{trial.offline:.2f}",
        )
        for trial in tuned.trials
    ]
    return table(("tried", "success on tuning starts", "error on held-out demos"), rows)


def render_replay(result: ReplayResult) -> RenderableType:
    """How many demonstrations succeeded again, and what became of the others."""
    text = Text(f"{result.succeeded} of {len(result.replayed)} demonstrations replay to success in {result.env}")
    if problems := Counter(demo.problem for demo in result.demos if demo.problem):
        for problem, count in problems.most_common(5):
            text.append(f"\n{count} were not replayed: {problem}", style="yellow")
    for demo in [demo for demo in result.replayed if demo.success_step is None][:20]:
        text.append(f"\n{demo.id} does not succeed again within its {demo.steps} steps", style="yellow")
    return text
