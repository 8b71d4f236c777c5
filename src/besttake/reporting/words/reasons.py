"""Why a part of a verdict is as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from besttake.core.verdict import PAIRS
from besttake.reporting.numbers import sentence, whole_points
from besttake.reporting.words.phrases import RESTS_ON, kept_of, more_starts, moved, say

if TYPE_CHECKING:
    from besttake.core.estimate import Finding
    from besttake.result import Cell, Decision, Verdict


def because(name: str, cell: Cell, worth: float) -> str:
    """Why a part of the verdict is as it is, with the control that decided it; results of old keep their sentence."""
    assert cell.verdict is not None
    decision: Decision = getattr(cell.verdict, name)
    if not decision.reason:
        return decision.because
    why = {"reuse": _why_reuse, "retrieve": _why_retrieve, "combine": _why_combine}[name](cell, cell.verdict, worth)
    if cell.verdict.looked > 1 and decision.answer != "not-measured":
        why += f" Looked at {cell.verdict.looked} times: a test that holds over all looks decides."
    return " ".join([why, *moved(cell.verdict.questions, RESTS_ON[name])])


def _why_reuse(cell: Cell, verdict: Verdict, worth: float) -> str:
    n, asked, decision, least = kept_of(cell), verdict.questions, verdict.reuse, whole_points(worth)
    headroom, gain, shortest = (say(asked.get(name)) for name in ("headroom", "gain", "shortest"))
    match decision.reason:
        case "identical-takes":
            return "The takes of a start are identical, so there is nothing to choose from."
        case "one-take":
            return "One take per start cannot show headroom: run at least two seeds."
        case "no-headroom":
            return f"Even an oracle that keeps the best of {n} takes gains {headroom}, less than the {least} worth \
acting on."
        case "no-score":
            scored = cell.selectors.scored.values() if cell.selectors is not None else ()
            others = any(one.gain.value is not None for windows in scored for one in windows.values())
            lost = f"no take has a score by {cell.scorer}" if others else "no score was measured"
            return f"One of {n} takes succeeds more often than a single one by {headroom}, but {lost}. Scores need \
demonstrations, or a scorer that works without them."
        case "length-leak":
            return f"Keeping the shortest take gains {shortest}, the score {gain}, and episodes stop at success: \
length may give the outcome away, so a window that hides it must decide."
        case "gain":
            text = f"Against a random take, keeping the best-scored of {n} gains {gain}; an oracle gains {headroom}"
        case "not-ranked":
            text = f"The takes hold {headroom} of headroom, but against a random take the score gains {gain}: it does \
not find the headroom"
        case "small-gain":
            return f"Against a random take the score gains {gain}, less than the {least} worth acting on; headroom, \
{headroom}, is not shown to reach that either."
        case _:
            text = f"Against a random take the score gains {gain} of {headroom} of headroom, which neither shows a \
gain nor rules one out{_open(decision, asked.get('gain'))}"
    if verdict.leak and cell.window != "episode":
        text += f"; the shortest take gains {shortest}, as much or more, so length alone tells success here and a gain \
on whole episodes would prove nothing"
    return f"{text}."


def _why_retrieve(cell: Cell, verdict: Verdict, worth: float) -> str:
    asked, decision, least = verdict.questions, verdict.retrieve, whole_points(worth)
    full, cooled, content = (say(asked.get(name)) for name in ("retrieve", "cooled", "content"))
    match decision.reason:
        case "not-run" | "cooled-only":
            left = "left out: at held-out demonstrations nothing that was tried beats cooling"
            text = f"the arm `retrieve` was {left if verdict.left_out else 'not run'}."
            if decision.reason == "not-run":
                return sentence(text)
            return f"Cooling alone gains {cooled} over base{_open(decision, asked['cooled'])}; {text}"
        case "no-control":
            return f"Retrieval gains {full} over base, but without the arm `cooled` nothing tells retrieved content \
from calmer noise."
        case "small-gain":
            both = f" and `cooled` {cooled}, both" if "cooled" in asked else ","
            return f"Against base, retrieval gains {full}{both} less than the {least} worth acting on."
        case "content":
            text = f"Against `cooled`, retrieved content gains {content}, and {full} over base"
        case "together":
            text = f"Against base, retrieval gains {full}, of which `cooled` gives {cooled} and what is retrieved \
{content}: neither is shown to be worth acting on alone, the two together are"
        case "cooling":
            out = f"retrieved content adds {content}" if asked["content"].answer == "no" else f"retrieval gains {full}"
            return f"`cooled` decides: calmer noise alone gains {cooled} over base, and {out}, less than the {least} \
worth acting on."
        case "choice":
            known = {"retrieve": f"retrieval {full}", "cooled": f"`cooled` {cooled}"}
            shown = [text for name, text in known.items() if asked[name].answer == "yes"]
            gains = f"{' and '.join(shown)} {'is' if len(shown) == 1 else 'are'} shown to gain"
            three = [asked.get(name) for name in ("cooled", "content")]
            return f"Against base, {gains}, so to act is right. Which of the two is better is open: \
against `cooled`, retrieved content adds {content}{_open(decision, *three)}."
        case _:
            three = [asked.get(name) for name in ("retrieve", "cooled", "content")]
            return f"Retrieval gains {full} over base and {content} over `cooled`, which itself gains {cooled}: not \
enough to tell{_open(decision, *three)}."
    if verdict.any_chunk:
        text += f", but only {say(asked['beyond_shuffled'])} against `shuffled`: any demonstration chunk may do"
    return f"{text}."


def _why_combine(cell: Cell, verdict: Verdict, worth: float) -> str:
    asked, decision = verdict.questions, verdict.combine
    if decision.reason == "not-run":
        return "Selection on the takes of `retrieve` or `cooled` was not measured."
    if decision.reason == "one-take":
        return "One take per start leaves nothing to choose from: run at least two seeds."
    shown = [arm for arm in PAIRS if PAIRS[arm][0] in asked and decision.arm in ("", arm)]
    text = "; ".join(_pair(arm, asked, kept_of(cell), whole_points(worth)) for arm in shown)
    if decision.reason == "composes":
        text += ": the two compose"
    elif decision.reason != "small-gain":
        text += f": not enough to tell{_open(decision, *(asked.get(name) for arm in shown for name in PAIRS[arm]))}"
    if verdict.by_cooling:
        text += f", though against selection on `cooled` takes retrieving gains {say(asked['combine_content'])}, so \
cooling may do as well"
    return sentence(text)


def _pair(arm: str, asked: Mapping[str, Finding], n: int, least: str) -> str:
    """What an arm and selection do together, against either alone, and against which of them it is ruled out."""
    kind = {"retrieve": "retrieval", "cooled": "cooled"}[arm]
    pair, alone = (asked.get(name) for name in PAIRS[arm])
    text = f"against selection alone, selecting among {n} {kind} takes gains {say(pair)}{_less(pair, least)}"
    if alone is not None:
        text += f", and against {'cooling' if arm == 'cooled' else kind} alone {say(alone)}{_less(alone, least)}"
    return text


def _less(finding: Finding | None, least: str) -> str:
    ruled_out = finding is not None and finding.answer == "no"
    return f", less than the {least} worth acting on" if ruled_out else ""


def _open(decision: Decision, *findings: Finding | None) -> str:
    """Why an undecided question is open although an interval leaves out zero, and how many more starts settle it."""
    missed = [
        f.p_not_above_zero for f in findings if f is not None and f.answer == "undecided" and (f.estimate.low or 0) > 0
    ]
    text = ""
    if missed and min(missed) > 0.05:
        text = f" (the exact test, stricter than the interval when few starts are mixed, gives p = {min(missed):.2f})"
    return f"{text}{more_starts(decision)}"
