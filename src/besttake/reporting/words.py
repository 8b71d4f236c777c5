"""Every sentence about a verdict or a run, made from the numbers and codes of a result; numbers first, in plain words.

The terminal, Markdown, HTML, notebooks and ``result.json`` (``headline``) all take theirs from here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from besttake.arms import BASE, COOLED, RETRIEVE, SEARCHING
from besttake.core.offline import GAIN, simplest
from besttake.core.planning import seeds_worth
from besttake.core.retrieve import RetrievalConfig
from besttake.core.stats import Estimate
from besttake.errors import listed
from besttake.reporting.numbers import (
    count,
    estimate_percent,
    estimate_plain,
    estimate_points,
    interval,
    number,
    percent,
    points,
    sentence,
    whole_points,
)

if TYPE_CHECKING:
    from pathlib import Path

    from besttake.core.agreement import Sources
    from besttake.core.offline import RetrievalCheck
    from besttake.core.planning import SampleSize
    from besttake.core.relation import Across
    from besttake.core.stats import Forecast
    from besttake.result import Answer, Cell, Option, Relation, Result, Verdict
    from besttake.serving.gate import Judgement
    from besttake.verbs.act import ActResult
    from besttake.verbs.compare import Change

Tone = Literal["act", "open", "rest"]
QUESTIONS = {"takes": "More takes?", "demonstrations": "Demonstrations?", "both": "Both?"}
_TONES: dict[str, Tone] = {"yes": "act", "act": "act", "open": "open"}
_ARMS = {BASE: "", COOLED: "cool the sampling", RETRIEVE: "retrieve demonstrations"}
_REASONS = {
    "identical-takes": "The policy is deterministic: all takes of a start are alike.",
    "one-take": "There is one take per start, so nothing can be picked.",
    "no-score": "The takes have no score, so what a pick would gain is not known.",
    "length-leak": "Episodes stop at success and keeping the shortest take gains as much, so this gain is no evidence"
    " that the score ranks behaviour.",
    "no-control": "The arm `cooled` was not run, and without it a gain of retrieval may be that of calmer noise.",
    "not-run": "This run did not measure it.",
    "left-out": "The check at held-out demonstrations expects nothing of retrieved actions, so they were not run.",
}


_VARIANTS = {
    "onset_alignment": "onset", "rerank": "re-ranking", "gripper_gating": "gripper gating",
    "reliability": "reliability",
}  # fmt: skip


@dataclass(frozen=True)
class AnswerLine:
    """One of the paper's questions as it is shown: the question, its answer, a sentence, and whether to act."""

    name: str
    question: str
    badge: str
    sentence: str
    tone: Tone


def worded(cell: Cell) -> Cell:
    """The cell with the sentence of its verdict filled in, as ``result.json`` keeps it."""
    if cell.verdict is None:
        return cell
    return cell.model_copy(update={"verdict": cell.verdict.model_copy(update={"headline": _headline(cell)})})


def action(option: Option) -> str:
    """What an option does: ``cool the sampling and keep the best of 3 takes by coverage``."""
    kind, _, settings = option.arm.partition("?")
    how = _ARMS.get(kind, f"run the arm `{option.arm}`")
    if settings and kind in _ARMS:
        how += f" (`{option.arm}`)"
    if option.takes == 1:
        return how or "leave it as it is"
    pick = f"keep the best of {option.takes} takes by {option.scorer}"
    return f"{how} and {pick}" if how else pick


def in_short(option: Option, noise: float) -> str:
    """What an option does in a few words; ``noise`` is that of cooled takes: ``cool to 0.1, best of 3``."""
    kind, _, settings = option.arm.partition("?")
    how = {BASE: "", COOLED: f"cool to {noise:g}", RETRIEVE: "retrieve"}.get(kind, option.arm)
    how = option.arm if settings else how
    if option.takes == 1:
        return how or "leave it as it is"
    return f"{how}, best of {option.takes}" if how else f"keep the best of {option.takes}"


def noise_of(result: Result, policy: str) -> float:
    """The noise of a policy's cooled takes: as the plan says, as the check chose it, or the usual one."""
    check, given = result.checks.get(policy), result.plan.get("retrieval", {}).get("noise")
    if given is not None:
        return float(given)
    chosen = check.noise if check is not None and not check.reason else None
    return RetrievalConfig().noise if chosen is None else chosen


def remarks(result: Result) -> list[str]:
    """What to know before acting, a line each: what is not decided, what may do as well, and what is no evidence."""
    lines = []
    for cell in result.policies:
        said = [leak(cell)]
        if cell.verdict is None:
            said = [state(cell)]
        elif cell.verdict.answer == "open":
            waiting = (further(one.further) for one in cell.verdict.answers.values() if one.answer == "open")
            missing = "a score" if cell.verdict.takes.reason == "no-score" else "more starts"
            said.append(next(filter(None, waiting), f"{missing} may settle it"))
        elif cheaper := cell.verdict.row(cell.verdict.cheaper):
            said.append(f"{in_short(cheaper, noise_of(result, cell.policy))} may do as well: cannot tell yet")
        lines += [f"{cell.policy}: {text}" for text in said if text]
    return lines


def act(result: Result, run: Path | None, cell: Cell) -> str:
    """The command that plays what is recommended for a policy; empty where nothing is, or nothing can be played.

    A run that names code of one's own asks for trust, since another command than the user's runs it.
    """
    if cell.verdict is None or cell.verdict.answer != "act" or run is None or not result.plan.get("env"):
        return ""
    place = shlex.quote(str(run))
    policy = f" --policy {shlex.quote(cell.policy)}" if len(result.policies) > 1 else ""
    named = (*result.plan.get("policy", ()), *result.plan["env"], result.plan.get("demos") or "")
    own = any(uri.startswith("python:") or re.match(r"gym:[^?/]*:", uri) for uri in named)
    return f"besttake act {place}{policy}" + (f" --trust {place}" if own else "")


def settle(run: Path | None, cell: Cell) -> str:
    """The command that says how many starts an undecided policy still needs, and how to add them; else empty."""
    is_open = cell.verdict is not None and cell.verdict.answer == "open" and cell.seeds > 1
    return f"besttake plan --pilot {shlex.quote(str(run))}" if is_open and run is not None else ""


def price(option: Option) -> str:
    """What an option costs; retrieval also searches the library whenever it replans."""
    library = ", a library to search" if option.arm.partition("?")[0] in SEARCHING else ""
    return f"{count(option.takes, 'take')}{library}"


def headline(cell: Cell) -> str:
    """The first sentence about a policy."""
    if cell.verdict is None:
        why = (
            cell.notes[-1] if cell.notes else "There is no verdict; `besttake diagnose` on the same directory makes it"
        )
        return state(cell) or sentence(why)
    return cell.verdict.headline or _headline(cell)


def _headline(cell: Cell) -> str:
    verdict = cell.verdict
    assert verdict is not None
    if cell.audit is not None and cell.audit.doubt in ("resets", "state", "chance"):
        return audit(cell)
    option, first = verdict.recommended, cell.headroom.pass_1.value if cell.headroom is not None else None
    if verdict.answer == "leave":
        return f"Leave it as it is: one take succeeds in {percent(first)}, and nothing tried is worth its cost."
    if option.arm == BASE and verdict.takes.reason == "no-score" and cell.headroom is not None:
        room = cell.headroom
        return f"Not decided yet. A perfect pick of {room.n} takes would raise {percent(first)} to \
{percent(room.pass_n.value)}, {estimate_points(room.headroom)}; what a score would pick is not known."
    if option.takes == 1 and option.arm == BASE:
        return f"Not decided yet. Leave it as it is for now: one take succeeds in {percent(first)}."
    rise = f"from {percent(first)} to {percent(verdict.success.value)}"
    text = f"{action(option)}: {rise}, {estimate_points(verdict.gain)}, {price(option)}"
    return sentence(text) if verdict.answer == "act" else f"Not decided yet. The best estimate: {text}."


def more(cell: Cell) -> list[str]:
    """What a reader should know beyond the headline, a sentence each."""
    if cell.verdict is None:
        return []
    verdict = cell.verdict
    lines = (_optimism(verdict), _cheaper(verdict), _given(cell), _retrying(cell), path(cell), leak(cell))
    return [line for line in lines if line]


def marks(verdict: Verdict) -> dict[str, str]:
    """What a table says of an option, by its name."""
    return {
        **({verdict.cheaper: "cheaper, cannot tell yet"} if verdict.cheaper is not None else {}),
        verdict.option: "best estimate so far" if verdict.answer == "open" else "recommended",
    }


def _optimism(verdict: Verdict) -> str:
    """How the estimate of the recommended option was corrected."""
    change = points(-verdict.optimism)
    if verdict.option == verdict.options[0].name or change == points(0):
        return ""
    own = estimate_points(verdict.recommended.gain)
    return f"Its own estimate is {own}; it was chosen among {len(verdict.options)} options, which is corrected by \
{change} points."


def _cheaper(verdict: Verdict) -> str:
    """The cheaper option that may do as well."""
    option, own = verdict.row(verdict.cheaper), verdict.recommended
    if option is None or option.behind is None or own.gain.value is None:
        return ""
    gap = estimate_points(option.behind)
    less = "Cheaper" if price(option) != price(own) else "Simpler"
    return f"{less}: {action(option)} ({price(option)}). The difference is {gap}: cannot tell yet whether it does as \
well."


def _given(cell: Cell) -> str:
    given = cell.verdict.given if cell.verdict is not None else None
    if given is None or cell.verdict is None or cell.verdict.looked < 2:
        return ""
    return f"This was shown after {count(given.starts, 'start')}, with {estimate_points(given.gain)}, and stands: an \
answer is not taken back because more starts came in."


def rule(cell: Cell) -> str:
    """Which test decided, and how often it errs at most; empty for the first look at a fixed sample."""
    verdict = cell.verdict
    if cell.path is not None:
        return "Decided by tests that hold whenever one looks: at most 5 % of such answers are wrong."
    if verdict is None or verdict.looked < 2:
        return ""
    grown = len({seeds for seeds in verdict.look_seeds if seeds != cell.seeds})
    error = f"{5 * (2 - 2 ** -(grown + 1)):.3g} %"
    return f"This run was extended: what was answered before stands, and at most {error} of its answers are wrong."


def answers(cell: Cell, worth: float) -> list[AnswerLine]:
    """The paper's questions in words."""
    if cell.verdict is None:
        return []
    return [
        AnswerLine(name, QUESTIONS[name], one.answer, _sentence(name, one, cell, worth), _TONES.get(one.answer, "rest"))
        for name, one in cell.verdict.answers.items()
    ]


def _sentence(name: str, one: Answer, cell: Cell, worth: float) -> str:
    if one.reason in _REASONS:
        return _REASONS[one.reason]
    gain, least = estimate_points(one.gain), whole_points(worth)
    known = f"{_subject(name, cell)} {gain}{_when_answered(one, cell)}"
    if name == "takes" and cell.headroom is not None:
        known += f"; a perfect pick would gain {estimate_points(cell.headroom.headroom)}"
    if one.answer == "open":
        still = further(one.further)
        return f"{known}. These starts do not settle it{f'; {still}' if still else ''}."
    if one.answer == "no" and cell.selectors is None and cell.headroom is not None:
        return f"A perfect pick would gain {estimate_points(cell.headroom.headroom)}: less than {least}."
    if one.answer == "no":
        return f"{known}: less than {least}."
    doubt = cell.verdict is not None and cell.verdict.any_chunk and name == "demonstrations"
    return f"{known}{', but any demonstrated chunk may do as well' if doubt else ''}."


_DOUBTS = {
    "resets": "This harness resets its env without the initial state of the start: takes of one start are different"
    " starts of its task, and then headroom is not recoverable by retrying.",
    "state": "Takes of one start were recorded with different initial states: they do not share a start, and then"
    " headroom is not recoverable by retrying.",
    "chance": "Takes of one start agree no more than takes of other starts of their task. They may not share a start:"
    " then headroom is not recoverable by retrying.",
    "few": "Too few takes disagree to tell whether takes of one start share it.",
    "unknown": "Each task has one start, so that takes agree may show only that tasks differ: outcomes cannot tell"
    " whether the takes of a start share it.",
}
_SHARES = {"start": "the start", "env seed": "the env's seed", "policy seed": "the policy's seed",
           "numerics": "numerics, the same take played again"}  # fmt: skip


def audit(cell: Cell) -> str:
    """Whether takes of a start share it, and where the spread of outcomes comes from; empty where nothing is known."""
    one = cell.audit
    if one is None or (cell.headroom is not None and cell.headroom.n < 2 and not one.doubt):
        return ""
    env = {"same": ", env's seed the same", "varies": ", env's seed varies"}.get(one.env_seed, "")
    kappa = f" (kappa {known}{env})" if (known := estimate_plain(one.sources.start)) else ""
    if one.doubt:
        return f"{_DOUBTS[one.doubt].removesuffix('.')}{kappa}."
    return f"Takes of one start agree beyond chance{kappa}. {_spread_of(one.sources)}" if kappa else ""


def _spread_of(found: Sources) -> str:
    """``Of the spread of outcomes within a task, 42 % [32, 51] lies in the start and 58 % [49, 68] in the seeds.``"""
    known = {name: interval(e.low, e.high, scale=100, digits=0) for name, e in found.parts.items()}
    rest = "policy's seed" if "env seed" in found.pairs else "seeds"
    names = {**_SHARES, "rest": f"the {rest} and numerics"}
    said = [f"{percent(found.parts[name].value)} {span} lies in {names[name]}" for name, span in known.items()]
    return f"Of the spread of outcomes within a task, {', '.join(said)}."


def pools(result: Result) -> list[str]:
    """What another policy is worth against another take: the pair that adds most, and all policies together."""
    lines = []
    for one in result.pools[:1] + [pool for pool in result.pools if len(pool.policies) > 2]:
        gain = estimate_points(one.gain) or f"not known ({one.gain.reason})"
        picked = f"; picked by the score, {estimate_points(one.picked)} over one take" if one.picked else ""
        lines.append(
            f"One take each of {listed(one.policies, 5)}, perfectly picked: {estimate_percent(one.each)} on"
            f" {count(one.starts, 'shared start')}; {len(one.policies)} takes of {one.best}:"
            f" {estimate_percent(one.alone) or 'not known'}; difference {gain}{picked}."
        )
    return lines


def _when_answered(one: Answer, cell: Cell) -> str:
    """The estimate with which a question was answered at an earlier look, where more starts have moved it."""
    questions = cell.verdict.questions.values() if cell.verdict is not None else ()
    own = (finding.when_answered for finding in questions if finding.estimate == one.gain)
    then = next((estimate for estimate in own if estimate is not None), None)
    if then is None or one.answer not in ("yes", "no"):
        return ""
    return f" (answered with {estimate_points(then)} after {count(then.n, 'start')}, which stands)"


def _subject(name: str, cell: Cell) -> str:
    n = cell.headroom.n if cell.headroom is not None else cell.seeds
    return {
        "takes": f"Keeping the best of {n} takes by {cell.scorer} gains",
        "demonstrations": "At equal noise, retrieved actions add",
        "both": "Retrieval with the best of several takes, beyond the better of the two alone:",
    }[name]


def needs_text(cell: Cell) -> str:
    """What a cell needs in a few words, for tables: ``cooled, best of 3``; ``leave``; ``base (open)``."""
    if cell.verdict is None:
        return "nothing measured"
    if cell.verdict.answer == "leave":
        return "leave"
    return cell.verdict.option + (" (open)" if cell.verdict.answer == "open" else "")


def tone(cell: Cell) -> Tone:
    """Whether a cell's verdict asks for something to be done."""
    return _TONES.get(cell.verdict.answer, "rest") if cell.verdict is not None else "rest"


def _retrying(cell: Cell) -> str:
    """What it takes to retry until the score passes; empty where that was not measured, or saves nothing."""
    one = cell.rejection
    if one is None or one.takes.value is None or one.threshold is None or (one.gain.low or 0.0) <= 0:
        return ""
    return (
        f"Or retry until the {one.scorer} score is at least {one.threshold:.3g}, with at most {one.n} takes: success"
        f" {estimate_percent(one.success)}, {estimate_points(one.gain)} over one take, with"
        f" {number(one.takes.value, 2)} takes on average instead of {one.n}."
    )


_STOPPED = {
    "decided": "Everything asked was decided after",
    "budget": "The budget ended it after",
    "starts": "There were no more starts after",
    "hopeless": "No further take can settle it; stopped after",
}
_PART_NAMES = {"takes": "more takes", "arms": "the other arms"}


def path(cell: Cell) -> str:
    """How a run until decided went for a cell, and what it saved; empty for a fixed sample."""
    if cell.path is None:
        return ""
    own = cell.path
    text = f"{_STOPPED.get(own.stopped, own.stopped)} {count(own.takes, 'take')}"
    if cell.group == "*" and len(cell.tasks) > 1:
        text += ", counting those made while none of its cells had stopped"
    if own.unsettled:
        text += f", with {' and '.join(_PART_NAMES.get(part, part) for part in own.unsettled)} still open"
    if own.paper_takes > own.takes:
        saved = "" if own.unsettled else f", so {percent(1 - own.takes / own.paper_takes)} were saved"
        paper = count(own.paper_takes, "take")
        text += f"; the paper's 500 starts for each of these arms take {paper}{saved}"
    return f"{text}."


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
        return "Every base take succeeded: these starts leave nothing to gain."
    if first == 0:
        within = count(cell.headroom.n, "take")
        return f"Every base take failed, so these starts show no headroom within {within} per start."
    if cell.headroom.n == 1:
        return "There is one take per start, so headroom is not known."
    return ""


def leak(cell: Cell) -> str:
    """The warning where keeping the shortest take explains the gain and no window hides it; empty elsewhere."""
    if cell.verdict is None or not cell.verdict.leak or cell.selectors is None or cell.window != "episode":
        return ""
    short = number(cell.selectors.shortest.gain.value, signed=True, scale=100)
    return (
        f"Keeping the shortest take gains {short} points, no less than the score: length gives the outcome away, and "
        "this gain is no evidence that the score ranks behaviour."
    )


def further(forecast: Forecast | None) -> str:
    """``40 to 210 more starts are likely to settle it``; empty where there is no forecast."""
    if forecast is None:
        return ""
    if forecast.most == 0:
        return "there are no more starts"
    if forecast.low is None:
        return f"not likely to be settled within {count(forecast.most, 'more start')}"
    if forecast.high is None:
        return f"at least {count(forecast.low, 'more start')} needed to settle it"
    if forecast.low == forecast.high:
        more = "1 more start is" if forecast.low == 1 else f"about {forecast.low} more starts are"
        return f"{more} likely to settle it"
    return f"{forecast.low} to {forecast.high} more starts are likely to settle it"


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


def changed(changes: Sequence[Change]) -> str:
    """How many numbers changed for sure from one run to the next, and how to read that."""
    known = [one for one in changes if one.change.value is not None]
    if not known:
        return "Nothing that both runs measured can be compared."
    if all(one.same for one in known):
        return "Both runs hold the same takes, so nothing changed."
    better, worse = (sum(one.shown == way for one in known) for way in ("better", "worse"))
    rest, numbers = len(known) - better - worse, count(len(known), "number")
    return (
        f"Of {numbers}, {better} got better, {worse} got worse; {rest} {'is' if rest == 1 else 'are'} not shown to"
        " differ. Each interval is a 95 % one by itself: of 20 numbers that did not change, about one looks changed."
    )


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


def retrieval_name(config: RetrievalConfig, *, prior: bool = True) -> str:
    """A configuration in short, without its noise: ``frame, prior 0.2, re-ranking``."""
    extra = [text for name, text in _VARIANTS.items() if getattr(config, name)]
    extra += [f"lead {config.lead}"] if config.rule == "next" and config.lead != 1 else []
    extra += [f"turns of {config.angle:g}°"] if config.angle is not None else []
    extra += ["weights " + "/".join(f"{w:g}" for w in config.weights)] if len(set(config.weights)) > 1 else []
    return ", ".join([config.rule, *([f"prior {config.prior:g}"] if prior else []), *extra])


def check_sentence(check: RetrievalCheck) -> str:
    """What the check says, in one line."""
    if check.reason:
        return f"retrieval could not be checked on held-out demonstrations: {check.reason}"
    calm = f"at held-out demonstrations noise {check.noise:g} {'does best' if len(check.cooled) > 1 else 'was tried'}"
    if not check.tried:
        return calm
    at = "the error of a sample at that noise by"
    if not check.helps:
        return f"{calm}, and no retrieved actions are shown to lower {at} {GAIN:g} or more"
    best = check.best or simplest(check.tried)
    where = {name: group for name, group in check.groups.items() if group.prior}
    without = [name for name in check.groups if name not in where]
    if not without and len({group.prior for group in where.values()} | {best.config.prior}) == 1:
        how = f"retrieved actions ({retrieval_name(best.config)}) lower {at} {_lower(best.added)}"
        return f"{calm}, and {how}: expect a gain over cooling"
    parts = [f"{_lower(group.added)} in {name} (prior {group.prior:g})" for name, group in where.items()]
    how = f"retrieved actions ({retrieval_name(best.config, prior=False)}) lower {at} {', '.join(parts)}"
    return f"{calm}, and {how}: expect a gain over cooling there{', none in ' if without else ''}{', '.join(without)}"


def _lower(added: Estimate) -> str:
    value, low, high = (None if end is None else -end for end in (added.value, added.high, added.low))
    return estimate_plain(Estimate(value, low, high))


def acted(result: ActResult) -> str:
    """What came of a promise on new starts."""
    promise, kept = result.promise, result.kept
    if not kept:
        return f"No take of {promise.option} was finished, so nothing can be said of its promise."
    now = f"{sum(take.success for take in kept)} of {len(kept)} starts succeeded, {estimate_percent(result.success)}"
    held = "The promise is broken" if result.broken else "Nothing speaks against the promise"
    return (
        f"Promised {estimate_percent(promise.success)} with {number(promise.takes, 1)} takes per start; {now}, with"
        f" {number(result.takes, 1)} takes per start. {held}."
    )


def judged(judgement: Judgement, takes: Sequence[str]) -> str:
    """What a gate says of the last of the ``takes`` of a start."""
    score = "it has no score" if judgement.score is None else f"it scores {judgement.score:.3g}"
    wanted = "" if judgement.threshold is None else f", {judgement.threshold:.3g} is enough"
    if judgement.accept:
        return f"Accept: keep {takes[judgement.best]} ({score}{wanted})."
    return f"Retry: {score}{wanted}; {count(judgement.takes_left, 'take')} left."
