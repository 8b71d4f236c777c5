"""What a frozen policy needs at test time: the decision table.

Each question is about a mean over starts and a smallest effect worth acting on, w: YES when {mean <= 0} is rejected
and the estimate is at least w, NO when {mean >= w} is rejected, else UNDECIDED. The two nulls are disjoint, so each
one-sided test uses the whole alpha = .05; the tests hold for few mixed starts (`stats.p_not_above`). For headroom,
{mean <= 0} is rejected by any mixed start. Every question keeps its own level: a verdict that needs two YES answers
(retrieve, combine) errs no more often than one of them.

A run that was looked at before with fewer starts is decided by the test of `besttake.core.sequential` instead, with
its bounds for intervals: testing anew at each look would call for a selection that gains nothing in 12-22 % of runs.

Reuse, from headroom H and the gain G of the score on a window that does not give the length away:

| takes identical | H | G | reuse |
| --- | --- | --- | --- |
| yes | any | any | none: sampling has nothing to reuse |
| no | NO | any | none: G <= H, so no score can gain w |
| no | YES or UNDECIDED | YES | select |
| no | YES | NO | unranked: the takes hold it, the score does not find it |
| no | UNDECIDED | NO | none: this score gains less than w, and headroom is not shown to reach w |
| no | YES or UNDECIDED | UNDECIDED or no score | undecided |
| no | one take per start | | undecided |

If there is no leak-free window and `shortest` gains as much as the score, `select` becomes `undecided`. Wherever
`shortest` gains w and at least as much as the score, ``length_leak`` is set and the sentence says so.

Retrieve, from R = retrieve - base, K = cooled - base, and the content gain C = retrieve - cooled:

| R | K | C | retrieve |
| --- | --- | --- | --- |
| YES | any | YES | retrieve |
| any | YES | NO or UNDECIDED | cool: calmer noise, which costs nothing, is shown to help and the content is not |
| NO or UNDECIDED | YES | YES | cool: content only makes up for what shrinking the noise did |
| NO | NO | any | none |
| YES | NO | NO or UNDECIDED | retrieve: it gains w over base and cooling does not, however the two share it |
| otherwise | | | undecided |
| YES | not measured | | undecided: without the control the gain may be that of cooling |
| NO | not measured | | none |
| not measured | YES | | cool |
| not measured | otherwise | | not-measured |

``any_chunk`` is set where retrieve is chosen but retrieve - shuffled is not YES: any demonstration chunk may do it.

Combine, from D = selection on retrieve takes - selection on base takes and E = selection on retrieve takes - mean of
retrieve takes: yes where both are YES (the pair beats either alone), no where one is NO, else undecided. Without E,
D decides. ``by_cooling`` is set where it is yes but selection on retrieve takes is not shown to beat selection on
cooled takes: cooling and selecting may do as well, without a library of actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.evidence import Evidence as Evidence
from besttake.core.planning import starts_until_decided
from besttake.core.sequential import Looks as Looks
from besttake.core.sequential import fixed_stake, later_bounds, look_again
from besttake.core.stats import (
    Estimate,
    Rng,
    Scale,
    difference_scale,
    gain_scale,
    headroom_scale,
    mean_interval,
    p_not_above,
    p_not_below,
    pick_scale,
)

Answer = Literal["yes", "no", "undecided"]
Reuse = Literal["select", "unranked", "none", "undecided"]
Retrieve = Literal["retrieve", "cool", "none", "undecided", "not-measured"]
Combine = Literal["yes", "no", "undecided", "not-measured"]


@dataclass(frozen=True)
class Finding:
    """The answer to one question, its estimate, both p-values, and how many more starts would settle it (or None)."""

    answer: Answer
    estimate: Estimate
    p_not_above_zero: float
    p_not_below_worth: float
    further: int | None


@dataclass(frozen=True)
class ReuseVerdict:
    """``gain``: what to expect of the choice; ``cost``: takes executed per start; ``findings``: by question."""

    choice: Reuse
    gain: Estimate
    cost: int
    further: int | None
    sentence: str
    length_leak: bool
    findings: dict[str, Finding]


@dataclass(frozen=True)
class RetrieveVerdict:
    """As `ReuseVerdict`; both arms cost one take."""

    choice: Retrieve
    gain: Estimate
    cost: int
    further: int | None
    sentence: str
    any_chunk: bool
    findings: dict[str, Finding]


@dataclass(frozen=True)
class CombineVerdict:
    """As `ReuseVerdict`; ``gain`` is over selection alone."""

    choice: Combine
    gain: Estimate
    cost: int
    further: int | None
    sentence: str
    by_cooling: bool
    findings: dict[str, Finding]


@dataclass(frozen=True)
class Verdict:
    """The three verdicts of a cell or policy, with the worth (a share) and the number of takes per choice."""

    reuse: ReuseVerdict
    retrieve: RetrieveVerdict
    combine: CombineVerdict
    worth: float
    n: int


def ask(
    values: ArrayLike, scale: Scale, worth: float, *, alpha: float = 0.05, rng: Rng = 0, draws: int = 10_000
) -> Finding:
    """Is the mean over starts of ``values`` (S,) worth it? ``draws`` of the bootstrap and of each test."""
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    estimate = mean_interval(x, scale, rng=rng, draws=draws)
    above = p_not_above(x, 0.0, scale.lo, rng=rng, draws=draws)
    below = p_not_below(x, worth, scale.hi, rng=rng, draws=draws) if scale.hi > worth else 0.0
    if estimate.value is None:
        return Finding("undecided", estimate, 1.0, 1.0, None)
    answer: Answer = "undecided"
    if above <= alpha and estimate.value >= worth - 1e-12:
        answer = "yes"
    elif below <= alpha:
        answer = "no"
    return Finding(answer, estimate, above, below, _further(x, scale, worth) if answer == "undecided" else None)


def ask_again(
    values: ArrayLike, scale: Scale, worth: float, looks: Looks, stake: float, *, alpha: float = 0.05
) -> Finding:
    """`ask` of a run that was looked at before: ``values`` (S,) as the starts stand in the run, not as they came."""
    x = np.asarray(values, dtype=np.float64)[looks.order]
    x = x[~np.isnan(x)]
    if not x.size:
        return Finding("undecided", Estimate(None, None, None, 0, "no start has a value"), 1.0, 1.0, None)
    first = looks.earlier[0]
    low, high = later_bounds(x, scale, first=first, stake=stake)
    value = float(x.mean())
    estimate = Estimate(value, min(low, value), max(high, value), x.size)
    later = look_again(x, scale, worth, first=first, stake=stake, alpha=alpha)
    answer, below = later.answer, later.p_not_below_worth
    if scale.hi <= worth:
        answer, below = "no", 0.0
    further = _further(x, scale, worth) if answer == "undecided" else None
    return Finding(answer, estimate, later.p_not_above_zero, below, further)


def decide(
    evidence: Evidence,
    worth: float = 0.03,
    *,
    alpha: float = 0.05,
    rng: Rng = 0,
    draws: int = 10_000,
    looks: Looks | None = None,
) -> Verdict:
    """The verdict by the table of the module. ``worth`` is a share: .03 is 3 points.

    ``looks``: where the run was looked at before with fewer starts.
    """
    if not 0 < worth < 1:
        raise ValueError(f"worth must be a share between 0 and 1, as 0.03 for 3 points, not {worth}")
    takes = np.asarray(evidence.n if evidence.takes is None else evidence.takes, dtype=np.int64)
    fewest = takes[takes > 0].min() if np.any(takes > 0) else evidence.n
    choice, arm = gain_scale(evidence.n, takes), difference_scale(int(fewest))
    questions: list[tuple[str, ArrayLike | None, Scale]] = [
        ("headroom", evidence.headroom, headroom_scale(evidence.n, takes)),
        ("gain", evidence.gain, choice),
        ("shortest", evidence.shortest, choice),
        ("retrieve", evidence.retrieve, arm),
        ("cooled", evidence.cooled, arm),
        ("content", evidence.content, arm),
        ("beyond_shuffled", evidence.beyond_shuffled, arm),
        ("combine", evidence.combine, pick_scale()),
        ("retrieve_selection", evidence.retrieve_selection, choice),
        ("combine_content", evidence.combine_content, pick_scale()),
    ]

    def answered(name: str, values: ArrayLike, scale: Scale) -> Finding:
        if looks is None or not looks.earlier:
            return ask(values, scale, worth, alpha=alpha, rng=rng, draws=draws)
        return ask_again(values, scale, worth, looks, _stake(name, int(fewest)), alpha=alpha)

    found = {name: answered(name, values, scale) for name, values, scale in questions if values is not None}
    return Verdict(
        reuse=_reuse(evidence, found, worth),
        retrieve=_retrieve(found, worth),
        combine=_combine(evidence, found, worth),
        worth=worth,
        n=evidence.n,
    )


def _reuse(evidence: Evidence, found: dict[str, Finding], worth: float) -> ReuseVerdict:
    room, gain, short = found["headroom"], found.get("gain"), found.get("shortest")
    leak = gain is not None and short is not None and short.answer == "yes" and _value(short) >= _value(gain)
    choice: Reuse
    further: int | None = None
    expected = gain.estimate if gain is not None else room.estimate
    if evidence.deterministic:
        choice, sentence = "none", "The takes of a start are identical: sampling has nothing to reuse."
    elif evidence.n < 2 or (evidence.takes is not None and np.max(evidence.takes, initial=0) < 2):
        choice, sentence = "undecided", "One take per start cannot show headroom: run at least two seeds."
    elif room.answer == "no":
        choice = "none"
        sentence = f"The oracle decides: even a perfect choice among {evidence.n} takes gains {_say(room)}, \
less than the {_points(worth)} worth acting on."
    elif gain is None:
        choice, further = "undecided", None
        sentence = f"Headroom is {_say(room)}, but no score was measured, so nothing says whether it can be found."
    elif gain.answer == "yes" and leak and not evidence.leak_free:
        choice = "undecided"
        sentence = f"The shortest take gains {_say(short)}, the score {_say(gain)}, and episodes stop at success: \
length may give the answer away, so a window that hides it must decide."
    elif gain.answer == "yes":
        choice = "select"
        sentence = f"Against a random take, keeping the best-scored of {evidence.n} gains {_say(gain)} \
of an oracle's {_points(_value(room))}."
    elif gain.answer == "no" and room.answer == "yes":
        choice = "unranked"
        sentence = f"The takes hold {_say(room)} of headroom, but against a random take the score gains {_say(gain)}: \
it cannot find it."
    elif gain.answer == "no":
        choice = "none"
        sentence = f"Against a random take the score gains {_say(gain)}, less than the {_points(worth)} worth acting \
on; headroom, {_say(room)}, is not shown to reach that either."
    else:
        choice, further = "undecided", gain.further
        sentence = f"Against a random take the score gains {_say(gain)} of {_points(_value(room))} of headroom, \
which neither shows a gain nor rules one out{_strict(gain)}{_more(further)}."
    if leak and evidence.leak_free and choice != "none":
        sentence = f"{sentence[:-1]}; the shortest take gains {_points(_value(short))}, as much or more, so length \
alone tells success here and a gain on whole episodes would prove nothing."
    return ReuseVerdict(choice, expected, evidence.n, further, sentence, leak, found)


def _retrieve(found: dict[str, Finding], worth: float) -> RetrieveVerdict:
    full, cooled, content = found.get("retrieve"), found.get("cooled"), found.get("content")
    missing = Estimate(None, None, None, 0, "not measured")
    choice: Retrieve
    further: int | None = None
    loose = False
    expected = full.estimate if full else cooled.estimate if cooled else missing
    if full is None and (cooled is None or cooled.answer != "yes"):
        choice, sentence = "not-measured", "The arm `retrieve` was not run."
        if cooled is not None:
            sentence = f"The arm `retrieve` was not run; cooling alone gains {_say(cooled)} over base."
    elif full is None:
        choice = "cool"
        sentence = f"Cooling alone gains {_say(cooled)} over base; the arm `retrieve` was not run."
    elif cooled is None or content is None:
        choice = "none" if full.answer == "no" else "undecided"
        sentence = (
            f"Retrieval gains {_say(full)} over base, less than the {_points(worth)} worth acting on."
            if choice == "none"
            else f"Retrieval gains {_say(full)} over base, but without the arm `cooled` nothing tells \
what is retrieved from calmer noise."
        )
        further = full.further if choice == "undecided" else None
    elif full.answer == "yes" and (content.answer == "yes" or cooled.answer == "no"):
        choice = "retrieve"
        sentence = f"Against `cooled`, retrieved content gains {_say(content)}, and {_say(full)} over base."
        if content.answer != "yes":
            sentence = f"Against base, retrieval gains {_say(full)}, of which `cooled` gives {_say(cooled)} and what \
is retrieved {_say(content)}: neither is shown to be worth acting on alone, the two together are."
        shuffled = found.get("beyond_shuffled")
        loose = shuffled is not None and shuffled.answer != "yes"
        if loose:
            sentence = f"{sentence[:-1]}, but only {_say(shuffled)} against `shuffled`: any demonstration chunk may do."
    elif cooled.answer == "yes":
        choice, expected = "cool", cooled.estimate
        doubt = "which is not shown to be worth it" if content.answer == "undecided" else "not worth the retrieval"
        if content.answer == "yes":
            doubt = "but retrieval is not shown to beat base"
        sentence = f"`cooled` decides: calmer noise alone gains {_say(cooled)} over base, and retrieved content adds \
{_say(content)}, {doubt}."
    elif full.answer == "no" and cooled.answer == "no":
        choice = "none"
        sentence = f"Against base, retrieval gains {_say(full)} and `cooled` {_say(cooled)}, both less than the \
{_points(worth)} worth acting on."
    else:
        choice = "undecided"
        # Where one of the first two is a NO, the other decides whatever the content.
        deciding = (full, cooled) if "no" in (full.answer, cooled.answer) else (full, cooled, content)
        further = max((f.further for f in deciding if f.further is not None), default=None)
        sentence = f"Retrieval gains {_say(full)} over base and {_say(content)} over `cooled`, which itself gains \
{_say(cooled)}: not enough to tell{_strict(full, cooled, content)}{_more(further)}."
    return RetrieveVerdict(choice, expected, 1, further, sentence, loose, found)


def _combine(evidence: Evidence, found: dict[str, Finding], worth: float) -> CombineVerdict:
    pair, alone = found.get("combine"), found.get("retrieve_selection")
    if pair is None:
        missing = Estimate(None, None, None, 0, "not measured")
        said = "Selection on the takes of `retrieve` was not measured."
        return CombineVerdict("not-measured", missing, evidence.n, None, said, False, found)
    said = f"Against selection alone, selecting among {evidence.n} retrieval takes gains {_say(pair)}"
    if alone is not None:
        said += f", and against retrieval alone {_say(alone)}"
    findings = [f for f in (pair, alone) if f is not None]
    choice: Combine = "undecided"
    further: int | None = None
    if any(f.answer == "no" for f in findings):
        choice, said = "no", said + f": less than the {_points(worth)} worth acting on"
    elif all(f.answer == "yes" for f in findings):
        choice, said = "yes", said + ": the two compose"
    else:
        further = max((f.further for f in findings if f.further is not None), default=None)
        said += f": not enough to tell{_strict(*findings)}{_more(further)}"
    content = found.get("combine_content")
    by_cooling = choice == "yes" and content is not None and content.answer != "yes"
    if by_cooling:
        said += f", though against selection on `cooled` takes it gains {_say(content)}, so cooling may do as well"
    return CombineVerdict(choice, pair.estimate, evidence.n, further, said + ".", by_cooling, found)


def _stake(question: str, seeds: int) -> float:
    if question == "headroom":
        return fixed_stake("headroom", seeds)
    return fixed_stake("gain" if question in ("gain", "shortest", "retrieve_selection") else "content", seeds)


def _further(x: np.ndarray, scale: Scale, worth: float) -> int | None:
    """More starts until decided: towards YES from an estimate of worth or more, else towards NO.

    An estimate close under worth would ask for any number of starts, so the distance is at least half of it.
    """
    value = float(x.mean())
    delta = value if value >= worth else max(worth - value, worth / 2)
    # The half pseudo-starts enter the variance as well, so that no mixed start does not read as no variance.
    pseudo = np.array(scale.pseudo)
    sigma2 = (np.sum((x - value) ** 2) + 0.5 * np.sum((pseudo - value) ** 2)) / x.size
    return max(10, starts_until_decided(float(sigma2), delta) - x.size)


def _value(finding: Finding | None) -> float:
    return 0.0 if finding is None or finding.estimate.value is None else finding.estimate.value


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _say(finding: Finding | None) -> str:
    if finding is None or finding.estimate.value is None:
        return "nothing measurable"
    e = finding.estimate
    assert e.value is not None
    assert e.low is not None
    assert e.high is not None
    return f"{100 * e.value:+.1f} points [{100 * e.low:+.1f}, {100 * e.high:+.1f}]"


def _strict(*findings: Finding) -> str:
    """Why a gain whose interval leaves out zero is not taken for one: the test holds with few mixed starts too."""
    missed = [f.p_not_above_zero for f in findings if f.answer == "undecided" and (f.estimate.low or 0) > 0]
    if not missed or min(missed) <= 0.05:
        return ""
    return f" (the exact test, stricter than the interval when few starts are mixed, gives p = {min(missed):.2f})"


def _more(further: int | None) -> str:
    return "" if further is None else f"; about {further} more starts would settle it"
