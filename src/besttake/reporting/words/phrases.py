"""Phrases that several sentences share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from besttake.core.planning import seeds_worth
from besttake.core.verdict import PAIRS
from besttake.reporting.numbers import count, estimate_points, number, sentence

if TYPE_CHECKING:
    from besttake.core.estimate import Finding, Forecast
    from besttake.core.planning import SampleSize
    from besttake.result import Cell, Decision

Tone = Literal["act", "open", "rest"]
PARTS = ("reuse", "retrieve", "combine")


def kept_of(cell: Cell) -> int:
    """Of how many takes one is kept."""
    return cell.headroom.n if cell.headroom is not None else cell.seeds


def say(finding: Finding | None) -> str:
    """The estimate of a finding in points."""
    return (estimate_points(finding.estimate) if finding is not None else "") or "nothing measurable"


def moved(questions: Mapping[str, Finding], names: Iterable[str]) -> list[str]:
    """A sentence for each of the questions ``names`` whose estimate later starts moved across what is worth it."""
    said = []
    for name in names:
        finding = questions.get(name)
        if finding is None or finding.when_answered is None:
            continue
        what, before = _GAINS.get(name, f"the gain of `{name}`"), finding.when_answered
        then, now = (number(value, signed=True, scale=100) for value in (before.value, finding.estimate.value))
        if finding.answer == "yes":
            side = "below what is worth acting on: that it is above 0 holds, that it is large enough is less sure"
            text = f"{what} was shown after {before.n} starts, at {then} points; all starts give {now}, {side}"
        else:
            side = "no longer below what is worth acting on, so that the answer is less sure"
            text = f"{what} was ruled out after {before.n} starts, at {then} points; all starts give {now}, {side}"
        said.append(sentence(text))
    return said


_GAINS = {
    "headroom": "the headroom", "gain": "the gain of keeping the best", "retrieve": "the gain of retrieval",
    "cooled": "the gain of cooling", "content": "the gain of what is retrieved over cooling",
    "combine": "the gain of retrieval beyond selection", "combine_cooled": "the gain of cooling beyond selection",
    "retrieve_selection": "the gain of selection beyond retrieval",
    "cooled_selection": "the gain of selection beyond cooling",
}  # fmt: skip
RESTS_ON = {
    "reuse": ("headroom", "gain"),
    "retrieve": ("retrieve", "cooled", "content"),
    "combine": tuple(name for names in PAIRS.values() for name in names),
}
"""The questions that each part of a verdict rests on."""


def gain_of(decision: Decision) -> str:
    """What a decision gains, in points."""
    return estimate_points(decision.gain) or "an unknown gain"


def price_of(takes: float, arm: str) -> str:
    """What running an arm costs; retrieval also searches the library, and samples twice, whenever it replans."""
    executions = f"{takes:g}\N{MULTIPLICATION SIGN} the executions" if takes > 1 else "no further executions"
    return f"{executions} and a library to search" if arm.partition("?")[0] == "retrieve" else executions


def more_starts(decision: Decision, form: str = "; {}") -> str:
    """The forecast of a decision within ``form``; empty where there is none."""
    more = further(decision.further)
    return form.format(more) if more else ""


def further(forecast: Forecast | None) -> str:
    """``40 to 210 more starts are likely to settle it``; empty where there is no forecast."""
    if forecast is None:
        return ""
    if forecast.most == 0:
        return "there are no more starts"
    if forecast.low is None:
        return f"not likely to be settled within {count(forecast.most, 'more start')}"
    if forecast.high is None:
        return f"{forecast.low} or more further starts are needed, perhaps over {forecast.most}"
    if forecast.low == forecast.high:
        more = "1 more start is" if forecast.low == 1 else f"about {forecast.low} more starts are"
        return f"{more} likely to settle it"
    return f"{forecast.low} to {forecast.high} more starts are likely to settle it"


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
