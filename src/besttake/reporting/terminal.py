"""What each command prints, as tables and sentences, and how they are laid out on a terminal.

A row of a table stands on one line if it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from besttake.errors import listed
from besttake.reporting import tables, words
from besttake.reporting.drawing import shorten
from besttake.reporting.numbers import count, estimate_points, sentence
from besttake.reporting.table import Column, Entry, Head, Table, right, worded
from besttake.result import Result

if TYPE_CHECKING:
    from besttake.demos.library import Library
    from besttake.measure.rescore import ScorerComparison
    from besttake.verbs.act import ActResult
    from besttake.verbs.compare import CompareResult
    from besttake.verbs.doctor import DoctorResult
    from besttake.verbs.ingest import IngestResult
    from besttake.verbs.plan import PlanResult, Plans
    from besttake.verbs.probe import ProbeResult
    from besttake.verbs.rank import RankResult
    from besttake.verbs.reproduce import Protocol, ReproduceResult
    from besttake.verbs.runs import RunList, Summary
    from besttake.verbs.score import ScoreResult

_STYLES = {"best": "bold", "better": "green", "worse": "red", "warn": "yellow", "none": "dim", "": ""}
_GAP = 2


@dataclass(frozen=True)
class Sentence:
    """A sentence under the ``name`` of what it is about; ``mark`` as in `Entry`. ``indent``: columns before it.

    An ``exact`` one is never broken, so that a command or a path in it can be copied.
    """

    text: str
    mark: str = ""
    name: str = ""
    indent: int = 0
    exact: bool = False


Part = Table | Sentence


def notes(lines: Sequence[str]) -> list[Part]:
    """Lines of lesser weight below a table."""
    return [Sentence(f"note: {line}", "none") for line in lines]


def layout(parts: Sequence[Part], width: int) -> RenderableType:
    """Parts one below the other on lines of ``width`` columns. Text is never read as markup."""
    return Group(*(_grid(part, width) if isinstance(part, Table) else _text(part) for part in parts))


def _text(part: Sentence) -> RenderableType:
    name = f"{part.name}: " if part.name and part.text else part.name
    text = Text.assemble((name, "bold"), (part.text, _STYLES[part.mark]), no_wrap=part.exact)
    text.overflow = "ignore" if part.exact else None
    return Padding(text, (0, 0, 0, part.indent), expand=False) if part.indent else text


def _grid(table: Table, width: int) -> RenderableType:
    """A table without lines, less those of its `extra` columns for which there is no room, the last ones first."""
    columns = [Column(column) if isinstance(column, str) else column for column in table.columns]
    rows = [[worded(value) for value in row] for row in table.rows]
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
        # Folded, so that nothing is cut off.
        grid.add_column(
            Text(columns[i].name),
            justify="right" if columns[i].right else "left",
            overflow="fold",
            no_wrap=columns[i].right,
        )
    for row in rows:
        grid.add_row(*(Text(row[i].text, style=_STYLES[row[i].mark]) for i in shown))
    return grid


_BLANK = Sentence("")
_ROWS, _SENTENCES, _NOTES, _NAMES = 16, 8, 6, 4
"""`ingest` prints at most so many rows, sentences and notes, and names of one sentence; the report has all of them."""


def diagnosis(result: Result, run: Path | None = None, *, verbose: bool = False) -> list[Part]:
    """One line per policy, what is not decided, and what to do next; ``verbose`` puts the tables before it."""
    parts = _details(result) if verbose else []
    if result.policies:
        parts.append(tables.summary(result, result.policies))
    parts += [Sentence(line) for line in words.remarks(result)]
    for name, of in (("Act on it", partial(words.act, result, run)), ("Settle it", partial(words.settle, run))):
        commands = filter(None, map(of, result.policies))
        parts += [Sentence(command, name=name, exact=True) for command in islice(commands, 1)]
    if run is not None:
        more = "" if verbose else "   (-v prints the tables)"
        parts.append(Sentence(f"{run / 'report.html'}{more}", name="Why, and every task", exact=True))
    return parts


def _details(result: Result) -> list[Part]:
    """Every policy with its cells, and what is worth knowing of each."""
    cells = []
    for one in result.policies:
        own = [cell for cell in result.cells if cell.policy == one.policy]
        cells += [one, *(own if len(own) > 1 else ())]
    parts: list[Part] = [tables.summary(result, cells), _BLANK]
    for policy in result.policies:
        said = words.more(policy) if policy.verdict is not None else []
        parts.append(Sentence(words.headline(policy), name=policy.policy))
        parts += [Sentence(line, "none", indent=2) for line in said]
        parts += [Sentence(sentence(note), "warn", indent=2) for note in policy.notes]
    parts += [Sentence(line) for line in words.pools(result)]
    rules = dict.fromkeys(filter(None, map(words.rule, result.policies)))
    failed = f", {result.cost.errors} failed" if result.cost.errors else ""
    took = f"{result.cost.takes} takes{failed}, {sum(result.cost.seconds.values()):.0f} s"
    return [*parts, *(Sentence(line, "none") for line in (*rules, took)), _BLANK]


def acted(result: ActResult) -> list[Part]:
    """What came of a run's promise, and where the takes are."""
    named = f"{result.promise.policy}, {result.promise.option}"
    text = Sentence(words.acted(result), "worse" if result.broken else "", name=named)
    return [text, Sentence(result.out, name="Takes", exact=True)]


def probe(result: ProbeResult, *, verbose: bool = False) -> list[Part]:
    """What retrieval and cooling would do for each policy, in a sentence; then its demonstration-fit error.

    ``verbose`` adds what was tried at held-out demonstrations, what was chosen in bold.
    """
    checks = result.checks.items()
    parts: list[Part] = [Sentence(f"{words.check_sentence(check)}.", name=name) for name, check in checks]
    parts.append(result.table)
    for name, check in checks if verbose else ():
        tried: list[Part] = [] if check.reason else [tables.check(check), Sentence(tables.CHECK_LEGEND, "none")]
        parts += [_BLANK, Sentence("", name=name), *tried]
    return parts


def comparison(result: CompareResult) -> list[Part]:
    """What changed between two runs, the relation in words, every cell, and the correlations of each policy."""
    relation, parts, changes = result.result.relation, list[Part](), result.changes
    if changes:
        same = all(change.same for change in changes)
        parts += [] if same else [tables.changes(changes, "first", "second")]
        parts += [Sentence(words.changed(changes)), _BLANK]
    # Of two runs one wants to know what changed; too few cells for a relation are not worth a line there.
    related = not changes or relation.r is not None
    if related:
        parts += [*(Sentence(line) for line in (*words.relation(relation), *words.across(result.across))), _BLANK]
    parts.append(result.table)
    if related and relation.within:
        parts += [_BLANK, tables.within_policies(result.result)]
    return [*parts, *notes(result.result.notes)]


def doctor(result: DoctorResult) -> list[Part]:
    """What works on this machine; or the named demonstrations, policy and env side by side, and whether they fit."""
    pairing = result.pairing
    if pairing is None:
        return [result.table]
    kinds = (("demonstrations", pairing.demos), ("policy", pairing.policy), ("env", pairing.env))
    parts: list[Part] = [Sentence(name, name=kind) for kind, name in kinds if name]
    parts += [result.table, *(Sentence(problem, "worse") for problem in pairing.problems)]
    together = len(pairing.named) > 1
    if together and not pairing.problems:
        parts.append(Sentence("They fit.", "better"))
    unsettled = [line.what for line in pairing.conventions if line.compared and "unknown" in pairing.sides(line)]
    unknown = [f"not known of all of them, so not compared: {', '.join(unsettled)}"] if unsettled and together else []
    return [*parts, *notes([*unknown, *pairing.notes])]


def ingested(read: IngestResult) -> list[Part]:
    """Tables per policy and per task, and what is not known."""
    result = read.result
    kinds: dict[str, list[int]] = {}
    for recording in read.recordings:
        kinds.setdefault(recording.format, []).append(len(recording.episodes))
    files = ", ".join(f"{kind} x {len(own)} ({count(sum(own), 'episode')})" for kind, own in kinds.items())
    whole = read.table
    short = [row for row in whole.rows if row[1] == "all"] if len(whole.rows) > _ROWS else whole.rows
    rows = (short or whole.rows)[:_ROWS]
    doubts: dict[str, list[str]] = {}
    said: dict[str, list[str]] = {}
    for cell in result.policies:
        if cell.audit is not None and cell.audit.doubt:
            doubts.setdefault(words.audit(cell), []).append(shorten(cell.policy, 24))
        first = [words.answers(cell, result.worth)[0].sentence] if cell.verdict is not None else []
        for line in filter(None, (*first, *cell.notes)):
            said.setdefault(line, []).append(shorten(cell.policy, 24))
    told = [Sentence(line, name=listed(names, _NAMES)) for line, names in (doubts | said).items()]
    left = {"row": len(whole.rows) - len(rows), "sentence": len(told) - _SENTENCES, "note": len(result.notes) - _NOTES}
    more = ", ".join(count(n, f"more {what}") for what, n in left.items() if n > 0)
    others = map(Sentence, words.pools(result))
    last = notes([*result.notes[:_NOTES], *([f"{more}: in the report (-o DIR)"] if more else [])])
    return [Sentence(files), replace(whole, rows=rows), *told[:_SENTENCES], *others, *last]


def library(shown: Library) -> list[Part]:
    """Where a library comes from and what is frozen into it, then every demonstration with its events."""
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
    """Lines about a library that was just built: what it holds, remarks, and the demonstrations that were left out."""
    held = f"{summary['demos']} demonstrations, {summary['frames']} frames, {summary['events']} events"
    left_out = [Sentence(f"left out {bad['id']}: {bad['reason']}", "warn") for bad in summary["left_out"]]
    return [Sentence(f"{directory}: {held}"), *notes(summary["notes"]), *left_out]


def plans(results: Plans) -> list[Part]:
    """How many starts and takes each policy needs, and for what."""
    bases = dict.fromkeys(f"From {one.basis}, with {one.plan.seeds} seeds per start:" for one in results)
    parts: list[Part] = [*(Sentence(line, "none") for line in bases), results.table]
    for one in results:
        parts += [Sentence(_advice(one), name=one.name), Sentence(f"besttake diagnose {one.flags}", exact=True)]
    return parts


def _advice(result: PlanResult) -> str:
    """What is open, and what more seeds or starts are worth."""
    plan, lines = result.plan, []
    if result.cautious is not None:
        lines.append(f"If all starts were equally hard: {count(result.cautious.half_width_takes, 'take')}.")
    lines += [f"{words.QUESTIONS[name]} {words.further(starts)}." for name, starts in result.further.items()]
    if result.available is not None and result.available < plan.half_width_starts:
        lines.append(f"There are {count(result.available, 'start')} in all: add tasks, or let the env offer more.")
    shared = f"{count(result.tasks, 'task')}" if result.tasks > 1 else "one task (more share the starts)"
    return " ".join([*lines, f"{words.advice(plan)}.", f"With {shared}:"])


def ranking(result: RankResult) -> list[Part]:
    """What was compared, takes from best to worst, then the notes."""
    about = f"by {result.scorer} on the window {result.window}, frames embedded by {result.encoder}"
    return [Sentence(about), result.table, *notes(result.notes)]


def protocol_list(protocols: Sequence[Protocol]) -> list[Part]:
    """The tables that can be reproduced."""
    rows = [(Entry(one.name, "best"), one.title, Entry(", ".join(one.policies), "none")) for one in protocols]
    return [Table("", ("", "", Column("", extra=True)), rows)]


def protocol(one: Protocol) -> list[Part]:
    """The paper's numbers, the plan behind them, and the command that runs it."""
    import yaml

    rows = {
        row: [one.written(n, column) for n, column in zip(numbers, one.columns, strict=True)]
        for row, numbers in one.paper.items()
    }
    # On its side: some tables have more columns than a line has room for.
    head: Head = ["", *right(*rows)]
    lines = [(column, *(values[i] for values in rows.values())) for i, column in enumerate(one.columns)]
    own = {"actions executed of a chunk": one.chunk, "frames of the library": one.frames}
    settings = {"env": list(one.envs.values()), **one.plan, **own}
    settings = {name: value for name, value in settings.items() if value is not None}
    plan = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None).rstrip()
    run = f"besttake reproduce {one.name} --policy {one.policies[0]}=URI --demos URI -o runs/{one.name}"
    grid = Table("", head, lines)
    return [Sentence(one.title, "best"), grid, _BLANK, Sentence(plan, "none"), _BLANK, Sentence(run)]


def reproduction(result: ReproduceResult) -> list[Part]:
    """The paper's numbers beside ours with their intervals, then where the run deviates from the paper's protocol."""
    legend = "here with its 95 % interval; marked where the paper's number lies outside it"
    without = dict.fromkeys(n.here.reason for n in result.numbers if n.here.value is not None and n.here.reason)
    legend += f" ({'; '.join(without)})" if without else ""
    departures = [Sentence(text, "warn") for text in result.table.notes]
    return [Sentence(result.protocol.title, "best"), result.table, Sentence(legend, "none"), *departures]


def run_summary(summary: Summary) -> list[Part]:
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
    text += [f"failed {times} times: {reason}" for reason, times in summary.failures[:10]]
    head: Head = ["policy", "task", "arm", *right("done", "success", "failed", "missing")]
    return [Table("", head, rows), *map(Sentence, [*text, f"digest {summary.digest}"])]


def run_list(listed: RunList) -> list[Part]:
    """Every run with its policies and what they need."""
    if not listed.runs:
        return [Sentence("There are no runs here; `besttake diagnose` makes one.")]
    return [listed.table]


def scores(result: ScoreResult) -> list[Part]:
    """One table with a row per scorer, the highest gain first, for each policy; intervals are at 95 %."""
    every = [row for one in result.policies for row in one.rows]
    lines = list(map(_compared, result.policies))
    if any(row.own for row in every):
        lines.append("* the run's own scorer, by which its verdict picks")
    if any(row.leak for row in every):
        lines.append("! reads the length of a take, which can give the outcome away")
    return [result.table, *map(Sentence, lines), *notes(result.notes)]


def _compared(one: ScorerComparison) -> str:
    return (
        f"{one.policy}: best of {one.n} takes on {count(one.starts, 'start')}, window {one.window}; headroom"
        f" {estimate_points(one.headroom)}."
    )
