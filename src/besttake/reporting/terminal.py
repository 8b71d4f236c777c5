"""What each command prints, as tables and sentences, and how they are laid out on a terminal.

A row of a table stands on one line if it can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from besttake.arms import BASE
from besttake.core.offline import RetrievalCheck
from besttake.reporting import tables, words
from besttake.reporting.drawing import shorten
from besttake.reporting.numbers import (
    count,
    estimate_plain,
    estimate_points,
    interval,
    number,
    percent,
    sentence,
    whole_points,
)
from besttake.reporting.table import Column, Entry, Head, Table, right, worded
from besttake.result import Cell, Estimate, Result

if TYPE_CHECKING:
    from besttake.conventions import Aspect
    from besttake.demos.library import Library
    from besttake.measure.rescore import ScorerComparison, ScorerRow
    from besttake.verbs.compare import CompareResult
    from besttake.verbs.doctor import DoctorResult, Pairing
    from besttake.verbs.ingest import IngestResult
    from besttake.verbs.plan import PlanResult
    from besttake.verbs.probe import ProbeResult
    from besttake.verbs.rank import RankResult
    from besttake.verbs.replay import ReplayResult
    from besttake.verbs.reproduce import Protocol, ReproduceResult
    from besttake.verbs.runs import RunList, Summary
    from besttake.verbs.score import ScoreResult

_STYLES = {"best": "bold", "better": "green", "worse": "red", "warn": "yellow", "none": "dim", "": ""}
_GAP = 2
_TONES = {"act": "better", "open": "warn", "rest": "none"}


@dataclass(frozen=True)
class Sentence:
    """A sentence under the ``name`` of what it is about; ``mark`` as in `Entry`. ``indent``: columns before it."""

    text: str
    mark: str = ""
    name: str = ""
    indent: int = 0


Part = Table | Sentence


def notes(lines: Sequence[str]) -> list[Part]:
    """Lines of lesser weight below a table."""
    return [Sentence(f"note: {line}", "none") for line in lines]


def layout(parts: Sequence[Part], width: int) -> RenderableType:
    """Parts one below the other on lines of ``width`` columns. Text is never read as markup."""
    return Group(*(_grid(part, width) if isinstance(part, Table) else _text(part) for part in parts))


def _text(part: Sentence) -> RenderableType:
    name = f"{part.name}: " if part.name and part.text else part.name
    text = Text.assemble((name, "bold"), (part.text, _STYLES[part.mark]))
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
        grid.add_column(Text(columns[i].name), justify="right" if columns[i].right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(row[i].text, style=_STYLES[row[i].mark]) for i in shown))
    return grid


_BLANK = Sentence("")
_SCREEN = 16
"""Tables of `ingest` have at most so many rows on a terminal; the report has all of them."""


def diagnosis(result: Result) -> list[Part]:
    """Policies with their cells and what each needs, one sentence per policy, and what else is worth knowing."""
    shown: list[Cell] = []
    for policy in result.policies:
        own = [cell for cell in result.cells if cell.policy == policy.policy]
        shown += [policy, *own] if len(own) > 1 else [policy]
    n = max((cell.headroom.n if cell.headroom else cell.seeds for cell in result.cells), default=1)
    arms = list(dict.fromkeys(arm for cell in result.cells if cell.arms for arm in cell.arms.arms if arm != BASE))
    head: Head = ["policy / task", *right("pass@1", f"pass@{n}"), "needs", *right("gain")]
    head += right("select", *arms, "content", "shortest", "DFE/floor", extra=True)
    parts: list[Part] = [Table("", head, [_diagnosed(cell, arms) for cell in shown])] if shown else []
    for policy in result.policies:
        below = [Sentence(sentence(note), "warn", indent=2) for note in policy.notes]
        if policy.verdict is not None:
            more = [Sentence(line, "none", indent=2) for line in words.more(policy)]
            parts += [_BLANK, Sentence(words.headline(policy), name=policy.policy), *more, *below]
        elif below:
            parts += [_BLANK, Sentence("", name=policy.policy), *below]
    rules = dict.fromkeys(filter(None, map(words.rule, result.policies)))
    parts += [_BLANK, *(Sentence(line, "none") for line in rules)]
    relation = result.relation
    if relation.r is not None and relation.interval is not None:
        span = f"{interval(*relation.interval, digits=2)} ({words.about_interval(relation)})"
        parts.append(Sentence(f"Gain against headroom over {relation.cells} cells: r = {relation.r:.2f} {span}"))
    failed = f", {result.cost.errors} failed" if result.cost.errors else ""
    took = f"{result.cost.takes} takes{failed}, {sum(result.cost.seconds.values()):.0f} s"
    return [*parts, Sentence(f"success in %, gains in points with 95 % intervals; {took}", "none")]


def undecided(result: Result) -> bool:
    """Whether any policy's verdict is open, or leaves a question open."""
    verdicts = [policy.verdict for policy in result.policies if policy.verdict is not None]
    return any("open" in (one.answer, *(answer.answer for answer in one.answers.values())) for one in verdicts)


def _diagnosed(cell: Cell, arms: Sequence[str]) -> list[Entry]:
    pooled, (first, best, _) = cell.group == "*", tables.rates(cell)
    own = cell.arms.arms if cell.arms else {}
    gains = [cell.chosen.gain if cell.chosen else None, *(own[arm].gain if arm in own else None for arm in arms)]
    gains.append(cell.arms.content if cell.arms else None)
    gains.append(cell.selectors.shortest.gain if cell.selectors else None)
    return [
        Entry(_short(cell.policy) if pooled else f"  {cell.group}", "best" if pooled else ""),
        _whole(first), _whole(best),
        Entry(words.needs_text(cell), _TONES[words.tone(cell)]),
        _gain(cell.verdict.gain if cell.verdict and cell.verdict.option != BASE else None), *map(_gain, gains),
        _whole(cell.dfe.ratio if cell.dfe else None, 1, 2),
    ]  # fmt: skip


def _short(name: str) -> str:
    """A policy's name without its middle where it is long."""
    return name if len(name) <= 24 else f"{name[:8]}…{name[-15:]}"


def _whole(estimate: Estimate | None, scale: float = 100, digits: int = 0) -> Entry:
    if estimate is None or estimate.value is None:
        return Entry("-", "none")
    return Entry(f"{scale * estimate.value:.{digits}f}")


def _gain(estimate: Estimate | None) -> Entry:
    """A gain in whole points with its interval, marked where the interval leaves out zero."""
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return Entry("-", "none")
    value, low, high = (round(100 * end) for end in (estimate.value, estimate.low, estimate.high))
    return Entry(f"{value:+d} [{low}, {high}]", "best" if estimate.low > 0 or estimate.high < 0 else "")


def probe(result: ProbeResult) -> list[Part]:
    """The demonstration-fit error of each policy and cell, and the check of retrieval for each policy."""
    return [result.table, *checked(result.checks)]


def checked(tried: Mapping[str, RetrievalCheck]) -> list[Part]:
    """What retrieval does for each policy at held-out demonstrations, what was chosen in bold."""
    parts: list[Part] = []
    for uri, check in tried.items():
        parts += [_BLANK, Sentence(f"{uri}: {words.check_sentence(check)}", "best")]
        parts += [] if check.reason else [tables.check(check), Sentence(tables.CHECK_LEGEND, "none")]
    return parts


def comparison(result: CompareResult) -> list[Part]:
    """What changed between two runs, the relation in words, every cell, and the correlations of each policy."""
    relation, parts, changes = result.result.relation, list[Part](), result.changes
    if changes:
        legend = "changes in points with 95 % intervals, start by start where shared"
        parts += [tables.changes(changes, "first", "second"), Sentence(legend, "none"), _BLANK]
    # Of two runs one wants to know what changed; too few cells for a relation are not worth a line there.
    related = not changes or relation.r is not None
    if related:
        parts += [*(Sentence(line) for line in (*words.relation(relation), *words.across(result.across))), _BLANK]
    parts.append(result.table)
    if related and relation.within:
        parts += [_BLANK, tables.within_policies(result.result)]
    return [*parts, *notes(result.result.notes)]


def doctor(result: DoctorResult) -> list[Part]:
    """Checks as a table; below it, whether the named demonstrations, policy and env fit."""
    rows: list[Sequence[Any]] = []
    group = ""
    # Who asks about parts has no use for a list of what works.
    for check in (check for check in result.checks if result.pairing is None or not check.works):
        if check.group != group:
            group = check.group
            rows.append(("", Entry(group, "best"), "", ""))
        mark = Entry("ok", "better") if check.works else Entry("no", "warn")
        rows.append((mark, check.name, check.detail if check.works else check.mend or check.detail, check.detail))
    head = ("", "what", "found, or how to get it", Column("detail", extra=True))
    parts: list[Part] = [Table("", head, rows)] if rows else []
    return parts + (_pairing(result.pairing) if result.pairing is not None else [])


def _pairing(pairing: Pairing) -> list[Part]:
    """Names and lists of tasks are long: they stand above and below the table, whose columns stay narrow."""
    sides = (("demonstrations", pairing.demos), ("policy", pairing.policy), ("env", pairing.env))
    kinds = {kind: name for kind, name in sides if name}
    lines = [line for line in pairing.lines if any(pairing.sides(line))]
    rows = [_paired(pairing, line) for line in lines if line.what != "tasks"]
    known = [line for line in pairing.conventions if {*pairing.sides(line)} - {"unknown", ""}]
    rows += [[Entry("conventions", "best"), *(Entry("") for _ in kinds)], *(_paired(pairing, line) for line in known)]
    parts: list[Part] = [Sentence(name, name=kind) for kind, name in kinds.items()]
    parts.append(Table("", ("", *kinds), rows))
    for line in (line for line in lines if line.what == "tasks"):
        own = zip(kinds, pairing.sides(line), strict=True)
        parts += [Sentence(f"tasks, {kind}: {names}") for kind, names in own if names]
    parts += [Sentence(problem, "worse") for problem in pairing.problems]
    if not pairing.problems and len(pairing.named) > 1:
        parts.append(Sentence("They fit.", "better"))
    asked = [line for line in pairing.conventions if line.compared and len(pairing.named) > 1]
    unsettled = [line.what for line in asked if "unknown" in pairing.sides(line)]
    unknown = [f"not known of all of them, so not compared: {', '.join(unsettled)}"] if unsettled else []
    return [*parts, *notes([*unknown, *pairing.notes])]


def _paired(pairing: Pairing, line: Aspect) -> list[Entry]:
    """What differs is marked, in words as well as in colour."""
    mark = "worse" if line.differs else ""
    what = f"{line.what} (DIFFERS)" if line.differs else line.what
    return [Entry(what, mark), *(Entry(side, mark) for side in pairing.sides(line))]


def ingested(read: IngestResult) -> list[Part]:
    """Tables per policy and per task, and what is not known."""
    result = read.result
    kinds = Counter(recording.format for recording in read.recordings)
    episodes: Counter[str] = Counter()
    for recording in read.recordings:
        episodes[recording.format] += len(recording.episodes)
    files = ", ".join(f"{kind} x {n} ({count(episodes[kind], 'episode')})" for kind, n in kinds.items())
    whole = read.table
    short = [row for row in whole.rows if row[1] == "all"] if len(whole.rows) > _SCREEN else whole.rows
    parts: list[Part] = [Sentence(files), replace(whole, rows=(short or whole.rows)[:_SCREEN])]
    lines = [
        (cell.policy, shorten(line.task, 40), line.starts, percent(line.pass_1.value), percent(line.pass_n.value))
        for cell in result.cells
        for line in cell.tasks
    ]
    if len(result.cells) < len(lines) <= _SCREEN - len(whole.rows):
        parts += [_BLANK, Table("", ("policy", "task", *right("starts", "pass@1", "pass@N")), lines)]
    said: dict[str, list[str]] = {}
    for cell in result.policies:
        first = [words.answers(cell, result.worth)[0].sentence] if cell.verdict is not None else []
        for line in (*first, words.audit(cell), *cell.notes):
            said.setdefault(line, []).append(cell.policy)
    parts += [Sentence(line, name=", ".join(names)) for line, names in said.items() if line]
    parts += [Sentence(line) for line in words.pools(result)]
    return [*parts, *notes(result.notes)]


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


def replayed(result: ReplayResult) -> list[Part]:
    """How many demonstrations succeeded again, and what became of the others."""
    again = f"{result.succeeded} of {len(result.replayed)} demonstrations replay to success in {result.env}"
    problems = Counter(demo.problem for demo in result.demos if demo.problem).most_common(5)
    lines = [f"{n} were not replayed: {problem}" for problem, n in problems]
    failed = [demo for demo in result.replayed if demo.success_step is None][:20]
    lines += [f"{demo.id} does not succeed again within its {demo.steps} steps" for demo in failed]
    return [Sentence(again), *(Sentence(line, "warn") for line in lines)]


def plans(results: Sequence[PlanResult]) -> list[Part]:
    """How many starts and takes each policy needs, and for what."""
    parts: list[Part] = []
    for result in results:
        parts += [Sentence("", name=result.name)] if result.name else []
        parts.append(Sentence(f"From {result.basis}, with {result.plan.seeds} seeds per start:", "none"))
        parts.append(Table("", (*right("starts", "takes"), "for"), _needed(result)))
        parts += [Sentence(line) for line in _advice(result)]
    return parts


def _needed(result: PlanResult) -> list[Sequence[Any]]:
    plan, worth = result.plan, whole_points(result.plan.worth)
    rows: list[Sequence[Any]] = [
        (plan.half_width_starts, plan.half_width_takes, f"+/- {worth} on the gain of the best of {plan.n}")
    ]
    if not result.further:
        if plan.yes_starts is not None:
            rows.append((plan.yes_starts, plan.yes_starts * plan.seeds, "deciding a gain as large as expected"))
        rows.append((plan.no_starts, plan.no_takes, f"ruling out {worth} if there is no gain"))
    content = result.content_starts
    rows.append((content, content * plan.seeds, f"+/- {worth} on retrieve minus cooled, at most, in each arm"))
    return rows


def _advice(result: PlanResult) -> list[str]:
    plan, lines = result.plan, []
    if result.cautious is not None:
        lines.append(f"If all starts were equally hard: {count(result.cautious.half_width_takes, 'take')}.")
    lines += [f"{words.QUESTIONS[name]} {words.further(starts)}." for name, starts in result.further.items()]
    if plan.starts is not None and plan.smallest_effect is not None:
        effect = number(plan.smallest_effect, 1, scale=100)
        lines.append(f"A budget of {count(plan.starts, 'start')} shows a gain of {effect} points in 4 of 5 runs.")
    if result.available is not None and result.available < (plan.starts or plan.half_width_starts):
        lines.append(f"There are {count(result.available, 'start')} in all: add tasks, or let the env offer more.")
    shared = f"with {count(result.tasks, 'task')}" if result.tasks > 1 else "with one task (more share the starts)"
    return [*lines, f"{words.advice(plan)}.", f"besttake diagnose … {result.flags}  {shared}"]


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
        row: [_paper_number(n, column, one) for n, column in zip(numbers, one.columns, strict=True)]
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
    rows, of = [], result.protocol
    for one in result.numbers:
        here, ends = one.here, one.paper_interval
        paper = one.paper if one.paper is None or ends is None else (one.paper, *ends)
        known = here.value is not None and here.low is not None and here.high is not None
        text = _paper_number((here.value, here.low, here.high) if known else here.value, one.column, of)
        outside = known and one.paper is not None and not (here.low or 0) <= one.paper <= (here.high or 0)
        mark = "warn" if outside else "" if text else "none"
        differs = Entry("outside" if outside else "", mark)
        rows.append((one.row, one.column, _paper_number(paper, one.column, of), Entry(text or "none", mark), differs))
    legend = "here with its 95 % interval; marked where the paper's number lies outside it"
    without = dict.fromkeys(n.here.reason for n in result.numbers if n.here.value is not None and n.here.reason)
    legend += f" ({'; '.join(without)})" if without else ""
    departures = [Sentence(f"not as in the paper: {text}", "warn") for text in result.departures]
    grid = Table("", ("", "", *right("paper", "here"), ""), rows)
    return [Sentence(of.title, "best"), grid, Sentence(legend, "none"), *departures]


def _paper_number(value: float | Sequence[float | None] | None, column: str, of: Protocol) -> str:
    if value is None:
        return ""
    if isinstance(value, Sequence):
        middle, *ends = (_paper_number(one, column, of) for one in value)
        return f"{middle} [{', '.join(ends)}]"
    if column in of.counts:
        return f"{value:.0f}"
    return f"{value:.3f}" if column in of.unitless else f"{value + 0.0:.1f}"


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
    several = len(result.policies) > 1
    rows = [
        (*([one.policy] if several else []), *values)
        for one in result.policies
        for values in (*map(_scorer, one.rows), ("shortest (control)", estimate_points(one.shortest, ""), *[""] * 5))
    ]
    head: Head = [*(["policy"] if several else []), "scorer", *right("gain over one take")]
    head += right("capture", "AUC", "harm", "minus the run's own", "s / take", extra=True)
    every = [row for one in result.policies for row in one.rows]
    lines = list(map(_compared, result.policies))
    if any(row.own for row in every):
        lines.append("* the run's own scorer, by which its verdict picks")
    if any(row.leak for row in every):
        lines.append("! reads the length of a take, which can give the outcome away")
    if result.trained is not None:
        learned = ", ".join(f"{task.task} ({task.successes} of {task.takes} takes)" for task in result.trained.tasks)
        lines.append(f"Trained on {learned}. Use it with --scorer {result.trained.uri}, on other starts.")
    return [Table("", head, rows), *map(Sentence, lines), *notes(result.notes)]


def _scorer(row: ScorerRow) -> tuple[str, ...]:
    marks = f"{' *' if row.own else ''}{' !' if row.leak else ''}"
    return (
        f"{row.scorer}{marks}", estimate_points(row.gain, ""), estimate_plain(row.capture), estimate_plain(row.auc),
        estimate_points(row.harm, "").removeprefix("+"), estimate_points(row.over_own, ""), number(row.seconds, 3),
    )  # fmt: skip


def _compared(one: ScorerComparison) -> str:
    return (
        f"{one.policy}: best of {one.n} takes on {count(one.starts, 'start')}, window {one.window}; headroom"
        f" {estimate_points(one.headroom)}."
    )
