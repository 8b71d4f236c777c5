"""What `besttake ingest` prints."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting.numbers import bounds, count, estimate_percent, estimate_points, number, percent
from besttake.reporting.terminal.tables import notes, table
from besttake.reporting.words import answers

if TYPE_CHECKING:
    from besttake.result import Cell, Estimate
    from besttake.verbs.ingest import IngestResult

_CELL = ("policy", "tasks", "starts", "seeds", "pass@1", "pass@N", "headroom", "agree", "kappa")
_TASK = ("policy", "task", "starts", "pass@1", "pass@N")


def render(ingested: IngestResult) -> RenderableType:
    """Tables per policy and per task, and what is not known."""
    result = ingested.result
    kinds = Counter(recording.format for recording in ingested.recordings)
    episodes: Counter[str] = Counter()
    for recording in ingested.recordings:
        episodes[recording.format] += len(recording.episodes)
    pooled = result.policies if len(result.cells) > len(result.policies) else []
    parts: list[RenderableType] = [
        Text(", ".join(f"{kind} x {n} ({count(episodes[kind], 'episode')})" for kind, n in kinds.items())),
        table(_CELL, [_row(cell) for cell in (*result.cells, *pooled)]),
    ]
    tasks = [
        (cell.policy, line.task, line.starts, _rate(line.pass_1), _rate(line.pass_n))
        for cell in result.cells
        for line in cell.tasks
    ]
    if len(tasks) > len(result.cells):
        parts += [Text(), table(_TASK, tasks)]
    for cell in result.policies:
        parts += [Text(f"{cell.policy}: {line}") for line in _sentences(cell, result.worth)]
    return Group(*parts, *notes(result.notes))


def _sentences(cell: Cell, worth: float) -> list[str]:
    beyond = [point for point in cell.headroom.curve if not point.measured] if cell.headroom is not None else []
    lines = [f"pass@{last.k} extrapolates to {percent(last.value)}{bounds(last)}" for last in beyond[-1:]]
    if cell.verdict is not None:
        lines.append(answers(cell, worth)[0].sentence)
    return [*lines, *cell.notes]


def _row(cell: Cell) -> tuple[str | int, ...]:
    headroom, retest = cell.headroom, cell.retest
    measured, repeated = ["no outcome"] * 3, ["one seed"] * 2
    if headroom is not None:
        gain = estimate_points(headroom.headroom, "") or "not known"
        measured = [_rate(headroom.pass_1), _rate(headroom.pass_n), gain]
    if retest is not None:
        repeated = [_rate(retest.agreement), number(retest.kappa.value, 2) or "undefined"]
    return (cell.policy, "all" if cell.group == "*" else cell.group, cell.starts, cell.seeds, *measured, *repeated)


def _rate(estimate: Estimate) -> str:
    return estimate_percent(estimate) or "not known"
