"""Make the tables of a result for the page, Markdown, notebooks, the terminal and CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from besttake.arms import BASE
from besttake.reporting.numbers import count, interval, number, plus_minus
from besttake.reporting.table import Column, Entry, Head, Table, in_percent, in_points, plain, right
from besttake.reporting.words import (
    headline,
    in_short,
    needs_text,
    noise_of,
    option_advice,
    overview,
    promises_nothing,
    retrieval_name,
)
from besttake.reporting.words import tone as tone_of

if TYPE_CHECKING:
    from besttake.core.offline import RetrievalCheck
    from besttake.result import Cell, Estimate, Result
    from besttake.verbs.compare import Change

_TONES = {"act": "better", "open": "warn", "rest": "none"}
CHECK_LEGEND = (
    "Error: how far one sample is from what was demonstrated at the same state, in standard deviations of the actions;"
    " its own demonstration is left out. Added: the change against cooling at the same noise. Reach: how far the"
    " retrieved chunk moves the sample, over the policy's own spread."
)


def gain_headroom(cell: Cell) -> tuple[Estimate | None, Estimate | None]:
    """Return headroom and the gain of the chosen selector; None if they were not measured."""
    if cell.headroom is None or cell.selectors is None:
        return None, None
    return cell.headroom.headroom, cell.chosen.gain if cell.chosen else None


def rates(cell: Cell) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """Return pass@1, pass@N and headroom of a cell; None if they were not measured."""
    room = cell.headroom
    return (None, None, None) if room is None else (room.pass_1, room.pass_n, room.headroom)


def summary(result: Result, shown: Sequence[Cell]) -> Table:
    """Show one line per cell: success with one take and as recommended, what to do, the gain, and the cost."""
    rows = []
    for cell in shown:
        verdict, gain, cost, what = cell.verdict, "", "", "nothing measured"
        if verdict is not None:
            option = verdict.options[0] if promises_nothing(verdict) else verdict.recommended
            if option != verdict.options[0]:
                gain = _whole_points(verdict.gain)
            cost = "not decided" if verdict.answer == "open" else count(option.takes, "take")
            what = in_short(option, noise_of(result, cell.policy))
        name = Entry(cell.policy, "best") if cell.group == "*" else f"  {cell.group}"
        rows.append((name, success(cell), Entry(what, _TONES[tone_of(cell)]), gain, cost))
    return Table("", [""] * 5, rows)


def success(cell: Cell) -> str:
    """``34 % -> 81 %``: the success of one take, and of the recommended option."""
    verdict, now = cell.verdict, _whole_percent(rates(cell)[0])
    if verdict is None or verdict.option == verdict.options[0].name or promises_nothing(verdict):
        return now
    return f"{now} -> {_whole_percent(verdict.success)}"


def _whole_percent(estimate: Estimate | None) -> str:
    return "-" if estimate is None or estimate.value is None else f"{100 * estimate.value:.0f} %"


def _whole_points(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return ""
    value, low, high = (round(100 * end) for end in (estimate.value, estimate.low, estimate.high))
    return f"{value:+d} [{low}, {high}]"


def verdicts(result: Result) -> Table:
    """Show the main numbers of every policy, with its headline."""
    sentences = [f"{cell.policy}: {headline(cell)}" for cell in result.policies]
    return replace(cells(result.policies), heading=overview(result), notes=sentences)


def numbers(result: Result) -> Table:
    """Show a row per cell and number, with its interval: policies first (their group is ``*``)."""
    rows = [
        (cell.policy, cell.env, cell.group, cell.starts, cell.seeds, name, estimate.value, estimate.low, estimate.high)
        for cell in (*result.policies, *result.cells)
        for name, estimate in _numbers(cell)
    ]
    return Table("Cells", ("policy", "env", "group", "starts", "seeds", "number", "value", "low", "high"), rows)


def _numbers(cell: Cell) -> list[tuple[str, Estimate]]:
    """List the numbers of a cell under the names that the CSV file gives them."""
    numbers: dict[str, Estimate | None] = {}
    if cell.headroom is not None:
        numbers |= {"pass@1": cell.headroom.pass_1, "pass@N": cell.headroom.pass_n, "headroom": cell.headroom.headroom}
    if cell.selectors is not None:
        for scorer, windows in cell.selectors.scored.items():
            numbers |= {f"select gain, {scorer} {window}": selector.gain for window, selector in windows.items()}
        numbers["shortest gain"] = cell.selectors.shortest.gain
    for name, arm in cell.arms.arms.items() if cell.arms is not None else ():
        numbers |= {
            f"{name} success": arm.pass_1,
            f"{name} gain": arm.gain,
            f"{name} best take gain": arm.selected_gain,
        }
    if cell.arms is not None:
        numbers |= {"content gain": cell.arms.content, "combine gain": cell.arms.combine}
    if cell.dfe is not None:
        numbers |= {"DFE": cell.dfe.dfe, "DFE floor": cell.dfe.floor, "DFE / floor": cell.dfe.ratio}
    return [(name, estimate) for name, estimate in numbers.items() if estimate is not None]


def options(cell: Cell) -> Table:
    """Show the options of a verdict: success, gain, whether they are worth it, and which is recommended."""
    assert cell.verdict is not None
    advice, rows = option_advice(cell.verdict), []
    for i, option in enumerate(cell.verdict.options):
        success, gain = cell.verdict.shown_as(option)
        name = Entry(option.name, "best" if option.name == cell.verdict.option else "")
        worth_it = "shown" if option.shown else option.answer
        over = (in_points(gain), worth_it) if i else ("", "")
        rows.append((name, option.takes, in_percent(success), *over, advice.get(option.name, "")))
    return Table("", ("option", "takes", "success", "gain, points", "worth it", "advice"), rows)


def scorers(cells: list[Cell]) -> Table:
    """Show every scorer on the window that the verdict reads, beside the controls."""
    rows: list[tuple[object, ...]] = []
    for cell in cells:
        assert cell.selectors is not None
        for name, windows in cell.selectors.scored.items():
            if (selector := windows.get(cell.window)) is None:
                continue
            within = cell.ranking.within.get(name, {}).get(cell.window) if cell.ranking else None
            label = Entry(f"{name} (picks)", "best") if name == cell.scorer else name
            entries = in_percent(selector.success), in_points(selector.gain), plain(selector.capture)
            rows.append((cell.policy, label, *entries, plain(within)))
        for name in ("random", "shortest", "oracle"):
            control = getattr(cell.selectors, name)
            entries = in_percent(control.success), in_points(control.gain), plain(control.capture)
            rows.append((cell.policy, Entry(name, "none"), *entries, ""))
    return Table("", ("policy", "scorer", "success", "gain, points", "capture", "AUC within starts"), rows)


def arms(cell: Cell) -> Table:
    """Show the success of each arm, its gain over base, that of its best take, and the gains over its controls."""
    rows: list[tuple[object, ...]] = [
        (
            name, in_percent(arm.pass_1), plus_minus(arm.seed_sd), "" if name == BASE else in_points(arm.gain),
            plus_minus(arm.gain_seed_sd), in_points(arm.selected_gain),
        )
        for name, arm in (cell.arms.arms.items() if cell.arms is not None else ())
    ]  # fmt: skip
    if cell.arms is not None:
        gains = {"retrieve − cooled": cell.arms.content, "retrieve on best take": cell.arms.combine}
        controlled = {f"{name} − {arm.control}": arm.beyond_control for name, arm in cell.arms.controlled.items()}
        for name, gain in (gains | controlled).items():
            if gain is not None and gain.value is not None:
                rows.append((Entry(name, "best"), "", "", in_points(gain), "", ""))
    head = ("arm", "pass@1", "sd over seeds", "minus base", "sd over seeds", "best take minus base")
    return Table("", head, rows)


def fit(cells: list[Cell]) -> Table:
    """Show the demonstration-fit error of each policy, and its ratio to the library's own floor."""
    rows: list[tuple[object, ...]] = []
    for cell in cells:
        dfe = cell.dfe
        if dfe is None or (dfe.dfe.value is None and dfe.reason):
            rows.append((cell.policy, Entry(dfe.reason if dfe else "not measured", "none"), "", "", "", ""))
        else:
            rows.append((cell.policy, *map(plain, (dfe.dfe, dfe.floor, dfe.ratio, dfe.correlation, dfe.spread))))
    return Table("", ("policy", "DFE", "floor", "ratio", "first action r", "spread"), rows)


def cells(of: list[Cell]) -> Table:
    """Show the main numbers of every cell."""
    rows = []
    for cell in of:
        leak = "; the shortest take does as well" if cell.verdict and cell.verdict.leak else ""
        first, best, room = rates(cell)
        gain, capture = (cell.chosen.gain, cell.chosen.capture) if cell.chosen else (None, None)
        rows.append((
            cell.policy, cell.group, cell.starts, cell.takes, cell.errors, in_percent(first), in_percent(best),
            in_points(room), in_points(gain), plain(capture), Entry(needs_text(cell) + leak, "warn" if leak else ""),
        ))  # fmt: skip
    head = ("policy", "tasks", "starts", "takes", "errors", "pass@1", "pass@N", "headroom", "gain", "capture")
    return Table("", (*head, "verdict"), rows)


def tasks(of: list[Cell]) -> Table:
    """Show the main numbers of every task of every cell."""
    rows = [
        (
            cell.policy, line.task, line.starts, line.takes, line.errors, in_percent(line.pass_1),
            in_percent(line.pass_n), in_points(line.gain),
        )
        for cell in of
        for line in cell.tasks
    ]  # fmt: skip
    return Table("", ("policy", "task", "starts", "takes", "errors", "pass@1", "pass@N", "gain"), rows)


def within_policies(result: Result) -> Table:
    """Show the correlation of gain and headroom within each policy, and over all others."""
    relation = result.relation
    names = dict.fromkeys(cell.policy for cell in result.policies)
    rows = [(name, _r(relation.within.get(name)), _r(relation.leave_one_out.get(name))) for name in names]
    return Table("", ("policy", "r within", "r without it"), rows)


def _r(estimate: Estimate | None) -> Entry:
    return plain(estimate) if estimate is not None and estimate.value is not None else Entry("undefined", "none")


def check(tried: RetrievalCheck) -> Table:
    """Show what was tried at held-out demonstrations: first without retrieval, then each configuration of it."""

    def row(label: str, *texts: str, chosen: bool = False) -> list[Entry]:
        padded = (label, *texts, *[""] * (5 - len(texts)))
        return [Entry(text, "best" if chosen else "") for text in padded]

    rows = [row("mean action", _error(tried.mean_action)), row(BASE, _error(tried.base))]
    rows += [
        row(f"noise {noise:g}", _error(error), chosen=noise == tried.noise)
        for noise, error in tried.cooled.items()
        if noise != 1
    ]
    for trial in tried.tried:
        texts = _error(trial.error), _added(trial.added), number(trial.reach, 2), _error(trial.chunk)
        helps = "helps" if trial.helps else ""
        rows.append(row(retrieval_name(trial.config), *texts, helps, chosen=trial.config == tried.chosen))
    for name, group in tried.groups.items():
        prior = f"prior {group.prior:g}" if group.prior else "no prior"
        rows.append(row(f"in {name}: {prior}", "", _added(group.added)))
    extra = [Column(name, right=True, extra=True) for name in ("reach", "chunk alone")]
    return Table("", ("tried", Column("error", right=True), "added", *extra, ""), rows)


def _error(estimate: Estimate) -> str:
    return number(estimate.value, 3) or estimate.reason or "-"


def _added(estimate: Estimate) -> str:
    if estimate.value is None:
        return estimate.reason or "-"
    return f"{number(estimate.value, 3, signed=True)} {interval(estimate.low, estimate.high, digits=3)}".strip()


def changes(compared: Sequence[Change], first: str, second: str) -> Table:
    """Show every number that two runs have in common, and how it changed, in points."""
    rows = [
        (
            " → ".join(dict.fromkeys(row.policies)), row.group, f"{row.arm} {row.number}", _whole_percent(row.before),
            _whole_percent(row.after), in_points(row.change),
            Entry(row.shown or "open", "none" if row.same else row.shown or "none"), row.starts,
        )
        for row in compared
    ]  # fmt: skip
    head: Head = ["policy", "tasks", "of", *right(first, second, "change"), "shown", *right("starts", extra=True)]
    return Table("", head, rows)
