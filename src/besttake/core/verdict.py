"""What a frozen policy needs at test time: the decision table.

Each question is about a mean over starts and a smallest effect worth acting on, w: YES when {mean <= 0} is rejected
and the estimate is at least w, NO when {mean >= w} is rejected, else UNDECIDED. The two nulls are disjoint, so each
one-sided test uses the whole alpha = .05; the tests hold for few mixed starts (`stats.p_not_above`). For headroom,
{mean <= 0} is rejected by any mixed start. Every question keeps its own level: a verdict that needs two YES answers
(retrieve, combine) errs no more often than one of them. The claim about the best option has a level of its own, over
all options (`besttake.core.options`).

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
`shortest` gains w and at least as much as the score, ``leak`` is set.

Retrieve, from R = retrieve - base, K = cooled - base, and the content gain C = retrieve - cooled:

| R | K | C | retrieve |
| --- | --- | --- | --- |
| YES | any | YES | retrieve |
| UNDECIDED | YES | YES | retrieve: cooling gains and content adds to it, so retrieval gains |
| YES | NO | NO or UNDECIDED | retrieve: it gains w over base and cooling does not, however the two share it |
| any | YES | NO | cool: calmer noise, which costs nothing, is shown to help and content is ruled out |
| NO | YES | YES or UNDECIDED | cool: retrieval is ruled out |
| YES or UNDECIDED | YES | UNDECIDED | cool-or-retrieve: to act is right, which of the two is open |
| YES | UNDECIDED | NO or UNDECIDED | cool-or-retrieve |
| NO | NO | any | none |
| otherwise | | | undecided |
| YES | not measured | | undecided: without the control the gain may be that of cooling |
| NO | not measured | | none |
| not measured | YES, NO or UNDECIDED | | cool, none or undecided: about cooling alone |
| not measured | not measured | | not-measured |

``any_chunk`` is set where retrieve is chosen but retrieve - shuffled is not YES: any demonstration chunk may do it.

Combine, for each arm that acts (retrieve, cooled), from D = selection on its takes - selection on base takes and E =
selection on its takes - mean of its takes. An arm composes with selection where both are YES (the pair beats either
alone), and does not where one is NO; without E, D decides. Combine is yes where an arm composes, no where none does,
else undecided; with two arms a YES stands Holm's test over them. With one take per start it is not-measured.
``by_cooling`` is set where retrieving composes but is
not shown to beat selection on cooled takes: cooling and selecting may do as well, without a library of actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.estimate import Estimate, Finding, YesNo
from besttake.core.options import holm
from besttake.core.sequential import Looks, later_bounds, look_again
from besttake.core.stats import Rng, Scale, mean_interval, p_not_above, p_not_below
from besttake.core.until import Track, bounds, tracks

Reuse = Literal["select", "unranked", "none", "undecided"]
Retrieve = Literal["retrieve", "cool", "cool-or-retrieve", "none", "undecided", "not-measured"]
Combine = Literal["yes", "no", "undecided", "not-measured"]
Reason = Literal[
    "identical-takes", "one-take", "no-headroom", "no-score", "length-leak", "gain", "not-ranked", "small-gain", "open",
    "not-run", "cooled-only", "no-control", "content", "together", "cooling", "choice", "composes",
]  # fmt: skip
"""Which row of the tables above decided: ``reporting/words/`` has the sentence of each."""


@dataclass(frozen=True)
class Part:
    """One part of a verdict: what to do, which row decided it, the gain to expect, and its cost in takes per start.

    ``arm``: the way of running that is chosen, where one is.
    """

    answer: Reuse | Retrieve | Combine
    reason: Reason
    gain: Estimate
    cost: int
    arm: str = ""


@dataclass(frozen=True)
class Decided:
    """The three choices of a cell or policy, the warnings that go with them, and the answer to every question."""

    reuse: Part
    retrieve: Part
    combine: Part
    leak: bool
    any_chunk: bool
    by_cooling: bool
    questions: Mapping[str, Finding]


def ask(
    values: ArrayLike,
    scale: Scale,
    worth: float,
    *,
    ruling: ArrayLike | None = None,
    alpha: float = 0.05,
    rng: Rng = 0,
    draws: int = 10_000,
) -> Finding:
    """Is the mean over starts of ``values`` (S,) worth it? ``draws`` of the bootstrap and of each test.

    ``ruling`` (S,): the values that a NO may rest on; all unless given.
    """
    x = _existing(values)
    estimate = mean_interval(x, scale, rng=rng, draws=draws)
    if estimate.value is None:
        return Finding("undecided", estimate)
    above = p_not_above(x, 0.0, scale.lo, rng=rng, draws=draws)
    out = x if ruling is None else _existing(ruling)
    below = p_not_below(out, worth, scale.hi, rng=rng, draws=draws) if scale.hi > worth else 0.0
    answer: YesNo = "undecided"
    if above <= alpha and estimate.value >= worth - 1e-12:
        answer = "yes"
    elif below <= alpha:
        answer = "no"
    return _finding(answer, estimate, (above, below), x, scale)


def ask_again(
    values: ArrayLike,
    scale: Scale,
    worth: float,
    looks: Looks,
    stake: float,
    *,
    ruling: ArrayLike | None = None,
    alpha: float = 0.05,
) -> Finding:
    """`ask` for a run that was looked at before: ``values`` (S,) in the order of the run, which ``looks`` sorts."""
    every = np.asarray(values, dtype=np.float64)[looks.order]
    out = every if ruling is None else np.asarray(ruling, dtype=np.float64)[looks.order]
    x = _existing(every)
    estimate = estimate_again(values, scale, looks, stake)
    if estimate.value is None:
        return Finding("undecided", estimate)
    if looks.until:
        (track,) = tracks(every[:, None], [scale], [stake], worth, ruling=out[:, None], alpha=alpha)
        finding = _finding(track.answer(every.size), estimate, track.p_values(every.size), x, scale)
        return replace(finding, when_answered=_when_answered(track, finding, worth))
    later = look_again(every, scale, worth, first=looks.earlier[0], stake=stake, ruling=out, alpha=looks.left(alpha))
    answer, below = (later.answer, later.p_not_below_worth) if scale.hi > worth else ("no", 0.0)
    # A part of alpha is left for later looks, so that the p-values count several times.
    times = alpha / looks.left(alpha)
    p_values = min(1.0, times * later.p_not_above_zero), min(1.0, times * below)
    return _finding(answer, estimate, p_values, x, scale)


def estimate_again(values: ArrayLike, scale: Scale, looks: Looks, stake: float) -> Estimate:
    """Mean of ``values`` (S,) with bounds that hold over all looks; the counterpart of `mean_interval`."""
    x = _existing(np.asarray(values, dtype=np.float64)[looks.order])
    if not x.size:
        return Estimate(reason="no start has a value")
    if looks.until:
        low, high = bounds(x, scale, stake)
    else:
        level = 1 - 0.05 / 2**looks.grown
        low, high = later_bounds(x, scale, first=looks.earlier[0], stake=stake, level=level)
    value = float(x.mean())
    return Estimate(value, min(low, value), max(high, value), int(x.size))


def decide(
    findings: Mapping[str, Finding],
    n: int,
    *,
    most_takes: int | None = None,
    deterministic: bool = False,
    leak_free: bool = True,
) -> Decided:
    """The verdict by the tables of the module, from the answer to each question where one of n takes is kept.

    ``most_takes``: the most that any start has (n unless given). ``deterministic``: the takes of a start are identical
    by construction. ``leak_free``: the score read a window that hides the length.
    """
    gain, shortest = findings.get("gain"), findings.get("shortest")
    leak = bool(gain and shortest and shortest.answer == "yes" and _value(shortest) >= _value(gain))
    if deterministic:
        reuse = Part("none", "identical-takes", (gain or findings["headroom"]).estimate, n)
    elif min(n, n if most_takes is None else most_takes) < 2:
        reuse = Part("undecided", "one-take", (gain or findings["headroom"]).estimate, n)
    else:
        reuse = _reuse(findings["headroom"], gain, n, leak and not leak_free)
    retrieve, combine = _retrieve(findings), _combine(findings, n)
    if reuse.reason == "one-take" and combine.answer != "not-measured":
        combine = Part(
            "not-measured", "one-take", Estimate(reason="one take per start leaves nothing to choose from"), n
        )
    any_chunk = retrieve.answer == "retrieve" and _not_shown(findings.get("beyond_shuffled"))
    retrieving = all(findings[name].answer == "yes" for name in PAIRS["retrieve"] if name in findings)
    by_cooling = combine.answer == "yes" and retrieving and _not_shown(findings.get("combine_content"))
    return Decided(reuse, retrieve, combine, leak, any_chunk, by_cooling, findings)


def _reuse(headroom: Finding, gain: Finding | None, n: int, length_tells: bool) -> Part:
    if headroom.answer == "no":
        return Part("none", "no-headroom", (gain or headroom).estimate, n)
    if gain is None:
        return Part("undecided", "no-score", headroom.estimate, n)
    if gain.answer == "yes":
        return Part(
            "undecided" if length_tells else "select", "length-leak" if length_tells else "gain", gain.estimate, n
        )
    if gain.answer == "no":
        shown = headroom.answer == "yes"
        return Part("unranked" if shown else "none", "not-ranked" if shown else "small-gain", gain.estimate, n)
    return Part("undecided", "open", gain.estimate, n)


def _retrieve(findings: Mapping[str, Finding]) -> Part:
    full, cooled, content = (findings.get(name) for name in ("retrieve", "cooled", "content"))
    if full is None:
        if cooled is None:
            return Part("not-measured", "not-run", Estimate(reason="not measured"), 1)
        alone: dict[YesNo, Retrieve] = {"yes": "cool", "no": "none", "undecided": "undecided"}
        arm = "cooled" if cooled.answer == "yes" else ""
        return Part(alone[cooled.answer], "cooled-only", cooled.estimate, 1, arm)
    if cooled is None or content is None:
        if full.answer == "no":
            return Part("none", "small-gain", full.estimate, 1)
        return Part("undecided", "no-control", full.estimate, 1)
    three = {"retrieve": full, "cooled": cooled, "content": content}
    yes, no = ({name for name, f in three.items() if f.answer == code} for code in ("yes", "no"))
    if "content" in yes and yes & {"retrieve", "cooled"} and "retrieve" not in no:
        return Part("retrieve", "content", full.estimate, 1, arm="retrieve")
    if "retrieve" in yes and "cooled" in no:
        return Part("retrieve", "together", full.estimate, 1, arm="retrieve")
    if "cooled" in yes and no & {"content", "retrieve"}:
        return Part("cool", "cooling", cooled.estimate, 1, arm="cooled")
    if {"retrieve", "cooled"} <= no:
        return Part("none", "small-gain", full.estimate, 1)
    if yes & {"retrieve", "cooled"}:
        arm = max(yes & {"retrieve", "cooled"}, key=lambda name: (_value(three[name]), name == "cooled"))
        return Part("cool-or-retrieve", "choice", three[arm].estimate, 1, arm)
    return Part("undecided", "open", full.estimate, 1)


PAIRS = {"retrieve": ("combine", "retrieve_selection"), "cooled": ("combine_cooled", "cooled_selection")}
"""By arm, the questions whether it composes with selection: against selection alone, and against the arm alone."""


def _combine(findings: Mapping[str, Finding], n: int) -> Part:
    pairs = {
        arm: [findings[name] for name in names if name in findings]
        for arm, names in PAIRS.items()
        if names[0] in findings
    }
    if not pairs:
        return Part("not-measured", "not-run", Estimate(reason="not measured"), n)
    composes = _composing(pairs)
    if composes:
        beats_cooling = len(composes) == 1 or not _not_shown(findings.get("combine_content"))
        arm = composes[0] if beats_cooling else "cooled"
        return Part("yes", "composes", pairs[arm][0].estimate, n, arm=arm)
    ruled_out = [[part for part in parts if part.answer == "no"] for parts in pairs.values()]
    if all(ruled_out):
        return Part("no", "small-gain", ruled_out[0][0].estimate, n)
    return Part("undecided", "open", next(iter(pairs.values()))[0].estimate, n)


def _composing(pairs: Mapping[str, Sequence[Finding]], alpha: float = 0.05) -> list[str]:
    """The arms whose two questions are both YES, by Holm's test where there are several arms."""
    rejected = holm([max(part.p_not_above_zero for part in parts) for parts in pairs.values()], alpha)
    return [
        arm
        for (arm, parts), shown in zip(pairs.items(), rejected, strict=True)
        if shown and all(part.answer == "yes" for part in parts)
    ]


def _finding(answer: YesNo, estimate: Estimate, p_values: tuple[float, float], x: np.ndarray, scale: Scale) -> Finding:
    value = float(x.mean())
    # The half pseudo-starts enter the variance as well, so that no mixed start does not read as no variance.
    variance = float((np.sum((x - value) ** 2) + 0.5 * np.sum((np.array(scale.pseudo) - value) ** 2)) / x.size)
    return Finding(answer, estimate, *p_values, variance)


def _when_answered(track: Track, finding: Finding, worth: float) -> Estimate | None:
    """The estimate at the answer, where that of all starts no longer fits it."""
    above = _value(finding) >= worth - 1e-12
    after = min(track.yes, track.no)
    if after < 1 or (finding.answer, above) not in (("yes", False), ("no", True)):
        return None
    return Estimate(float(track.mean[after - 1]), n=int(track.count[after - 1]))


def _existing(values: ArrayLike) -> np.ndarray:
    x = np.asarray(values, dtype=np.float64)
    return x[~np.isnan(x)]


def _not_shown(finding: Finding | None) -> bool:
    return finding is not None and finding.answer != "yes" and finding.estimate.value is not None


def _value(finding: Finding) -> float:
    return finding.estimate.value or 0.0
