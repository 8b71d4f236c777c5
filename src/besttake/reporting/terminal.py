"""Make what each command prints, as tables and sentences, and lay it out on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from besttake.errors import listed
from besttake.reporting import result_tables, words
from besttake.reporting.drawing import shorten
from besttake.reporting.numbers import count, estimate_points, sentence
from besttake.reporting.table import Column, Entry, Head, Table, entry_of, right
from besttake.result import Result

if TYPE_CHECKING:
    from besttake.demos.library import Library
    from besttake.verbs.act import ActResult
    from besttake.verbs.compare import CompareResult
    from besttake.verbs.doctor import DoctorResult
    from besttake.verbs.ingest import IngestResult
    from besttake.verbs.plan import PlanResult, Plans
    from besttake.verbs.probe import ProbeResult
    from besttake.verbs.rank import RankResult
    from besttake.verbs.reproduce import Protocol, ReproduceResult
    from besttake.verbs.runs import Summary
    from besttake.verbs.score import ScoreResult

_STYLES = {"best": "bold", "better": "green", "worse": "red", "warn": "yellow", "none": "dim", "": ""}
_GAP = 2


@dataclass(frozen=True)
class Sentence:
    """A line of text after the ``name`` of its subject; ``mark`` is its style, as in `Entry`.

    An ``exact`` line is never wrapped, so that a command or a path in it can be copied.
    """

    text: str
    mark: str = ""
    name: str = ""
    indent: int = 0
    exact: bool = False


Part = Table | Sentence


def notes(lines: Sequence[str]) -> list[Part]:
    """Make pale lines below a table."""
    return [Sentence(f"note: {line}", "none") for line in lines]


def layout(parts: Sequence[Part], width: int) -> RenderableType:
    """Lay out parts below each other, ``width`` columns wide. Text is never read as markup."""
    return Group(*(_grid(part, width) if isinstance(part, Table) else _text(part) for part in parts))


def _text(part: Sentence) -> RenderableType:
    name = f"{part.name}: " if part.name and part.text else part.name
    text = Text.assemble((name, "bold"), (part.text, _STYLES[part.mark]), no_wrap=part.exact)
    text.overflow = "ignore" if part.exact else None
    return Padding(text, (0, 0, 0, part.indent), expand=False) if part.indent else text


def _grid(table: Table, width: int) -> RenderableType:
    """Lay out a table without lines; `extra` columns that do not fit are dropped, the last ones first."""
    columns = [Column(column) if isinstance(column, str) else column for column in table.columns]
    rows = [[entry_of(value) for value in row] for row in table.rows]
    widths = [
        max([cell_len(column.name), *(cell_len(row[i].text) for row in rows)]) for i, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    for i in reversed(range(len(columns))):
        if columns[i].extra and sum(widths[j] + _GAP for j in shown) - _GAP > width:
            shown.remove(i)
    head = any(column.name for column in columns)
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), show_header=head)
    for i in shown:
        side: Literal["left", "right"] = "right" if columns[i].right else "left"
        grid.add_column(Text(columns[i].name), justify=side, overflow="fold", no_wrap=columns[i].right)
    for row in rows:
        grid.add_row(*(Text(row[i].text, style=_STYLES[row[i].mark]) for i in shown))
    return grid


_BLANK = Sentence("")
_ROWS, _SENTENCES, _NOTES, _NAMES = 16, 8, 6, 4
"""The most rows, sentences, notes and names per sentence that `ingest` prints; the report has all of them."""


def diagnosis(result: Result, run: Path | None = None, *, verbose: bool = False) -> list[Part]:
    """Show one line per policy, what is not decided, and what to do next; ``verbose`` puts the tables before it."""
    parts = _details(result) if verbose else []
    if result.policies:
        parts.append(result_tables.summary(result, result.policies))
    parts += [Sentence(line) for line in words.remarks(result)]
    commands = {"Act on it": [words.act_command(result, run, cell) for cell in result.policies]}
    commands["Settle it"] = [words.plan_command(run, cell) for cell in result.policies]
    for name, each in commands.items():
        if command := next(filter(None, each), ""):
            parts.append(Sentence(command, name=name, exact=True))
    if run is not None:
        more = "" if verbose else "   (-v prints the tables)"
        parts.append(Sentence(f"{run / 'report.html'}{more}", name="Why, and every task", exact=True))
    return parts


def _details(result: Result) -> list[Part]:
    """Show every policy with its cells, and the sentences about each."""
    rows = []
    for policy in result.policies:
        cells = [cell for cell in result.cells if cell.policy == policy.policy]
        rows += [policy, *(cells if len(cells) > 1 else ())]
    parts: list[Part] = [result_tables.summary(result, rows), _BLANK]
    for policy in result.policies:
        parts.append(Sentence(words.headline(policy), name=policy.policy))
        parts += [Sentence(line, "none", indent=2) for line in words.details(policy)]
        parts += [Sentence(sentence(note), "warn", indent=2) for note in policy.notes]
    parts += [Sentence(line) for line in words.pools(result)]
    error_rates = dict.fromkeys(filter(None, map(words.error_rate, result.policies)))
    failed = f", {result.cost.errors} failed" if result.cost.errors else ""
    cost = f"{result.cost.takes} takes{failed}, {sum(result.cost.seconds.values()):.0f} s"
    return [*parts, *(Sentence(line, "none") for line in (*error_rates, cost)), _BLANK]


def promise_check(result: ActResult) -> list[Part]:
    """Say whether new starts kept a run's promise, and where the takes are."""
    option = f"{result.promise.policy}, {result.promise.option}"
    outcome = Sentence(words.promise_outcome(result), "worse" if result.broken else "", name=option)
    return [outcome, Sentence(result.out, name="Takes", exact=True)]


def probe(result: ProbeResult, *, verbose: bool = False) -> list[Part]:
    """Say what retrieval and cooling would do for each policy, then show its demonstration-fit error.

    ``verbose`` adds all settings that were tried at held-out demonstrations, with the chosen ones in bold.
    """
    checks = result.checks.items()
    parts: list[Part] = [Sentence(f"{words.check_sentence(check)}.", name=name) for name, check in checks]
    parts.append(result.table)
    for name, check in checks if verbose else ():
        parts += [_BLANK, Sentence("", name=name)]
        if not check.reason:
            parts += [result_tables.check(check), Sentence(result_tables.CHECK_LEGEND, "none")]
    return parts


def comparison(result: CompareResult) -> list[Part]:
    """Show what changed between two runs, the relation in words, every cell, and the correlations of each policy."""
    relation, parts, changes = result.result.relation, list[Part](), result.changes
    if changes:
        same = all(change.same for change in changes)
        parts += [] if same else [result_tables.changes(changes, "first", "second")]
        parts += [Sentence(words.change_summary(changes)), _BLANK]
    # Of two runs one wants to know what changed, not that they have too few cells for a relation.
    related = not changes or relation.r is not None
    if related:
        lines = [*words.relation_sentences(relation), *words.across_cells(result.across)]
        parts += [*map(Sentence, lines), _BLANK]
    parts.append(result.table)
    if related and relation.within:
        parts += [_BLANK, result_tables.within_policies(result.result)]
    return [*parts, *notes(result.result.notes)]


def doctor(result: DoctorResult) -> list[Part]:
    """Show what works on this machine, or whether the named demonstrations, policy and env fit together."""
    pairing = result.pairing
    if pairing is None:
        return [result.table]
    kinds = (("demonstrations", pairing.demos), ("policy", pairing.policy), ("env", pairing.env))
    parts: list[Part] = [Sentence(name, name=kind) for kind, name in kinds if name]
    parts += [result.table, *(Sentence(problem, "worse") for problem in pairing.problems)]
    together = len(pairing.named) > 1
    if together and not pairing.problems:
        parts.append(Sentence("They fit.", "better"))
    unknown = [line.what for line in pairing.conventions if line.compared and "unknown" in pairing.sides(line)]
    skipped = [f"not compared, because one side is unknown: {', '.join(unknown)}"] if unknown and together else []
    return [*parts, *notes([*skipped, *pairing.notes])]


def ingested(read: IngestResult) -> list[Part]:
    """Show which files were read, a table per policy and task, and sentences about each policy."""
    result = read.result
    lengths: dict[str, list[int]] = {}
    for recording in read.recordings:
        lengths.setdefault(recording.format, []).append(len(recording.episodes))
    files = ", ".join(f"{kind} x {len(each)} ({count(sum(each), 'episode')})" for kind, each in lengths.items())
    table = read.table
    short = [row for row in table.rows if row[1] == "all"] if len(table.rows) > _ROWS else table.rows
    rows = (short or table.rows)[:_ROWS]
    doubts: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for cell in result.policies:
        if cell.audit is not None and cell.audit.doubt:
            doubts.setdefault(words.audit(cell), []).append(shorten(cell.policy, 24))
        first = [words.answers(cell, result.worth)[0].sentence] if cell.verdict is not None else []
        for line in filter(None, (*first, *cell.notes)):
            others.setdefault(line, []).append(shorten(cell.policy, 24))
    texts = [Sentence(line, name=listed(names, _NAMES)) for line, names in (doubts | others).items()]
    left = {"row": len(table.rows) - len(rows), "sentence": len(texts) - _SENTENCES, "note": len(result.notes) - _NOTES}
    more = ", ".join(count(n, f"more {what}") for what, n in left.items() if n > 0)
    last = notes([*result.notes[:_NOTES], *([f"{more}: in the report (-o DIR)"] if more else [])])
    return [Sentence(files), replace(table, rows=rows), *texts[:_SENTENCES], *map(Sentence, words.pools(result)), *last]


def library(shown: Library) -> list[Part]:
    """Show where a library comes from and what it holds, then every demonstration with its events."""
    summary = shown.summary()
    source, encoder, stride = summary["source"], summary["encoder"], summary["stride"]
    frames = "every frame" if stride == 1 else f"one frame in {stride}"
    about = {
        "source": f"{source['name']}, fingerprint {source['fingerprint'][:16]}",
        "encoder": f"{encoder['name']}, camera {summary['camera']}, {frames}",
        "holds": f"{summary['demos']} demonstrations, {summary['frames']} frames, {summary['events']} events",
        "tasks": ", ".join(f"{task} ({n})" for task, n in summary["tasks"].items()),
    }
    rows = [(d.id, d.task, d.length, shorten(", ".join(map(str, d.events)), 40)) for d in shown.demos]
    head = Table("", ("", ""), [(Entry(name, "best"), text) for name, text in about.items()])
    return [head, _BLANK, Table("", ("demo", "task", *right("steps"), "events at"), rows)]


def built(directory: object, summary: Mapping[str, Any]) -> list[Part]:
    """Say what a library that was just built holds, and which demonstrations were left out."""
    contents = f"{summary['demos']} demonstrations, {summary['frames']} frames, {summary['events']} events"
    left_out = [Sentence(f"left out {bad['id']}: {bad['reason']}", "warn") for bad in summary["left_out"]]
    return [Sentence(f"{directory}: {contents}"), *notes(summary["notes"]), *left_out]


def plans(results: Plans) -> list[Part]:
    """Show how many starts and takes each policy needs, and for what."""
    bases = dict.fromkeys(f"From {each.basis}, with {each.plan.seeds} seeds per start:" for each in results)
    parts: list[Part] = [*(Sentence(line, "none") for line in bases), results.table]
    for each in results:
        parts += [Sentence(_advice(each), name=each.name), Sentence(f"besttake diagnose {each.flags}", exact=True)]
    return parts


def _advice(result: PlanResult) -> str:
    """Say which questions are open, and whether more seeds or more starts are worth it."""
    plan = result.plan
    lines = [f"{words.QUESTIONS[name]} {words.further(starts)}." for name, starts in result.further.items()]
    if result.available is not None and result.available < plan.half_width_starts:
        lines.append(f"There are {count(result.available, 'start')} in all: add tasks, or let the env offer more.")
    shared = f"{count(result.tasks, 'task')}" if result.tasks > 1 else "one task (more share the starts)"
    return " ".join([*lines, f"{words.seeds_advice(plan)}.", f"With {shared}:"])


def ranking(result: RankResult) -> list[Part]:
    """Show takes from best to worst, and how they were compared."""
    about = f"by {result.scorer} on the window {result.window}, frames embedded by {result.encoder}"
    return [Sentence(about), result.table, *notes(result.notes)]


def protocol_list(protocols: Sequence[Protocol]) -> list[Part]:
    """List the tables of the paper that can be reproduced."""
    rows = [(Entry(each.name, "best"), each.title, Entry(", ".join(each.policies), "none")) for each in protocols]
    return [Table("", ("", "", Column("", extra=True)), rows)]


def protocol(shown: Protocol) -> list[Part]:
    """Show the paper's numbers, the plan behind them, and the command that runs it."""
    import yaml

    # Transposed: some tables have more columns than a line has room for.
    rows = [
        (column, *(shown.written(numbers[i], column) for numbers in shown.paper.values()))
        for i, column in enumerate(shown.columns)
    ]
    chunk = {"actions executed of a chunk": shown.chunk, "frames of the library": shown.frames}
    settings = {"env": list(shown.envs.values()), **shown.plan, **chunk}
    settings = {name: value for name, value in settings.items() if value is not None}
    plan = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None).rstrip()
    run = f"besttake reproduce {shown.name} --policy {shown.policies[0]}=URI --demos URI -o runs/{shown.name}"
    table = Table("", ["", *right(*shown.paper)], rows)
    return [Sentence(shown.title, "best"), table, _BLANK, Sentence(plan, "none"), _BLANK, Sentence(run)]


def reproduction(result: ReproduceResult) -> list[Part]:
    """Show the paper's numbers beside those of the run, then where the run departs from the paper's protocol."""
    legend = "here: with 95 % intervals, marked if the paper's number lies outside"
    without = dict.fromkeys(n.here.reason for n in result.numbers if n.here.value is not None and n.here.reason)
    legend += f" ({'; '.join(without)})" if without else ""
    departures = [Sentence(text, "warn") for text in result.table.notes]
    return [Sentence(result.protocol.title, "best"), result.table, Sentence(legend, "none"), *departures]


def run_summary(summary: Summary) -> list[Part]:
    """Show how far each policy, task and arm is, why takes failed, and the digest."""
    rows = []
    for line in summary.lines:
        rate = f"{100 * line.succeeded / line.done:.0f} %" if line.done else "-"
        rows.append((line.policy, line.task, line.arm, line.done, rate, line.failed, line.missing))
    lines = [f"{summary.done} of {summary.planned} takes done, {summary.failed} failed, {summary.missing} missing"]
    if summary.damaged:
        lines.append(f"{summary.damaged} damaged: they are played again when the run continues")
    if summary.damaged_scores:
        lines.append("scores damaged: they are computed again when the run continues")
    lines += [f"failed {times} times: {reason}" for reason, times in summary.failures[:10]]
    head: Head = ["policy", "task", "arm", *right("done", "success", "failed", "missing")]
    return [Table("", head, rows), *map(Sentence, [*lines, f"digest {summary.digest}"])]


def scores(result: ScoreResult) -> list[Part]:
    """Show each policy's scorers from the highest gain to the lowest."""
    rows = [row for comparison in result.policies for row in comparison.rows]
    lines = [
        f"{policy.policy}: best of {policy.n} takes on {count(policy.starts, 'start')}, window {policy.window};"
        f" headroom {estimate_points(policy.headroom)}."
        for policy in result.policies
    ]
    if any(row.own for row in rows):
        lines.append("* the run's own scorer, by which its verdict picks")
    if any(row.leak for row in rows):
        lines.append("! reads the length of a take, which can give the outcome away")
    return [result.table, *map(Sentence, lines), *notes(result.notes)]
