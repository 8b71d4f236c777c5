"""The report as Markdown, for pull requests and notes; and ``result.json`` as it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from besttake.core.offline import Check
from besttake.escapes import markdown, printable
from besttake.files import write_text
from besttake.reporting import checks, words
from besttake.reporting.numbers import duration, estimate_percent, estimate_plain, estimate_points, spread
from besttake.result import Cell, Estimate, Result


def make_markdown(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run as Markdown, ``RUN/report.md`` unless ``out`` says where."""
    text = render(Result.load(Path(run) / "result.json"))
    return write_text(Path(out or Path(run) / "report.md"), text, parents=True)


def make_json(run: str | Path, out: str | Path | None = None) -> Path:
    """Check ``RUN/result.json`` against its schema and write it to ``out``; without one it stays where it is."""
    source = Path(run) / "result.json"
    result = Result.load(source)
    return write_text(Path(out), result.to_json(), parents=True) if out is not None else source


def render(result: Result) -> str:
    """The Markdown text of a result."""
    parts = ["# BestTake", markdown(words.overview(result))]
    if not result.policies:
        parts.append("This run has no takes yet.")
    for cell in result.policies:
        parts += _policy(cell, result.worth)
    parts += [f"> {markdown(note)}" for note in result.notes]
    for uri, check in result.checks.items():
        parts += _check(uri, check)
    if result.cells:
        parts += ["## Every cell", _cells(result.cells)]
        lines = [(cell.policy, line) for cell in result.cells for line in cell.tasks]
        if len(lines) > len(result.cells):
            rows = [
                (policy, line.task, line.starts, _percent(line.pass_1), _percent(line.pass_n), _points(line.gain))
                for policy, line in lines
            ]
            head = ("policy", "task", "starts", "pass@1", "pass@N", "gain")
            parts += ["## Every task", _table(head, rows)]
        parts += ["## Gain against headroom", " ".join(markdown(line) for line in words.relation(result.relation))]
    parts.append(_made(result))
    return "\n\n".join(parts) + "\n"


def _check(uri: str, check: Check) -> list[str]:
    parts = [f"## Retrieval for {markdown(uri)}, at held-out demonstrations", markdown(checks.sentence(check))]
    if check.reason:
        return parts
    width = len(checks.COLUMNS) - 1
    rows = [(line.label, *line.cells, *[""] * (width - len(line.cells))) for line in checks.lines(check)]
    return [*parts, _table(checks.COLUMNS, rows), checks.LEGEND]


def _policy(cell: Cell, worth: float) -> list[str]:
    parts = [f"## {markdown(cell.policy)}", f"**{markdown(words.headline(cell))}**"]
    state = words.state(cell)
    if state and state != words.headline(cell):
        parts.append(markdown(state))
    parts += [f"- {a.question} **{a.badge}**. {markdown(a.sentence)}" for a in words.answers(cell, worth)]
    parts += _options(cell)
    parts += [f"> {markdown(note)}" for note in cell.notes]
    if ladder := _ladder(cell):
        parts.append(_table(("kept take", "success", "gain"), ladder))
    if cell.arms is not None:
        rows = [
            (
                name, _percent(arm.pass_1), spread(arm.seed_sd), "" if name == "base" else _points(arm.gain),
                spread(arm.gain_seed_sd), _points(arm.selected_gain),
            )
            for name, arm in cell.arms.arms.items()
        ]  # fmt: skip
        head = ("arm", "pass@1", "sd over seeds", "minus base", "sd over seeds", "best take minus base")
        parts.append(_table(head, rows))
        parts.append(f"Retrieve minus cooled: {_points(cell.arms.content)}.")
        for name, arm in cell.arms.controlled.items():
            parts.append(f"{markdown(name)} minus {markdown(str(arm.control))}: {_points(arm.beyond_control)}.")
    if cell.dfe is not None:
        ratio = estimate_plain(cell.dfe.ratio) or markdown(cell.dfe.reason or "not measured")
        parts.append(f"Demonstration-fit error over the floor: {ratio}.")
    return parts


def _options(cell: Cell) -> list[str]:
    lines = [markdown(line) for line in words.more(cell)]
    if cell.verdict is None:
        return lines
    marks, rows = words.marks(cell.verdict), []
    for one in cell.verdict.options:
        success, gain = cell.verdict.shown_as(one)
        worth_it = "shown" if one.shown else one.answer
        rows.append((one.name, one.takes, _percent(success), _points(gain), worth_it, marks.get(one.name, "")))
    return [_table(("option", "takes", "success", "gain", "worth it", "advice"), rows), *lines]


def _ladder(cell: Cell) -> list[tuple[object, ...]]:
    if cell.headroom is None:
        return []
    rows: list[tuple[object, ...]] = [("pass@1", _percent(cell.headroom.pass_1), "")]
    if cell.selectors is not None:
        rows.append(("random", _percent(cell.selectors.random.success), ""))
        rows.append(("shortest", _percent(cell.selectors.shortest.success), _points(cell.selectors.shortest.gain)))
        for scorer, windows in cell.selectors.scored.items():
            rows += [
                (f"{scorer}, {w}{', reads length' if s.leak else ''}", _percent(s.success), _points(s.gain))
                for w, s in windows.items()
            ]
    rows.append((f"oracle, pass@{cell.headroom.n}", _percent(cell.headroom.pass_n), _points(cell.headroom.headroom)))
    return rows


def _cells(cells: list[Cell]) -> str:
    rows = [
        (
            cell.policy, cell.group, cell.starts,
            _percent(cell.headroom.pass_1 if cell.headroom else None),
            _percent(cell.headroom.pass_n if cell.headroom else None),
            _points(cell.headroom.headroom if cell.headroom else None),
            _points(cell.chosen.gain if cell.chosen else None),
            words.needs_text(cell),
        )
        for cell in cells
    ]  # fmt: skip
    return _table(("policy", "tasks", "starts", "pass@1", "pass@N", "headroom", "gain", "verdict"), rows)


def _made(result: Result) -> str:
    cost = result.cost
    lines = [f"{cost.takes} takes, {cost.steps} steps, {cost.frames_encoded} frames encoded"]
    lines += [f"{name} {duration(seconds)}" for name, seconds in result.cost.seconds.items()]
    made = markdown(f"Made by BestTake {result.besttake} at {result.created}: {', '.join(lines)}.")
    command = printable(" ".join(result.command.split()))
    return f"{made}\n\n    {command}" if command else made


def _percent(estimate: Estimate | None) -> str:
    return estimate_percent(estimate) or _why(estimate)


def _points(estimate: Estimate | None) -> str:
    return estimate_points(estimate, "") or _why(estimate)


def _why(estimate: Estimate | None) -> str:
    return (markdown(estimate.reason) if estimate else "") or "not measured"


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *(tuple(markdown(str(v)) for v in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
