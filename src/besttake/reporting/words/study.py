"""Sentences about a whole run: how much was run, and how gain goes with headroom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from besttake.core.planning import seeds_worth
from besttake.reporting.numbers import count, estimate_plain, interval, number

if TYPE_CHECKING:
    from besttake.core.planning import SampleSize
    from besttake.core.relation import Across
    from besttake.result import Relation, Result
    from besttake.verbs.compare import Change


def relation(measured: Relation) -> list[str]:
    """What the relation says, a sentence per test."""
    if measured.r is None:
        return [measured.reason or f"The relation needs at least three cells; this run has {measured.cells}."]
    disjoint = measured.disjoint
    span = f" {interval(*measured.interval, digits=2)}" if measured.interval else ""
    lines = [f"r = {number(measured.r, 2)}{span} over {count(measured.cells, 'cell')} ({about_interval(measured)})."]
    if spearman := estimate_plain(measured.spearman):
        lines.append(f"Spearman {spearman}.")
    if disjoint.mean is not None:
        r, splits = _mean_sd(disjoint.mean, disjoint.sd), count(disjoint.splits, "split")
        lines.append(f"With headroom and gain from disjoint halves of the starts: {r} ({splits}).")
    elif disjoint.reason:
        lines.append(f"Disjoint halves of the starts: {disjoint.reason}.")
    if measured.capture_mean is not None:
        capture = _mean_sd(measured.capture_mean, measured.capture_sd)
        lines.append(f"Selection captures {capture} of the headroom on average.")
    return lines


def across(measured: Across) -> list[str]:
    """What else holds over all cells, a sentence each."""
    lines, captures = [], measured.captures
    if captures.low is not None and captures.high is not None:
        cells = count(captures.cells, "cell")
        lines.append(f"Capture ranges from {number(captures.low, 2)} to {number(captures.high, 2)} over {cells}.")
    if r := estimate_plain(measured.retrieval):
        lines.append(f"Headroom against the gain of retrieval: r = {r}.")
    elif measured.retrieval.reason:
        lines.append(f"Headroom against the gain of retrieval: {measured.retrieval.reason}.")
    if auc := estimate_plain(measured.auc):
        takes = count(measured.takes, "take")
        without = f", {measured.invalid} without a valid score left out" if measured.invalid else ""
        lines.append(f"AUC of the score over all {takes} of all policies together: {auc}{without}.")
    return lines


def _mean_sd(mean: float, sd: float | None) -> str:
    return number(mean, 2) + (f" ± {number(sd, 2)}" if sd is not None else "")


def about_interval(measured: Relation) -> str:
    """What the interval of r resamples, or why there is none."""
    if measured.interval is not None:
        return "interval over cells and their starts"
    return measured.reason or "no interval"


def overview(result: Result) -> str:
    """How much was run, in one line."""
    starts = {(line.env, line.task): line.starts for cell in result.policies for line in cell.tasks}
    parts = [count(len(result.policies), "policy", "policies"), count(len(starts), "task")]
    parts += [count(sum(starts.values()), "start"), count(result.cost.takes, "take")]
    return " · ".join([*parts, count(result.cost.errors, "error")] if result.cost.errors else parts)


def changed(changes: Sequence[Change]) -> list[str]:
    """How many numbers changed for sure from one run to the next, and how to read that."""
    known = [one for one in changes if one.change.value is not None]
    if not known:
        return ["Nothing that both runs measured can be compared."]
    better, worse = (sum(one.shown == way for one in known) for way in ("better", "worse"))
    rest, paired = len(known) - better - worse, sum(one.paired for one in known)
    how = "start by start"
    if not paired:
        how = "as independent rates, because the runs share no starts"
    elif paired < len(known):
        how = f"start by start where the runs share starts ({paired} of {len(known)}), else as independent rates"
    numbers = count(len(known), "number")
    return [
        f"Of {numbers}, {better} got better, {worse} got worse; {rest} {'is' if rest == 1 else 'are'} not shown to \
differ.",
        f"They are compared {how}. Each interval is a 95 % one by itself: of 20 numbers that did not change, about one \
looks changed.",
    ]


def advice(plan: SampleSize) -> str:
    """Whether a budget is better spent on seeds or on starts."""
    known = f"(within-start AUC {number(plan.within_auc, 2)})"
    match plan.advice:
        case "more-seeds":
            return f"5 seeds per start and fewer starts: the ranking is weak {known}, and a take is then worth \
{seeds_worth(5):.1f}x as much; for retrieval alone use the fewest seeds"
        case "more-starts":
            return f"3 seeds per start and more starts: the ranking is good {known}"
    return "3 seeds per start, as in the paper; once the ranking is measured, 5 pay off if it is weak"
