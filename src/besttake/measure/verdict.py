"""The verdict of a cell: the questions that are asked of it, its options, what to do, and the paper's three answers.

`questions_of` lists what a cell can be asked, each question with one value per start and estimated once: the verdict,
the table of arms, headroom, the selectors, the report and `besttake plan` all read these estimates.

| name | value of a start | kind |
| --- | --- | --- |
| ``headroom`` | pass@n - pass@1 of base | headroom |
| ``gain`` | best-scored of n base takes - pass@1 of base | choice |
| ``shortest`` | shortest of n base takes - pass@1 of base | choice |
| ``ARM`` | pass@1 of the arm - pass@1 of base | difference |
| ``ARM_selection`` | best-scored of n takes of the arm - its pass@1 | choice |
| ``ARM_selected`` | best-scored of n takes of the arm - pass@1 of base | pick |
| ``content`` | pass@1 of retrieve - pass@1 of cooled | difference |
| ``ARM_beyond_control`` | pass@1 of the arm - pass@1 of its control, where that is not base | difference |
| ``beyond_shuffled`` | pass@1 of retrieve - pass@1 of shuffled | difference |
| ``combine`` | best-scored of n retrieve takes - best-scored of n base takes | pick |

`judge` makes the verdict: its options are the arms (but for controls that nobody would choose), each with one take and
with the best of n by the run's score. `besttake.core.verdict` has the rules for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from besttake import result as r
from besttake.arms import BASE, COOLED, RETRIEVE, SEARCHING, SHUFFLED
from besttake.core import select, stats, verdict
from besttake.core.headroom import start_headroom, start_pass_at_k, tally
from besttake.core.planning import BOTH, Futures, forecast, futures
from besttake.core.sequential import RepeatedLooks, fixed_stake, wealth
from besttake.core.stats import Estimate, Finding, Forecast
from besttake.measure.arrays import CellData, ScoredTakes, Settings
from besttake.measure.looks import CellHistory
from besttake.types import F64

MOST = 500
"""No forecast looks further ahead than this many starts: the test is laid out for them."""
_ALPHA = 0.05
_CONTROLS = (SHUFFLED,)
_ZERO = Estimate(0.0, 0.0, 0.0)
_UNMEASURED = Estimate(reason="not measured")
Kind = Literal["headroom", "choice", "difference", "pick"]
"""What sort of value a question is about: it says where values can lie, and what a later look stakes on them."""
_CONTENT = (RETRIEVE, COOLED)
"""The arm and the control of the question ``content``."""


@dataclass(frozen=True)
class Question:
    """Is the mean over starts of ``values`` (S,) worth acting on? NaN where a start has no value.

    ``ruling`` (S,): the same without starts that have too few takes to keep the best of n. The best of fewer gains
    less, so a NO may not rest on them. ``scale``: where the values of these starts can lie. ``reason``: why no start
    has a value.

    A test that is looked at again bets ``stake`` on values within ``widest``. Both follow from the plan and not from
    the takes that were made, so that no start changes what was decided before it.
    """

    name: str
    values: F64
    scale: stats.Scale
    widest: stats.Scale
    stake: float
    ruling: F64
    reason: str = ""

    def estimate(self, looks: RepeatedLooks | None = None) -> Estimate:
        """The mean with its interval, by the test for repeated looks where there were earlier ones."""
        if self.reason:
            return Estimate(reason=self.reason)
        if looks is None or not looks.anytime:
            return stats.mean_interval(self.values, self.scale)
        return verdict.estimate_again(self.values, self.widest, looks, self.stake)

    def ask(self, worth: float, looks: RepeatedLooks | None = None, *, draws: int = 10_000) -> Finding:
        """The answer, with the same estimate."""
        if self.reason:
            return Finding("open", Estimate(reason=self.reason))
        if looks is None or not looks.anytime:
            return verdict.ask(self.values, self.scale, worth, ruling=self.ruling, draws=draws)
        return verdict.ask_again(self.values, self.widest, worth, looks, self.stake, name=self.name, ruling=self.ruling)


def question(
    name: str, kind: Kind, values: ArrayLike, n: int, takes: ArrayLike, *, seeds: int | None = None
) -> Question:
    """A question about ``values`` (S,) where one of n takes is kept; ``takes``: those of each start, of ``seeds``."""
    x, reason = np.asarray(values, dtype=np.float64), ""
    counts = np.broadcast_to(np.asarray(takes, dtype=np.int64), x.shape)
    most = int(counts.max(initial=0))
    if kind in ("headroom", "choice") and min(n, most) < 2:
        x, reason = np.full_like(x, np.nan), "one take per start leaves nothing to choose from"
    used = counts[np.isfinite(x) & (counts > 0)]
    scale, fewest = stats.pick_scale(), int(used.min(initial=most or n))
    if kind == "headroom":
        scale = stats.headroom_scale(n, used)
    elif kind == "choice":
        scale = stats.gain_scale(n, used)
    elif kind == "difference":
        scale = stats.difference_scale(fewest)
    widest = scale
    if kind in ("headroom", "choice"):
        # However many takes a start has, no value leaves the range of n takes.
        reach = stats.headroom_scale(n).hi
        widest = replace(scale, lo=-reach if kind == "choice" else 0.0, hi=reach)
    enough = (counts >= n) | (kind == "difference")
    stake = fixed_stake("content" if kind in ("difference", "pick") else "gain", seeds or most)
    return Question(name, x, scale, widest, stake, np.where(enough, x, np.nan), reason)


def beyond_control(arm: str, control: str) -> str:
    """The name of the question whether an arm is better than its control."""
    return arm if control == BASE else "content" if (arm, control) == _CONTENT else f"{arm}_beyond_control"


def questions_of(arms: Mapping[str, ScoredTakes], n: int, controls: Mapping[str, str] | None = None) -> list[Question]:
    """Every question that the takes of ``arms`` can answer; their rows are the same starts, ``base`` among them.

    ``controls``: the arm that an arm is compared with, besides base.
    """
    base = arms[BASE]
    takes = {name: tally(arm.outcomes)[0] for name, arm in arms.items()}
    ones = {name: start_pass_at_k(arm.outcomes, 1) for name, arm in arms.items()}
    kept = {
        name: select.select(arm.outcomes, arm.scores, n).successes
        for name, arm in arms.items()
        if arm.scores is not None
    }
    others = [name for name in arms if name != BASE]
    # With the arms that are compared, or whose best of n takes is kept.
    asked: list[tuple[str, Kind, tuple[str, ...], ArrayLike]] = [
        ("headroom", "headroom", (BASE,), start_headroom(base.outcomes, n))
    ]
    if BASE in kept:
        asked.append(("gain", "choice", (BASE,), kept[BASE] - ones[BASE]))
    if base.lengths is not None:
        asked.append(("shortest", "choice", (BASE,), select.shortest(base.outcomes, base.lengths, n).gains))
    compared = [(name, name, BASE) for name in others]
    compared += [("content", RETRIEVE, COOLED), ("beyond_shuffled", RETRIEVE, SHUFFLED)]
    compared += [
        (beyond_control(name, control), name, control)
        for name, control in (controls or {}).items()
        if control != BASE and (name, control) != _CONTENT
    ]
    asked += [
        (name, "difference", (arm, control), ones[arm] - ones[control])
        for name, arm, control in compared
        if {arm, control} <= set(arms)
    ]
    asked += [(f"{name}_selection", "choice", (name,), kept[name] - ones[name]) for name in others if name in kept]
    asked += [(f"{name}_selected", "pick", (name,), kept[name] - ones[BASE]) for name in others if name in kept]
    if {RETRIEVE, BASE} <= set(kept):
        asked.append(("combine", "pick", (RETRIEVE, BASE), kept[RETRIEVE] - kept[BASE]))
    seeds = int(np.asarray(base.outcomes).shape[1])
    return [
        question(name, kind, values, n, np.minimum.reduce([takes[arm] for arm in about]), seeds=seeds)
        for name, kind, about, values in asked
    ]


def answer(
    questions: Iterable[Question], worth: float, looks: RepeatedLooks | None = None, *, draws: int = 10_000
) -> dict[str, Finding]:
    """The answer to each question, by name. ``worth`` is a fraction: .03 is 3 points.

    ``looks``: where the run was looked at before with fewer starts.
    """
    return {question.name: question.ask(worth, looks, draws=draws) for question in questions}


@dataclass(frozen=True)
class _Option:
    """An option: ``success`` (S,) of each start, and the name of the question whether it beats one take of base."""

    name: str
    arm: str
    takes: int
    success: F64
    asked: str


def judge(
    data: CellData, settings: Settings, asked: Sequence[Question], findings: Mapping[str, Finding],
    looks: RepeatedLooks, past: CellHistory,
) -> r.Verdict:  # fmt: skip
    """What the policy of a cell needs. ``past``: what was said of it at earlier looks."""
    n, worth = settings.n, settings.worth
    most, leak_free = int(tally(data.arms[BASE].outcomes)[0].max()), data.windows[0] != "episode"
    answers = answers_of(findings, n, most, deterministic=data.deterministic, leak_free=leak_free)
    for name in ("demonstrations", "both"):
        if data.left_out and answers[name].answer == "not measured":
            answers[name] = answers[name].model_copy(update={"reason": "left-out"})
    further = _forecasts(answers, asked, looks, worth, data.spare)
    chosen = _chosen(data, settings, {q.name: q for q in asked}, findings, looks, past)
    if chosen["answer"] == "leave" and answers["takes"].reason == "no-score":
        chosen["answer"] = "open"  # there is headroom, and nothing tried could have found it
    counts, seeds = zip(*sorted({*past.looks, (data.played, settings.seeds)}), strict=True)
    return r.Verdict(
        **chosen,
        **{name: answer.model_copy(update={"further": further.get(name)}) for name, answer in answers.items()},
        questions=dict(findings), leak=_leak(findings),
        any_chunk=answers["demonstrations"].answer == "yes" and _not_shown(findings.get("beyond_shuffled")),
        looks=list(counts), look_seeds=list(seeds), looked=looks.count,
    )  # fmt: skip


def _chosen(
    data: CellData, settings: Settings, asked: Mapping[str, Question], findings: Mapping[str, Finding],
    looks: RepeatedLooks, past: CellHistory,
) -> dict[str, object]:  # fmt: skip
    """The rows, and which of them to take."""
    rows, worth = _rows(data, settings.n, findings), settings.worth
    success = np.stack([row.success for row in rows], axis=1)
    takes = tally(data.arms[BASE].outcomes)[0]

    def shows(j: int, k: int) -> bool:
        return question("", "pick", success[:, j] - success[:, k], 1, takes).ask(worth, looks).answer == "no"

    advice = verdict.recommend(success, worth, shows if looks.anytime else None)
    option, within = advice.option, advice.within
    kept = next((i for i, row in enumerate(rows) if row.name == past.option), None)
    if kept is not None:
        option, within = kept, True
    shown = _shown(rows, asked, findings, looks, past.shown)
    answer = ("leave" if within else "open") if option == 0 else "act" if shown[option] else "open"
    optimism = round(verdict.optimism(success, worth), 12)  # the last bits differ from CPU to CPU
    behind = [
        None if i == advice.best else stats.mean_interval(success[:, advice.best] - column, stats.pick_scale())
        for i, column in enumerate(success.T)
    ]
    gap = behind[advice.cheaper] if advice.cheaper is not None and not within else None
    may_do = gap is not None and gap.low is not None and gap.low < worth
    gain = corrected(_gain(rows[option], findings), optimism if option else 0.0)
    # Whoever looks at the same takes again learns nothing, so that nothing was given before.
    given = past.given if kept is not None and past.given is not None and past.given.gain != gain else None
    return {
        "answer": answer, "option": rows[option].name, "within": within, "optimism": optimism,
        "cheaper": rows[advice.cheaper or 0].name if may_do else None,
        "gain": gain,
        "success": corrected(_success(rows[option]), optimism if option else 0.0, least=0.0),
        "given": given,
        "options": [
            r.Option(
                name=row.name, arm=row.arm, scorer=None if row.takes == 1 else data.scorer, takes=row.takes,
                success=_success(row), gain=_gain(row, findings), shown=shown[i],
                answer=findings[row.asked].answer if row.asked else "no",
                behind=behind[i],
            )
            for i, row in enumerate(rows)
        ],
    }  # fmt: skip


def _rows(data: CellData, n: int, findings: Mapping[str, Finding]) -> list[_Option]:
    """Every option that the takes of a cell can judge, the cheapest first: the frozen policy with one take."""
    rows = []
    for name, arm in data.arms.items():
        scores = arm.score(data.score_name)
        if name.partition("?")[0] in _CONTROLS or not arm.takes:
            continue
        rows.append(_Option(name, name, 1, start_pass_at_k(arm.outcomes, 1), "" if name == BASE else name))
        picked = "gain" if name == BASE else f"{name}_selected"
        if scores is None or data.deterministic or data.windows[0] == "episode" or picked not in findings:
            continue
        if findings[picked].estimate.value is not None:
            kept = select.select(arm.outcomes, scores, n).successes
            rows.append(_Option(f"{name}, best of {n}", name, n, kept, picked))
    known = [row for row in rows if not row.asked or findings[row.asked].estimate.value is not None]
    return sorted(known, key=lambda row: (row.takes, _effort(row.arm)))


def _effort(arm: str) -> int:
    """What an arm costs beside its takes: nothing, other settings, or a library to search."""
    return 2 if arm.partition("?")[0] in SEARCHING else int(arm != BASE)


def _success(row: _Option) -> Estimate:
    return stats.mean_interval(row.success, stats.unit_scale())


def _gain(row: _Option, findings: Mapping[str, Finding]) -> Estimate:
    return findings[row.asked].estimate if row.asked else _ZERO


def corrected(estimate: Estimate, optimism: float, least: float = -1.0) -> Estimate:
    """An estimate less what the choice adds to it, between ``least`` and 1. The interval only grows: the choice may
    have added nothing."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    ends = estimate.value - optimism, estimate.low - max(optimism, 0.0), estimate.high - min(optimism, 0.0)
    value, low, high = (min(max(end, least), 1.0) for end in ends)
    return Estimate(value, low, high, estimate.n)


def _shown(
    rows: Sequence[_Option], asked: Mapping[str, Question], findings: Mapping[str, Finding], looks: RepeatedLooks,
    before: frozenset[str],
) -> list[bool]:  # fmt: skip
    """Which options are shown to gain, with the error over all of them under control; what was shown stays shown."""
    own = [row for row in rows if row.asked]
    if not own:
        return [False] * len(rows)
    if looks.anytime:
        claims = verdict.claimed(_evidence([asked[row.asked] for row in own], looks), looks.left(_ALPHA))
    else:
        claims = verdict.holm([findings[row.asked].p_not_above_zero for row in own], _ALPHA)
    fit = {
        row.name for row, claim in zip(own, claims.tolist(), strict=True)
        if claim and findings[row.asked].answer == "yes"
    }  # fmt: skip
    return [row.name in fit | before for row in rows]


def _evidence(questions: Sequence[Question], looks: RepeatedLooks) -> F64:
    """E-values (T, K) along the starts, against each option's gaining nothing."""
    values = np.stack([question.values[looks.order] for question in questions], axis=1)
    lo, hi = [q.widest.lo for q in questions], [q.widest.hi for q in questions]
    alpha = looks.left(_ALPHA) / len(questions)
    return wealth(values, 0.0, 1, lo, hi, fixed=[q.stake for q in questions], alpha=alpha) / 2


def answers_of(
    findings: Mapping[str, Finding], n: int, most_takes: int, *, deterministic: bool = False, leak_free: bool = True
) -> dict[str, r.Answer]:
    """The paper's questions: does keeping the best of n takes gain, do retrieved actions, does the pair beat either?

    ``most_takes``: the most that any start has. ``leak_free``: the score read a window that hides the length.
    """
    return {
        "takes": _takes(findings, min(n, most_takes), deterministic, leak_free),
        "demonstrations": _demonstrations(findings),
        "both": _both(findings),
    }


def _takes(findings: Mapping[str, Finding], n: int, deterministic: bool, leak_free: bool) -> r.Answer:
    headroom, gain = findings["headroom"], findings.get("gain")
    estimate = (gain or headroom).estimate
    if deterministic:
        return r.Answer(answer="no", reason="identical-takes", gain=estimate)
    if n < 2:
        return r.Answer(answer="open", reason="one-take", gain=estimate)
    if headroom.answer == "no":
        return r.Answer(answer="no", reason="no-headroom", gain=estimate)
    if gain is None:
        return r.Answer(answer="open", reason="no-score", gain=estimate)
    if gain.answer == "yes" and not leak_free and _leak(findings):
        return r.Answer(answer="open", reason="length-leak", gain=estimate)
    return r.Answer(answer=gain.answer, gain=estimate)


def _demonstrations(findings: Mapping[str, Finding]) -> r.Answer:
    content, alone = findings.get("content"), findings.get(RETRIEVE)
    if content is not None:
        return r.Answer(answer=content.answer, gain=content.estimate)
    if alone is None:
        return r.Answer(answer="not measured", reason="not-run", gain=_UNMEASURED)
    return r.Answer(answer="no" if alone.answer == "no" else "open", reason="no-control", gain=alone.estimate)


def _both(findings: Mapping[str, Finding]) -> r.Answer:
    parts = [findings[name] for name in BOTH if name in findings]
    if len(parts) < len(BOTH):
        return r.Answer(answer="not measured", reason="not-run", gain=_UNMEASURED)
    codes = {part.answer for part in parts}
    answer = "no" if "no" in codes else "open" if "open" in codes else "yes"
    least = min(parts, key=lambda part: np.inf if part.estimate.value is None else part.estimate.value)
    return r.Answer(answer=answer, gain=least.estimate)


def _leak(findings: Mapping[str, Finding]) -> bool:
    """Whether keeping the shortest take gains as much as the score: then length may give the outcome away."""
    gain, shortest = findings.get("gain"), findings.get("shortest")
    if gain is None or shortest is None or shortest.answer != "yes":
        return False
    return (shortest.estimate.value or 0.0) >= (gain.estimate.value or 0.0)


def _not_shown(finding: Finding | None) -> bool:
    return finding is not None and finding.answer != "yes" and finding.estimate.value is not None


def ahead(
    asked: Sequence[Question], looks: RepeatedLooks, worth: float, most: int, parts: Sequence[str]
) -> Futures | None:
    """Futures of the questions that ``parts`` of the verdict rest on; None where none of them has a value."""
    rest_on = {"takes": ("headroom", "gain"), "both": BOTH}
    names = {name for part in parts for name in rest_on.get(part, (part,))}
    known = [q for q in asked if q.name in names and not q.reason and np.isfinite(q.ruling).any()]
    if not known or most < 1:
        return None
    values = np.stack([question.ruling[looks.order] for question in known], axis=1)
    scales, stakes = [q.widest for q in known], [q.stake for q in known]
    # What a fixed sample leaves open is decided by later looks, which share what is left of alpha.
    alpha = looks.left()
    return futures(values, [q.name for q in known], scales, stakes, worth, most, alpha=alpha)


def _forecasts(
    answers: Mapping[str, r.Answer], asked: Sequence[Question], looks: RepeatedLooks, worth: float, spare: int | None
) -> dict[str, Forecast]:
    """For each open answer, the further starts that would settle it; ``spare``: how many there are."""
    parts = [name for name, answer in answers.items() if answer.answer == "open" and not answer.reason]
    most = MOST if spare is None else min(MOST, spare)
    if not parts:
        return {}
    if most < 1:
        return dict.fromkeys(parts, Forecast(None, None, 0))
    questions = {part: "content" if part == "demonstrations" else part for part in parts}
    drawn = ahead(asked, looks, worth, most, [*questions.values()])
    settled = {part: drawn.settled(name) for part, name in questions.items()} if drawn is not None else {}
    return {part: forecast(times, most) for part, times in settled.items() if times is not None}
