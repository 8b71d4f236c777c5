"""What `besttake ingest` prints."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from besttake.reporting.numbers import bounds, interval, number, percent, points
from besttake.result import Cell, Estimate
from besttake.verbs.ingest import IngestResult


def render_text(found: IngestResult) -> RenderableType:
    """Tables per policy and per task, and what is not known."""
    result = found.result
    table = Table("policy", "tasks", "starts", "seeds", "pass@1", "pass@N", "headroom", "agreement", "kappa", box=None)
    for cell in [*result.cells, *(c for c in result.policies if len(result.cells) > len(result.policies))]:
        table.add_row(*_row(cell))
    parts: list[RenderableType] = [Text(_files(found)), table]
    lines = [(cell.policy, line) for cell in result.cells for line in cell.tasks]
    if len(lines) > len(result.cells):
        tasks = Table("policy", "task", "starts", "pass@1", "pass@N", box=None)
        for policy, line in lines:
            tasks.add_row(Text(policy), Text(line.task), str(line.starts), _share(line.pass_1), _share(line.pass_n))
        parts += [Text(""), tasks]
    for cell in result.policies:
        beyond = [p for p in cell.headroom.curve if not p.measured] if cell.headroom is not None else []
        if beyond:
            last = beyond[-1]
            parts.append(Text(f"{cell.policy}: pass@{last.k} extrapolates to {percent(last.value)}{bounds(last)}"))
        if cell.verdict is not None:
            parts.append(Text(f"{cell.policy}: {cell.verdict.headline}"))
        parts += [Text(f"{cell.policy}: {note}") for note in cell.notes]
    parts += [Text(f"note: {note}", style="dim") for note in result.notes]
    return Group(*parts)


def _row(cell: Cell) -> list[RenderableType]:
    room, again = cell.headroom, cell.retest
    group = "all" if cell.group == "*" else cell.group
    return [
        Text(cell.policy),
        Text(group),
        str(cell.starts),
        str(cell.seeds),
        _share(room.pass_1) if room else "no outcome",
        _share(room.pass_n) if room else "no outcome",
        _points(room.headroom) if room else "no outcome",
        _share(again.agreement) if again else "one seed",
        number(again.kappa.value, 2) or "undefined" if again else "one seed",
    ]


def _share(estimate: Estimate) -> str:
    return f"{percent(estimate.value)} {interval(estimate.low, estimate.high, scale=100)}".strip() or "not known"


def _points(estimate: Estimate) -> str:
    return f"{points(estimate.value)} {interval(estimate.low, estimate.high, scale=100)}".strip() or "not known"


def _files(found: IngestResult) -> str:
    kinds: dict[str, int] = {}
    for source in found.sources:
        kinds[source.format] = kinds.get(source.format, 0) + 1
    return ", ".join(f"{kind} x {n}" for kind, n in kinds.items())
