"""Every sentence about a verdict, made from the numbers and codes of a result; numbers first, in plain words.

The terminal, Markdown, HTML, notebooks and ``result.json`` (``headline`` and ``because``) all take theirs from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from besttake.core.planning import seeds_worth
from besttake.core.verdict import PAIRS
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

if TYPE_CHECKING:
    from besttake.core.estimate import Finding, Forecast
    from besttake.core.planning import SampleSize
    from besttake.core.relation import Across
    from besttake.result import Cell, Decision, Menu, Option, Relation, Result, Verdict

Tone = Literal["act", "open", "rest"]
PARTS = ("reuse", "retrieve", "combine")
QUESTIONS = {"reuse": "More takes?", "retrieve": "Demonstrations?", "combine": "Both?"}
BADGES = {
    "select": "run several takes",
    "unranked": "headroom, not found",
    "none": "no",
    "undecided": "undecided",
    "retrieve": "retrieve",
    "cool": "cool",
    "cool-or-retrieve": "cool or retrieve",
    "yes": "yes",
    "no": "no",
    "not-measured": "not measured",
}
_TONES: dict[str, Tone] = dict.fromkeys(("select", "retrieve", "cool", "cool-or-retrieve", "yes"), "act")
_TONES |= {"undecided": "open", "unranked": "open"}
NOTHING = "Leave it as it is: neither more takes, nor retrieval, nor calmer sampling is worth it."


@dataclass(frozen=True)
class Answer:
    """One part of a verdict as it is shown: the question, a badge, a sentence, the reason, and whether to act."""

    name: str
    question: str
    badge: str
    sentence: str
    because: str
    tone: Tone
    value: float | None = None


@dataclass(frozen=True)
class Need:
    """One word of what a cell needs, as tables show it."""

    text: str
    tone: Tone


def worded(cell: Cell, worth: float) -> Cell:
    """The cell with the sentences of its verdict filled in, as ``result.json`` keeps them."""
    if cell.verdict is None:
        return cell
    update: dict[str, object] = {"headline": _headline(cell)}
    for name in PARTS:
        update[name] = getattr(cell.verdict, name).model_copy(update={"because": because(name, cell, worth)})
    return cell.model_copy(update={"verdict": cell.verdict.model_copy(update=update)})


def answers(cell: Cell, worth: float) -> list[Answer]:
    """The three parts of a verdict in words."""
    shown = []
    for name in PARTS if cell.verdict is not None else ():
        decision: Decision = getattr(cell.verdict, name)
        badge, sentence = BADGES.get(decision.answer, decision.answer), _sentence(name, decision, cell, worth)
        why, tone = because(name, cell, worth), _TONES.get(decision.answer, "rest")
        shown.append(Answer(name, QUESTIONS[name], badge, sentence, why, tone, decision.gain.value))
    return shown


def needs(cell: Cell) -> list[Need]:
    """What a cell needs in a word or two: ``select, retrieve, combine``. Every table of cells shows these."""
    if cell.verdict is None:
        return [Need("nothing measured", "rest")]
    codes = [cell.verdict.reuse.answer, cell.verdict.retrieve.answer]
    shown = [Need(code.replace("-", " "), _TONES.get(code, "rest")) for code in codes]
    return [*shown, Need("combine", "act")] if cell.verdict.combine.answer == "yes" else shown


def needs_text(cell: Cell) -> str:
    """`needs` as one text."""
    return ", ".join(need.text for need in needs(cell))


def headline(cell: Cell) -> str:
    """The first sentence about a policy."""
    if cell.verdict is None:
        return state(cell) or "There is no verdict for this policy."
    return cell.verdict.headline or _headline(cell)


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


def because(name: str, cell: Cell, worth: float) -> str:
    """Why a part of the verdict is as it is, with the control that decided it; results of old keep their sentence."""
    assert cell.verdict is not None
    decision: Decision = getattr(cell.verdict, name)
    if not decision.reason:
        return decision.because
    why = {"reuse": _why_reuse, "retrieve": _why_retrieve, "combine": _why_combine}[name](cell, cell.verdict, worth)
    if cell.verdict.looked > 1 and decision.answer != "not-measured":
        why += f" Looked at {cell.verdict.looked} times: a test that holds over all looks decides."
    return why


def _why_reuse(cell: Cell, verdict: Verdict, worth: float) -> str:
    n, asked, decision, least = _kept_of(cell), verdict.questions, verdict.reuse, whole_points(worth)
    headroom, gain, shortest = (_say(asked.get(name)) for name in ("headroom", "gain", "shortest"))
    match decision.reason:
        case "identical-takes":
            return "The takes of a start are identical, so there is nothing to choose from."
        case "one-take":
            return "One take per start cannot show headroom: run at least two seeds."
        case "no-headroom":
            return f"Even an oracle that keeps the best of {n} takes gains {headroom}, less than the {least} worth \
acting on."
        case "no-score":
            return f"Headroom is {headroom}, but no score was measured, so nothing says whether a score finds it."
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
    full, cooled, content = (_say(asked.get(name)) for name in ("retrieve", "cooled", "content"))
    match decision.reason:
        case "not-run":
            also = f"; cooling alone gains {cooled} over base" if "cooled" in asked else ""
            return f"The arm `retrieve` was not run{also}."
        case "cooled-only":
            return f"Cooling alone gains {cooled} over base; the arm `retrieve` was not run."
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
            gains = " and ".join(text for name, text in known.items() if asked[name].answer == "yes")
            three = [asked.get(name) for name in ("cooled", "content")]
            return f"Against base, {gains} is shown to gain, so to act is right. Which of the two is better is open: \
against `cooled`, retrieved content adds {content}{_open(decision, *three)}."
        case _:
            three = [asked.get(name) for name in ("retrieve", "cooled", "content")]
            return f"Retrieval gains {full} over base and {content} over `cooled`, which itself gains {cooled}: not \
enough to tell{_open(decision, *three)}."
    if verdict.any_chunk:
        text += f", but only {_say(asked['beyond_shuffled'])} against `shuffled`: any demonstration chunk may do"
    return f"{text}."


def _why_combine(cell: Cell, verdict: Verdict, worth: float) -> str:
    asked, decision = verdict.questions, verdict.combine
    if decision.reason == "not-run":
        return "Selection on the takes of `retrieve` or `cooled` was not measured."
    shown = [arm for arm in PAIRS if PAIRS[arm][0] in asked and decision.arm in ("", arm)]
    text = "; ".join(_pair(arm, asked, _kept_of(cell)) for arm in shown)
    if decision.reason == "small-gain":
        text += f": less than the {whole_points(worth)} worth acting on"
    elif decision.reason == "composes":
        text += ": the two compose"
    else:
        text += f": not enough to tell{_open(decision, *(asked.get(name) for arm in shown for name in PAIRS[arm]))}"
    if verdict.by_cooling:
        text += f", though against selection on `cooled` takes retrieving gains {_say(asked['combine_content'])}, so \
cooling may do as well"
    return f"{text}."


def _pair(arm: str, asked: Mapping[str, Finding], n: int) -> str:
    """What an arm and selection do together, against either alone."""
    kind = {"retrieve": "retrieval", "cooled": "cooled"}[arm]
    pair, alone = (asked.get(name) for name in PAIRS[arm])
    text = f"against selection alone, selecting among {n} {kind} takes gains {_say(pair)}"
    if alone is not None:
        text += f", and against {'cooling' if arm == 'cooled' else kind} alone {_say(alone)}"
    return f"{text[0].upper()}{text[1:]}"


def _open(decision: Decision, *findings: Finding | None) -> str:
    """Why an undecided question is open although an interval leaves out zero, and how many more starts settle it."""
    missed = [
        f.p_not_above_zero for f in findings if f is not None and f.answer == "undecided" and (f.estimate.low or 0) > 0
    ]
    text = ""
    if missed and min(missed) > 0.05:
        text = f" (the exact test, stricter than the interval when few starts are mixed, gives p = {min(missed):.2f})"
    return f"{text}{_more(decision)}"


def _headline(cell: Cell) -> str:
    """The best option first; without one that is shown, what each of the three answers says."""
    verdict = cell.verdict
    assert verdict is not None
    menu = verdict.menu
    if menu is None or menu.answer != "act":
        return _headline_of_parts(cell, verdict)
    best, cheaper = menu.option(menu.best), menu.option(menu.cheaper)
    assert best is not None
    sentences = [f"{action(best)}: {estimate_points(best.gain)}, {price(best)}"]
    if cheaper is not None:
        sentences.append(
            f"cheaper and not shown to be worse: {action(cheaper)}, {estimate_points(cheaper.gain)}, {price(cheaper)}"
        )
    if verdict.retrieve.answer in ("cool-or-retrieve", "undecided") and best.arm not in ("base", "retrieve"):
        sentences.append(f"whether retrieving beats cooling is open{_more(verdict.retrieve, ' ({})')}")
    elif verdict.retrieve.answer == "undecided":
        sentences.append(f"whether to retrieve or cool is undecided{_more(verdict.retrieve, ' ({})')}")
    if verdict.reuse.answer == "undecided" and best.takes == 1:
        sentences.append(f"whether to run more takes is undecided{_more(verdict.reuse, ' ({})')}")
    return " ".join(sentence(text) for text in sentences)


def _headline_of_parts(cell: Cell, verdict: Verdict) -> str:
    reuse, retrieve, combine, n = verdict.reuse, verdict.retrieve, verdict.combine, _kept_of(cell)
    parts = []
    if combine.answer == "yes":
        how = "retrieve or cool" if verdict.by_cooling else "cool" if combine.arm == "cooled" else "retrieve"
        doubt = ", where retrieving is not shown to beat cooling" if verdict.by_cooling else ""
        parts.append(f"{how}, run {n} takes and keep the best: {_gain(combine)} beyond selection alone{doubt}")
    elif reuse.answer == "select":
        parts.append(f"run {n} takes and keep the best: {_gain(reuse)}, {_executions(reuse)}")
    elif reuse.answer == "unranked":
        parts.append(f"{n} takes hold {_say(verdict.questions.get('headroom'))}, but the score does not find it")
    elif reuse.answer == "undecided":
        parts.append(f"whether to run more takes is undecided{_more(reuse, ' ({})')}")
    if retrieve.answer == "retrieve" and combine.answer != "yes":
        parts.append(f"retrieve demonstrations: {_gain(retrieve)}")
    elif retrieve.answer == "cool":
        parts.append(f"cool the sampling: {_gain(retrieve)}, at no cost")
    elif retrieve.answer == "cool-or-retrieve":
        parts.append(f"cool or retrieve: {_gain(retrieve)}, which of the two is open{_more(retrieve, ' ({})')}")
    elif retrieve.answer == "undecided":
        parts.append(f"whether to retrieve or cool is undecided{_more(retrieve, ' ({})')}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else NOTHING


def action(option: Option) -> str:
    """What an option does: ``cool the sampling, run 3 takes and keep the best by coverage``."""
    kind, _, settings = option.arm.partition("?")
    known = {"base": "", "cooled": "cool the sampling", "retrieve": "retrieve demonstrations"}
    how = known.get(kind, f"run the arm `{option.arm}`")
    if settings and kind in known:
        how += f" (`{option.arm}`)"
    if option.scorer is None:
        return how
    pick = f"run {option.takes} takes and keep the best by {option.scorer}"
    return f"{how}, {pick}" if how else pick


def price(option: Option) -> str:
    """What an option costs; retrieval also searches the library, and samples twice, whenever it replans."""
    executions = (
        f"{option.takes}\N{MULTIPLICATION SIGN} the executions" if option.takes > 1 else "no further executions"
    )
    return f"{executions} and a library to search" if option.arm.partition("?")[0] == "retrieve" else executions


def menu_lines(cell: Cell, worth: float) -> list[str]:
    """What the menu of options says beyond the headline, a sentence each."""
    if cell.verdict is None:
        return []
    menu = cell.verdict.menu
    lines = [] if menu is None else [_menu_claim(menu, worth, _error(cell)), *_act_now(menu)]
    return [line for line in (*lines, path(cell), shortest(cell)) if line]


def _error(cell: Cell) -> str:
    """How often the claim of a menu errs at most: a fixed sample that was extended spends half as much again."""
    extended = cell.path is None and cell.verdict is not None and cell.verdict.looked > 1
    return "7.5 %" if extended else "5 %"


def _menu_claim(menu: Menu, worth: float, error: str) -> str:
    least, options = whole_points(worth), count(len(menu.options), "option")
    match menu.answer:
        case "act":
            shown = sum(option.shown for option in menu.options)
            return f"Of {options}, {shown} {'is' if shown == 1 else 'are'} shown to gain, by {least} or more in the \
estimate; the chance that any option is shown that gains nothing is at most {error}, over the whole menu."
        case "none":
            return f"Each of {options} is ruled out: none gains {least}."
    return f"Of {options} none is shown to gain, by {least} or more in the estimate, with an error of at most {error} \
over the whole menu."


def _act_now(menu: Menu) -> list[str]:
    """What to do where nothing is shown and somebody has to act."""
    if menu.now is None or menu.answer != "undecided":
        return []
    option = menu.option(menu.now.option)
    if option is None:
        return ["If you had to act now: leave the policy as it is; no option has a positive expected gain."]
    gain = number(menu.now.gain, signed=True, scale=100)
    return [
        f"If you had to act now: {action(option)} (expected gain {gain} points, {percent(menu.now.chance)} sure not to \
lose by it, {price(option)})."
    ]


_STOPPED = {
    "decided": "Everything asked was decided after",
    "budget": "The budget ended it after",
    "starts": "There were no more starts after",
    "hopeless": "What is left of the budget cannot decide it; stopped after",
}
_PART_NAMES = {"reuse": "more takes", "retrieve": "retrieve or cool", "combine": "both", "arms": "the other arms"}


def path(cell: Cell) -> str:
    """How a run until decided went for a cell, and what it saved; empty for a fixed sample."""
    if cell.path is None:
        return ""
    own = cell.path
    text = f"{_STOPPED.get(own.stopped, own.stopped)} {count(own.takes, 'take')}"
    if cell.group == "*":
        text += " that all of its tasks ran alike"
    if own.unsettled:
        text += f", with {' and '.join(_PART_NAMES.get(part, part) for part in own.unsettled)} still open"
    if own.paper_takes > own.takes:
        saved = percent(1 - own.takes / own.paper_takes)
        paper = count(own.paper_takes, "take")
        text += f"; the paper's 500 starts for each of these arms take {paper}, so {saved} were saved"
    return f"{text}."


def shortest(cell: Cell) -> str:
    """Should one keep the shortest take? Empty where lengths are not known."""
    asked = cell.verdict.questions if cell.verdict is not None else {}
    finding, gain, headroom = (asked.get(name) for name in ("shortest", "gain", "headroom"))
    if finding is None or finding.estimate.value is None:
        return ""
    ask, gains = "Should you keep the shortest take?", f"it gains {estimate_points(finding.estimate)}"
    if finding.answer == "no":
        return f"{ask} No: {gains}."
    if finding.answer != "yes":
        return f"{ask} It is not shown that this helps: {gains}."
    if gain is None or gain.estimate.value is None or finding.estimate.value >= gain.estimate.value:
        return f"{ask} Only if something tells you when a take has succeeded: here {gains}, because takes count as \
over at success. With such a signal keep any take that succeeds, which gains {_say(headroom)}; without it length tells \
nothing."
    return f"{ask} No: {gains}, the score {_say(gain)}, and length tells success only where takes end at success."


def _none_of(cell: Cell, where: str = "") -> str:
    """``Neither retrieval nor cooling gains``, of those that were run."""
    run = cell.arms.arms if cell.arms is not None else {}
    if not {"retrieve", "cooled"} <= set(run):
        return f"{'Cooling' if 'cooled' in run else 'Retrieval'}{where} does not gain"
    return f"Neither retrieval nor cooling{where} gains"


def _sentence(name: str, decision: Decision, cell: Cell, worth: float) -> str:
    n, gain, least = _kept_of(cell), estimate_points(decision.gain), whole_points(worth)
    price = _executions(decision) if decision.cost > 1 else "no further executions"
    known = f": {gain}" if gain else ""
    aside = f" ({gain})" if gain else ""
    match name, decision.answer:
        case "reuse", "select":
            return f"Run {n} takes and keep the best{known}, {price}."
        case "reuse", "unranked":
            headroom = estimate_points(cell.headroom.headroom) if cell.headroom is not None else ""
            return f"{n} takes hold {headroom or 'headroom'}, but the score does not find it{known}."
        case "reuse", "none":
            return f"One take is enough: keeping the best of {n} gains less than {least}{aside}."
        case "retrieve", "retrieve":
            return f"Start sampling from retrieved demonstrations{known}, {price}."
        case "retrieve", "cool":
            rest = f"Retrieved actions add less than {least}"
            if decision.reason == "cooled-only":
                rest = "Whether retrieved actions add to it was not measured"
            return f"Cool the sampling noise{known}, {price}. {rest}."
        case "retrieve", "cool-or-retrieve":
            do = "Retrieve" if decision.arm == "retrieve" else "Cool the sampling noise"
            other = "cooling alone does as well" if decision.arm == "retrieve" else "retrieved actions add to it"
            return f"{do}{known}, {price}. Whether {other} is open{_more(decision)}."
        case "retrieve", "none":
            return f"{_none_of(cell)} {least}{aside}."
        case "combine", "yes":
            what = "Cooling" if decision.arm == "cooled" else "Retrieval"
            return f"{what} on top of selection adds{known.removeprefix(':')}, {price}."
        case "combine", "no":
            return f"{_none_of(cell, ' on top of selection')} {least}{aside}."
        case "reuse", "undecided" if cell.selectors is None or not cell.selectors.scored:
            return f"{n} takes hold{known.removeprefix(':')} of headroom; nothing says yet whether a score finds it."
        case _, "undecided":
            return f"These takes do not settle it{known}{_more(decision)}."
        case _, "not-measured":
            return "This run did not measure it."
    return decision.because


def _kept_of(cell: Cell) -> int:
    return cell.headroom.n if cell.headroom is not None else cell.seeds


def _say(finding: Finding | None) -> str:
    return (estimate_points(finding.estimate) if finding is not None else "") or "nothing measurable"


def _gain(decision: Decision) -> str:
    return estimate_points(decision.gain) or "an unknown gain"


def _executions(decision: Decision) -> str:
    return f"{decision.cost:g}\N{MULTIPLICATION SIGN} the executions"


def _more(decision: Decision, form: str = "; {}") -> str:
    more = further(decision.further)
    return form.format(more) if more else ""


def state(cell: Cell) -> str:
    """What a cell without a usual answer is like; empty for an ordinary one."""
    if cell.takes == 0 or cell.headroom is None:
        reason = f": {count(cell.errors, 'take')} ended in an error" if cell.errors else ""
        return f"There is no finished take{reason}, so nothing can be said."
    first = cell.headroom.pass_1.value
    if cell.takes == 1:
        outcome = "succeeded" if first else "failed"
        return f"There is one take, and it {outcome}: one take says nothing about others."
    if first == 1:
        return "Every take succeeded: there is nothing to gain."
    if first == 0:
        return f"Every take failed, so there is no headroom within {count(cell.headroom.n, 'take')} per start."
    if cell.headroom.n == 1:
        return "There is one take per start, so headroom is not known."
    if cell.selectors is None or not cell.selectors.scored:
        return "The takes have no score, so selection could not be measured."
    return ""


def leak(cell: Cell) -> str:
    """The warning where keeping the shortest take explains the gain; empty where it does not."""
    if cell.verdict is None or not cell.verdict.leak or cell.selectors is None:
        return ""
    short = number(cell.selectors.shortest.gain.value, signed=True, scale=100)
    fact = f"Keeping the shortest take gains {short} points, as much as the score: length gives the outcome away."
    if cell.window == "episode":
        return f"{fact} This gain is no evidence that the score ranks behaviour."
    return f"{fact} The verdict rests on the window {cell.window}, which hides length."


def relation(measured: Relation) -> list[str]:
    """What the relation says, a sentence per test."""
    if measured.r is None:
        return [measured.reason or f"The relation needs at least three cells; this run has {measured.cells}."]
    (ends, resampled), disjoint = r_interval(measured), measured.disjoint
    span = f" {interval(*ends, digits=2)}" if ends else ""
    how = f" ({resampled})" if resampled else ""
    lines = [f"r = {number(measured.r, 2)}{span} over {count(measured.cells, 'cell')}{how}."]
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


def r_interval(measured: Relation) -> tuple[tuple[float, float] | None, str]:
    """The interval of r to show, and what was resampled for it: starts too wherever the result has that."""
    if measured.ci_nested is not None:
        return measured.ci_nested, "interval over cells and their starts"
    if measured.ci is not None:
        rough = ", too short below eight" if measured.cells < 8 else ""
        return measured.ci, f"interval over cells alone{rough}"
    return None, ""


def overview(result: Result) -> str:
    """How much was run, in one line."""
    starts = {(line.env, line.task): line.starts for cell in result.policies for line in cell.tasks}
    parts = [count(len(result.policies), "policy", "policies"), count(len(starts), "task")]
    parts += [count(sum(starts.values()), "start"), count(result.cost.takes, "take")]
    return " · ".join([*parts, count(result.cost.errors, "error")] if result.cost.errors else parts)
