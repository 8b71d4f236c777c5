"""Write every sentence about a verdict or a run from the numbers and codes of a result.

The terminal, Markdown, HTML, notebooks and ``result.json`` (``headline``) all use these sentences.
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
    "no-score": "The takes have no score, so the gain of picking one is not known.",
    "length-leak": "Episodes stop at success and keeping the shortest take gains as much, so this gain is no evidence"
    " that the score ranks behaviour.",
    "no-control": "The arm `cooled` was not run, so a gain of retrieval may come from less noise alone.",
    "not-run": "This run did not measure it.",
    "left-out": "The check on held-out demonstrations expects no gain from retrieved actions, so they were not run.",
}
_VARIANTS = {
    "onset_alignment": "onset", "rerank": "re-ranking", "gripper_gating": "gripper gating",
    "reliability": "reliability",
}  # fmt: skip


@dataclass(frozen=True)
class AnswerLine:
    """How one of the paper's questions is shown: the question, its answer, a sentence, and whether to act."""

    name: str
    question: str
    badge: str
    sentence: str
    tone: Tone


def with_headline(cell: Cell) -> Cell:
    """Return the cell with the headline of its verdict filled in, as ``result.json`` stores it."""
    if cell.verdict is None:
        return cell
    return cell.model_copy(update={"verdict": cell.verdict.model_copy(update={"headline": _headline(cell)})})


def action(option: Option) -> str:
    """Describe an option: ``cool the sampling and keep the best of 3 takes by coverage``."""
    kind, _, settings = option.arm.partition("?")
    how = _ARMS.get(kind, f"run the arm `{option.arm}`")
    if settings and kind in _ARMS:
        how += f" (`{option.arm}`)"
    if option.takes == 1:
        return how or "leave it as it is"
    pick = f"keep the best of {option.takes} takes by {option.scorer}"
    return f"{how} and {pick}" if how else pick


def in_short(option: Option, noise: float) -> str:
    """Describe an option in a few words; ``noise`` is that of cooled takes: ``cool to 0.1, best of 3``."""
    kind, _, settings = option.arm.partition("?")
    how = {BASE: "", COOLED: f"cool to {noise:g}", RETRIEVE: "retrieve"}.get(kind, option.arm)
    how = option.arm if settings else how
    if option.takes == 1:
        return how or "leave it as it is"
    return f"{how}, best of {option.takes}" if how else f"keep the best of {option.takes}"


def noise_of(result: Result, policy: str) -> float:
    """Return the noise of a policy's cooled takes: from the plan, else from the check, else the default."""
    check, planned = result.checks.get(policy), result.plan.get("retrieval", {}).get("noise")
    if planned is not None:
        return float(planned)
    return RetrievalConfig().noise if check is None or check.reason or check.noise is None else check.noise


def remarks(result: Result) -> list[str]:
    """List what to know before acting: undecided policies, cheaper options, and gains that length explains."""
    lines = []
    for cell in result.policies:
        texts = [length_warning(cell)]
        if cell.verdict is None:
            texts = [special_case(cell)]
        elif cell.verdict.answer == "open":
            forecasts = (further(one.further) for one in cell.verdict.answers.values() if one.answer == "open")
            missing = "a score" if cell.verdict.takes.reason == "no-score" else "more starts"
            texts.append(next(filter(None, forecasts), f"{missing} may settle it"))
        elif cheaper := cell.verdict.row(cell.verdict.cheaper):
            texts.append(f"{in_short(cheaper, noise_of(result, cell.policy))} may do as well: cannot tell yet")
        lines += [f"{cell.policy}: {text}" for text in texts if text]
    return lines


def act_command(result: Result, run: Path | None, cell: Cell) -> str:
    """Return the command that plays the recommended option; empty if there is none, or it cannot be played.

    It has ``--trust`` if the run names code of the user, which `besttake act` does not run unasked.
    """
    if cell.verdict is None or cell.verdict.answer != "act" or run is None or not result.plan.get("env"):
        return ""
    place = shlex.quote(str(run))
    policy = f" --policy {shlex.quote(cell.policy)}" if len(result.policies) > 1 else ""
    uris = (*result.plan.get("policy", ()), *result.plan["env"], result.plan.get("demos") or "")
    runs_code = any(uri.startswith("python:") or re.match(r"gym:[^?/]*:", uri) for uri in uris)
    return f"besttake act {place}{policy}" + (f" --trust {place}" if runs_code else "")


def plan_command(run: Path | None, cell: Cell) -> str:
    """Return the command that says how many more starts an undecided policy needs; empty if it is decided."""
    is_open = cell.verdict is not None and cell.verdict.answer == "open" and cell.seeds > 1
    return f"besttake plan --pilot {shlex.quote(str(run))}" if is_open and run is not None else ""


def price(option: Option) -> str:
    """Say what an option costs; retrieval also searches the library at every replan."""
    library = ", a library to search" if option.arm.partition("?")[0] in SEARCHING else ""
    return f"{count(option.takes, 'take')}{library}"


def headline(cell: Cell) -> str:
    """Return the first sentence about a policy."""
    if cell.verdict is None:
        missing = "There is no verdict; `besttake diagnose` on the same directory makes it"
        return special_case(cell) or sentence(cell.notes[-1] if cell.notes else missing)
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
        return (
            f"Not decided yet. A perfect pick of {room.n} takes would raise {percent(first)} to"
            f" {percent(room.pass_n.value)}, {estimate_points(room.headroom)}; what a score would pick is not known."
        )
    if option.takes == 1 and option.arm == BASE:
        return f"Not decided yet. Leave it as it is for now: one take succeeds in {percent(first)}."
    if promises_nothing(verdict):
        return (
            f"Not decided yet. Leave it as it is for now: one take succeeds in {percent(first)}. The best estimate,"
            f" corrected for the choice, is no gain: {action(option)}, {estimate_points(verdict.gain)}."
        )
    rise = f"from {percent(first)} to {percent(verdict.success.value)}"
    text = f"{action(option)}: {rise}, {estimate_points(verdict.gain)}, {price(option)}"
    return sentence(text) if verdict.answer == "act" else f"Not decided yet. The best estimate: {text}."


def promises_nothing(verdict: Verdict) -> bool:
    """Whether an open verdict's best estimate is no gain, once it is corrected for the choice."""
    gain = verdict.gain.value
    return verdict.answer == "open" and verdict.option != verdict.options[0].name and gain is not None and gain <= 0


def details(cell: Cell) -> list[str]:
    """List what a reader should know beyond the headline, one sentence each."""
    verdict = cell.verdict
    if verdict is None:
        return []
    corrections = (_optimism(verdict), _cheaper(verdict), _standing_answer(verdict))
    return list(filter(None, (*corrections, _retrying(cell), until_decided(cell), length_warning(cell))))


def option_advice(verdict: Verdict) -> dict[str, str]:
    """Return what the table of options says about some of them, by their names."""
    return {
        **({verdict.cheaper: "cheaper, cannot tell yet"} if verdict.cheaper is not None else {}),
        verdict.option: "best estimate so far" if verdict.answer == "open" else "recommended",
    }


def _optimism(verdict: Verdict) -> str:
    """Say how the gain of the recommended option was corrected."""
    change = points(-verdict.optimism)
    if verdict.option == verdict.options[0].name or change == points(0):
        return ""
    return (
        f"It was chosen among {len(verdict.options)} options, for which its gain is corrected by {change} points;"
        f" uncorrected, it is {estimate_points(verdict.recommended.gain)}."
    )


def _cheaper(verdict: Verdict) -> str:
    """Name the cheaper option that may do as well."""
    option, recommended = verdict.row(verdict.cheaper), verdict.recommended
    if option is None or option.behind is None or recommended.gain.value is None:
        return ""
    less = "Cheaper" if price(option) != price(recommended) else "Simpler"
    return (
        f"{less}: {action(option)} ({price(option)}). It may do as well: the difference is"
        f" {estimate_points(option.behind)}, so one cannot tell yet."
    )


def _standing_answer(verdict: Verdict) -> str:
    """Say when an extended run was first answered, and that this answer stands."""
    if verdict.given is None or verdict.looked < 2:
        return ""
    gain = estimate_points(verdict.given.gain)
    return f"This was shown after {count(verdict.given.starts, 'start')}, with {gain}, and stands: more starts do not \
take an answer back."


def error_rate(cell: Cell) -> str:
    """Say how often a run that was looked at repeatedly errs; empty for the first look at a fixed sample."""
    verdict = cell.verdict
    if cell.path is not None:
        return "Decided by tests that hold however often one looks: at most 5 % of such answers are wrong."
    if verdict is None or verdict.looked < 2:
        return ""
    grown = len({seeds for seeds in verdict.look_seeds if seeds != cell.seeds})
    error = f"{5 * (2 - 2 ** -(grown + 1)):.3g} %"
    return f"This run was extended: earlier answers stand, and at most {error} of its answers are wrong."


def answers(cell: Cell, worth: float) -> list[AnswerLine]:
    """Answer the paper's questions in words."""
    if cell.verdict is None:
        return []
    texts = {name: _answer_sentence(name, answer, cell, worth) for name, answer in cell.verdict.answers.items()}
    return [
        AnswerLine(name, QUESTIONS[name], answer.answer, texts[name], _TONES.get(answer.answer, "rest"))
        for name, answer in cell.verdict.answers.items()
    ]


def _answer_sentence(name: str, answer: Answer, cell: Cell, worth: float) -> str:
    if answer.reason in _REASONS:
        return _REASONS[answer.reason]
    perfect = estimate_points(cell.headroom.headroom) if cell.headroom is not None else ""
    text = f"{_subject(name, cell)} {estimate_points(answer.gain)}{_when_answered(answer, cell)}"
    if name == "takes" and perfect:
        text += f"; a perfect pick would gain {perfect}"
    if answer.answer == "open":
        forecast = further(answer.further)
        return f"{text}. These starts do not settle it{f'; {forecast}' if forecast else ''}."
    if answer.answer == "no":
        if cell.selectors is None and perfect:
            text = f"A perfect pick would gain {perfect}"
        return f"{text}: less than {whole_points(worth)}."
    doubt = cell.verdict is not None and cell.verdict.any_chunk and name == "demonstrations"
    return f"{text}{', but any demonstrated chunk may do as well' if doubt else ''}."


_DOUBTS = {
    "resets": "This harness does not restore the initial state of a start, so takes of one start begin differently, and"
    " retrying cannot recover the headroom.",
    "state": "Takes of one start were recorded with different initial states, so they do not share a start, and"
    " retrying cannot recover the headroom.",
    "chance": "Takes of one start agree no more than takes of other starts of their task. They may not share a start;"
    " retrying could then not recover the headroom.",
    "few": "Too few takes disagree to tell whether takes of one start share its initial state.",
    "unknown": "Each task has one start, so takes may agree only because tasks differ: outcomes cannot tell whether"
    " takes of one start share its initial state.",
}
_SHARES = {"start": "the start", "env seed": "the env's seed", "policy seed": "the policy's seed",
           "numerics": "numerics, the same take played again"}  # fmt: skip


def audit(cell: Cell) -> str:
    """Say whether takes of a start share its initial state, and where the spread of outcomes comes from."""
    checked = cell.audit
    if checked is None or (cell.headroom is not None and cell.headroom.n < 2 and not checked.doubt):
        return ""
    env = {"same": ", env's seed the same", "varies": ", env's seed varies"}.get(checked.env_seed, "")
    kappa = f" (kappa {value}{env})" if (value := estimate_plain(checked.sources.start)) else ""
    if checked.doubt:
        return f"{_DOUBTS[checked.doubt].removesuffix('.')}{kappa}."
    return f"Takes of one start agree beyond chance{kappa}. {_spread_sentence(checked.sources)}" if kappa else ""


def _spread_sentence(sources: Sources) -> str:
    """``Of the spread of outcomes within a task, 42 % [32, 51] lies in the start and 58 % [49, 68] in the seeds.``"""
    rest = "policy's seed" if "env seed" in sources.pairs else "seeds"
    names = {**_SHARES, "rest": f"the {rest} and numerics"}
    shares = [
        f"{percent(part.value)} {interval(part.low, part.high, scale=100, digits=0)} lies in {names[name]}"
        for name, part in sources.parts.items()
    ]
    return f"Of the spread of outcomes within a task, {', '.join(shares)}."


def pools(result: Result) -> list[str]:
    """Compare other policies with more takes: the pair of policies that adds most, and all policies together."""
    lines = []
    for pool in result.pools[:1] + [pool for pool in result.pools if len(pool.policies) > 2]:
        together, alone = estimate_percent(pool.each), estimate_percent(pool.alone) or "a share not known"
        gain = estimate_points(pool.gain) or f"not known ({pool.gain.reason})"
        by_score = f" Picking by the score gains {estimate_points(pool.picked)} over one take." if pool.picked else ""
        lines.append(
            f"A perfect pick among one take each of {listed(pool.policies, 5)} succeeds in {together} of"
            f" {count(pool.starts, 'shared start')}, among {len(pool.policies)} takes of {pool.best} in {alone}; the"
            f" difference is {gain}.{by_score}"
        )
    return lines


def _when_answered(answer: Answer, cell: Cell) -> str:
    """Return the estimate that answered a question at an earlier look, if more starts have moved it."""
    questions = cell.verdict.questions.values() if cell.verdict is not None else ()
    earlier = (finding.when_answered for finding in questions if finding.estimate == answer.gain)
    estimate = next(filter(None, earlier), None)
    if estimate is None or answer.answer not in ("yes", "no"):
        return ""
    return f" (answered with {estimate_points(estimate)} after {count(estimate.n, 'start')}, which stands)"


def _subject(name: str, cell: Cell) -> str:
    n = cell.headroom.n if cell.headroom is not None else cell.seeds
    return {
        "takes": f"Keeping the best of {n} takes by {cell.scorer} gains",
        "demonstrations": "At equal noise, retrieved actions add",
        "both": "Retrieval with the best of several takes, beyond the better of the two alone:",
    }[name]


def needs_text(cell: Cell) -> str:
    """Say in a few words what a cell needs, for tables: ``cooled, best of 3``; ``leave``; ``base (open)``."""
    if cell.verdict is None:
        return "nothing measured"
    if cell.verdict.answer == "leave":
        return "leave"
    if promises_nothing(cell.verdict):
        return f"{cell.verdict.options[0].name} (open)"
    return cell.verdict.option + (" (open)" if cell.verdict.answer == "open" else "")


def tone(cell: Cell) -> Tone:
    """Say whether a cell's verdict recommends something ("act"), is open, or neither ("rest")."""
    return _TONES.get(cell.verdict.answer, "rest") if cell.verdict is not None else "rest"


def _retrying(cell: Cell) -> str:
    """Say what retrying until the score passes would give; empty if that was not measured, or gains nothing."""
    retry = cell.rejection
    if retry is None or retry.takes.value is None or retry.threshold is None or (retry.gain.low or 0.0) <= 0:
        return ""
    return (
        f"Or retry until the {retry.scorer} score is at least {retry.threshold:.3g}, with at most {retry.n} takes:"
        f" success {estimate_percent(retry.success)}, {estimate_points(retry.gain)} over one take, with"
        f" {number(retry.takes.value, 2)} takes on average instead of {retry.n}."
    )


_STOPPED = {
    "decided": "All questions were decided after",
    "budget": "The budget was spent after",
    "starts": "There were no more starts after",
    "hopeless": "No further take can settle it; stopped after",
}
_PART_NAMES = {"takes": "more takes", "arms": "the other arms"}


def until_decided(cell: Cell) -> str:
    """Say why a run until decided stopped for a cell, and what it saved; empty for a fixed sample."""
    path = cell.path
    if path is None:
        return ""
    text = f"{_STOPPED.get(path.stopped, path.stopped)} {count(path.takes, 'take')}"
    if cell.group == "*" and len(cell.tasks) > 1:
        text += ", counting those made while none of its cells had stopped"
    if path.unsettled:
        text += f", with {' and '.join(_PART_NAMES.get(part, part) for part in path.unsettled)} still open"
    if path.paper_takes > path.takes:
        saved = "" if path.unsettled else f", so {percent(1 - path.takes / path.paper_takes)} were saved"
        text += f"; the paper's 500 starts for each of these arms take {count(path.paper_takes, 'take')}{saved}"
    return f"{text}."


def special_case(cell: Cell) -> str:
    """Describe a cell whose takes cannot answer the usual questions; empty for an ordinary cell."""
    if cell.takes == 0 or cell.headroom is None:
        reason = f": {count(cell.errors, 'take')} ended in an error" if cell.errors else ""
        return f"No take was finished{reason}, so there is no answer."
    first = cell.headroom.pass_1.value
    if cell.takes == 1:
        outcome = "succeeded" if first else "failed"
        return f"There is one take, and it {outcome}: one take says nothing about others."
    if first == 1:
        return "Every base take succeeded, so these starts leave nothing to gain."
    if first == 0:
        within = count(cell.headroom.n, "take")
        return f"Every base take failed, so these starts show no headroom within {within} per start."
    if cell.headroom.n == 1:
        return "There is one take per start, so headroom is not known."
    return ""


def length_warning(cell: Cell) -> str:
    """Warn if keeping the shortest take gains as much as the score and the window shows length; else empty."""
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


def relation_sentences(measured: Relation) -> list[str]:
    """Describe the relation of gain to headroom, one sentence per test."""
    if measured.r is None:
        return [measured.reason or f"The relation needs at least three cells; this run has {measured.cells}."]
    disjoint = measured.disjoint
    span, method = "", measured.reason or "no interval"
    if measured.interval is not None:
        span, method = f" {interval(*measured.interval, digits=2)}", "interval over cells and their starts"
    lines = [f"r = {number(measured.r, 2)}{span} over {count(measured.cells, 'cell')} ({method})."]
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


def across_cells(measured: Across) -> list[str]:
    """Describe the other numbers over all cells, one sentence each."""
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


def overview(result: Result) -> str:
    """Say how much was run, in one line."""
    starts = {(line.env, line.task): line.starts for cell in result.policies for line in cell.tasks}
    parts = [count(len(result.policies), "policy", "policies"), count(len(starts), "task")]
    parts += [count(sum(starts.values()), "start"), count(result.cost.takes, "take")]
    return " · ".join([*parts, count(result.cost.errors, "error")] if result.cost.errors else parts)


def change_summary(changes: Sequence[Change]) -> str:
    """Say how many numbers are shown to differ between two runs, and how to read that."""
    measured = [change for change in changes if change.change.value is not None]
    if not measured:
        return "The runs have no number in common that can be compared."
    if all(change.same for change in measured):
        return "Both runs hold the same takes, so nothing changed."
    better, worse = (sum(change.shown == way for change in measured) for way in ("better", "worse"))
    rest, numbers = len(measured) - better - worse, count(len(measured), "number")
    return (
        f"Of {numbers}, {better} got better, {worse} got worse; {rest} {'is' if rest == 1 else 'are'} not shown to"
        " differ. Each interval is at 95 % by itself: of 20 numbers that did not change, about one looks changed."
    )


def seeds_advice(plan: SampleSize) -> str:
    """Say whether a budget is better spent on seeds or on starts."""
    known = f"(within-start AUC {number(plan.within_auc, 2)})"
    match plan.advice:
        case "more-seeds":
            return f"5 seeds per start and fewer starts: the ranking is weak {known}, and a take is then worth \
{seeds_worth(5):.1f}x as much; for retrieval alone use the fewest seeds"
        case "more-starts":
            return f"3 seeds per start and more starts: the ranking is good {known}"
    return "3 seeds per start, as in the paper; once the ranking is measured, 5 pay off if it is weak"


def retrieval_name(config: RetrievalConfig, *, prior: bool = True) -> str:
    """Name a retrieval configuration without its noise: ``frame, prior 0.2, re-ranking``."""
    extra = [text for name, text in _VARIANTS.items() if getattr(config, name)]
    extra += [f"lead {config.lead}"] if config.rule == "next" and config.lead != 1 else []
    extra += [f"turns of {config.angle:g}°"] if config.angle is not None else []
    extra += ["weights " + "/".join(f"{w:g}" for w in config.weights)] if len(set(config.weights)) > 1 else []
    return ", ".join([config.rule, *([f"prior {config.prior:g}"] if prior else []), *extra])


def check_sentence(check: RetrievalCheck) -> str:
    """Say in one line what the check found at held-out demonstrations."""
    if check.reason:
        return f"retrieval could not be checked at held-out demonstrations: {check.reason}"
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


def promise_outcome(result: ActResult) -> str:
    """Say whether new starts kept what the run promised."""
    promise, kept = result.promise, result.kept
    if not kept:
        return f"No take of {promise.option} was finished, so its promise was not tested."
    now = f"{sum(take.success for take in kept)} of {len(kept)} starts succeeded, {estimate_percent(result.success)}"
    held = "The promise is broken" if result.broken else "This is in line with the promise"
    return (
        f"Promised {estimate_percent(promise.success)} with {number(promise.takes, 1)} takes per start; {now}, with"
        f" {number(result.takes, 1)} takes per start. {held}."
    )


def gate_decision(judgement: Judgement, takes: Sequence[str]) -> str:
    """Say whether a gate accepts the last of the ``takes`` of a start, or asks for another."""
    score = "it has no score" if judgement.score is None else f"it scores {judgement.score:.3g}"
    threshold = "" if judgement.threshold is None else f", {judgement.threshold:.3g} is enough"
    if judgement.accept:
        return f"Accept: keep {takes[judgement.best]} ({score}{threshold})."
    return f"Retry: {score}{threshold}; {count(judgement.takes_left, 'take')} left."
