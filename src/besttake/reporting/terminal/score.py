"""What `besttake score` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.numbers import count, estimate_plain, estimate_points, number
from besttake.reporting.terminal.tables import notes, table

if TYPE_CHECKING:
    from besttake.measure.comparison import Comparison, ScorerRow
    from besttake.verbs.score import ScoreResult

_HEAD = ("scorer", "gain over one take", "capture", "AUC", "harm", "minus the run's own", "s / take")


def render(result: ScoreResult) -> RenderableType:
    """One table with a row per scorer, the highest gain first, for each policy; intervals are at 95 %."""
    several = len(result.policies) > 1
    rows = [
        (*([one.policy] if several else []), *values)
        for one in result.policies
        for values in (*map(_row, one.rows), ("shortest (control)", estimate_points(one.shortest, ""), *[""] * 5))
    ]
    parts: list[RenderableType] = [
        table((*(["policy"] if several else []), *_HEAD), rows),
        *map(Text, map(_about, result.policies)),
    ]
    if any(row.own for one in result.policies for row in one.rows):
        parts.append(Text("* the run's own scorer, by which its verdict picks"))
    if any(row.leak for one in result.policies for row in one.rows):
        parts.append(Text("! reads the length of a take, which can give the outcome away"))
    if result.trained is not None:
        learned = ", ".join(f"{task.task} ({task.successes} of {task.takes} takes)" for task in result.trained.tasks)
        parts.append(Text(f"Trained on {learned}. Use it with --scorer {result.trained.uri}, on other starts."))
    return Group(*parts, *notes(result.notes))


def _row(row: ScorerRow) -> tuple[str, ...]:
    marks = f"{' *' if row.own else ''}{' !' if row.leak else ''}"
    return (
        f"{row.scorer}{marks}", estimate_points(row.gain, ""), estimate_plain(row.capture), estimate_plain(row.auc),
        estimate_points(row.harm, "").removeprefix("+"), estimate_points(row.over_own, ""), number(row.seconds, 3),
    )  # fmt: skip


def _about(one: Comparison) -> str:
    return (
        f"{one.policy}: best of {one.n} takes on {count(one.starts, 'start')}, window {one.window}; headroom"
        f" {estimate_points(one.headroom)}."
    )
