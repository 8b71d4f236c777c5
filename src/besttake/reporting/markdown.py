"""Write the report as Markdown, for pull requests and notes, and ``result.json`` as it is."""

from __future__ import annotations

from pathlib import Path

from besttake.core.offline import RetrievalCheck
from besttake.files import write_text
from besttake.reporting import result_tables, words
from besttake.reporting.numbers import estimate_plain, time_text
from besttake.result import Cell, Result
from besttake.sanitize import markdown, printable


def make_markdown(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run as Markdown to ``out`` (default: ``RUN/report.md``)."""
    text = render(Result.load(Path(run) / "result.json"))
    return write_text(Path(out or Path(run) / "report.md"), text, parents=True)


def make_json(run: str | Path, out: str | Path | None = None) -> Path:
    """Check ``RUN/result.json`` against its schema, and copy it to ``out`` if that is given."""
    source = Path(run) / "result.json"
    result = Result.load(source)
    return write_text(Path(out), result.to_json(), parents=True) if out is not None else source


def render(result: Result) -> str:
    """Return a result as Markdown."""
    parts = ["# BestTake", markdown(words.overview(result))]
    if not result.policies:
        parts.append("This run has no takes yet.")
    for cell in result.policies:
        parts += _policy(cell, result.worth)
    parts += [f"> {markdown(note)}" for note in result.notes]
    for uri, check in result.checks.items():
        parts += _check(uri, check)
    if result.cells:
        parts += ["## Every cell", result_tables.cells(result.cells).markdown()]
        if sum(len(cell.tasks) for cell in result.cells) > len(result.cells):
            parts += ["## Every task", result_tables.tasks(result.cells).markdown()]
        parts += [
            "## Gain against headroom",
            " ".join(markdown(line) for line in words.relation_sentences(result.relation)),
        ]
    parts.append(_origin(result))
    return "\n\n".join(parts) + "\n"


def _check(uri: str, check: RetrievalCheck) -> list[str]:
    parts = [f"## Retrieval for {markdown(uri)}, at held-out demonstrations", markdown(words.check_sentence(check))]
    return parts if check.reason else [*parts, result_tables.check(check).markdown(), result_tables.CHECK_LEGEND]


def _policy(cell: Cell, worth: float) -> list[str]:
    parts = [f"## {markdown(cell.policy)}", f"**{markdown(words.headline(cell))}**"]
    special_case = words.special_case(cell)
    if special_case and special_case != words.headline(cell):
        parts.append(markdown(special_case))
    parts += [f"- {a.question} **{a.badge}**. {markdown(a.sentence)}" for a in words.answers(cell, worth)]
    parts += [result_tables.options(cell).markdown()] if cell.verdict is not None else []
    parts += [markdown(line) for line in (*words.details(cell), words.audit(cell)) if line]
    parts += [f"> {markdown(note)}" for note in cell.notes]
    if cell.selectors is not None:
        parts.append(result_tables.scorers([cell]).markdown())
    if cell.arms is not None:
        parts.append(result_tables.arms(cell).markdown())
    if cell.dfe is not None:
        ratio = estimate_plain(cell.dfe.ratio) or markdown(cell.dfe.reason or "not measured")
        parts.append(f"Demonstration-fit error over the floor: {ratio}.")
    return parts


def _origin(result: Result) -> str:
    cost = result.cost
    numbers = [f"{cost.takes} takes, {cost.steps} steps, {cost.frames_encoded} frames encoded"]
    numbers += [f"{name} {time_text(seconds)}" for name, seconds in result.cost.seconds.items()]
    line = markdown(f"Made by BestTake {result.besttake} at {result.created}: {', '.join(numbers)}.")
    command = printable(" ".join(result.command.split()))
    return f"{line}\n\n    {command}" if command else line
