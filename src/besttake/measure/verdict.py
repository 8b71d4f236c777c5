"""Make the verdict of a cell: its questions, its options, the recommended one, and the paper's three answers.

`questions_of` lists the questions that a cell can answer, with one value per start. Each is estimated once, and the
verdict, the tables of arms, headroom and selectors, the report and `besttake plan` all use that estimate.

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

`judge` makes the verdict. Its options are the arms, except for controls that nobody would choose, each with one take
and with the best of n by the run's score. `besttake.core.verdict` has the rules for both.
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
"""Forecasts look at most this many starts ahead, for which the test is laid out."""
_ALPHA = 0.05
_CONTROLS = (SHUFFLED,)
_ZERO = Estimate(0.0, 0.0, 0.0)
_UNMEASURED = Estimate(reason="not measured")
Kind = Literal["headroom", "choice", "difference", "pick"]
"""The kind of a question's values, which tells their range and the stake of a later look."""
_CONTENT = (RETRIEVE, COOLED)
"""The arm and the control of the question ``content``."""


@dataclass(frozen=True)
class Question:
    """The question whether the mean over starts of ``values`` (S,) is worth acting on; NaN where there is no value.

    ``ruling`` (S,): the same, but NaN for starts with fewer than n takes. The best of fewer gains less, so a NO may not
    rest on these. ``scale``: the range of the values. ``reason``: why no start has a value.

    A test for repeated looks bets ``stake`` on values within ``widest``. Both depend on the plan and not on the takes,
    so that no start changes earlier decisions.
    """

    name: str
    values: F64
    scale: stats.Scale
    widest: stats.Scale
    stake: float
    ruling: F64
    reason: str = ""

    def estimate(self, looks: RepeatedLooks | None = None) -> Estimate:
        """The mean with its interval, which is that for repeated looks if there were earlier ones."""
        if self.reason:
            return Estimate(reason=self.reason)
        if looks is None or not looks.anytime:
            return stats.mean_interval(self.values, self.scale)
        return verdict.estimate_again(self.values, self.widest, looks, self.stake)

    def ask(self, worth: float, looks: RepeatedLooks | None = None, *, draws: int = 10_000) -> Finding:
        """The answer, with the estimate that `estimate` gives."""
        if self.reason:
            return Finding("open", Estimate(reason=self.reason))
        if looks is None or not looks.anytime:
            return verdict.ask(self.values, self.scale, worth, ruling=self.ruling, draws=draws)
        return verdict.ask_again(self.values, self.widest, worth, looks, self.stake, name=self.name, ruling=self.ruling)


def question(
    name: str, kind: Kind, values: ArrayLike, n: int, takes: ArrayLike, *, seeds: int | None = None
) -> Question:
    """Make a question about ``values`` (S,) if one of n takes is kept; ``takes`` (S,) of ``seeds`` were finished."""
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
        # However many takes a start has, its value is within the range for n takes.
        reach = stats.headroom_scale(n).hi
        widest = replace(scale, lo=-reach if kind == "choice" else 0.0, hi=reach)
    enough = (counts >= n) | (kind == "difference")
    stake = fixed_stake("content" if kind in ("difference", "pick") else "gain", seeds or most)
    return Question(name, x, scale, widest, stake, np.where(enough, x, np.nan), reason)


def beyond_control(arm: str, control: str) -> str:
    """The name of the question whether ``arm`` is better than ``control``."""
    return arm if control == BASE else "content" if (arm, control) == _CONTENT else f"{arm}_beyond_control"


def questions_of(arms: Mapping[str, ScoredTakes], n: int, controls: Mapping[str, str] | None = None) -> list[Question]:
    """List every question that the takes of ``arms`` can answer. `base` is one of them, and all have the same starts.

    ``controls``: the arm that each arm is compared with besides base.
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
    # Name, kind, the arms that are compared or whose best of n takes is kept, and values.
    rows: list[tuple[str, Kind, tuple[str, ...], ArrayLike]] = [
        ("headroom", "headroom", (BASE,), start_headroom(base.outcomes, n))
    ]
    if BASE in kept:
        rows.append(("gain", "choice", (BASE,), kept[BASE] - ones[BASE]))
    if base.lengths is not None:
        rows.append(("shortest", "choice", (BASE,), select.shortest(base.outcomes, base.lengths, n).gains))
    compared = [(name, name, BASE) for name in others]
    compared += [("content", RETRIEVE, COOLED), ("beyond_shuffled", RETRIEVE, SHUFFLED)]
    compared += [
        (beyond_control(name, control), name, control)
        for name, control in (controls or {}).items()
        if control != BASE and (name, control) != _CONTENT
    ]
    rows += [
        (name, "difference", (arm, control), ones[arm] - ones[control])
        for name, arm, control in compared
        if {arm, control} <= set(arms)
    ]
    rows += [(f"{name}_selection", "choice", (name,), kept[name] - ones[name]) for name in others if name in kept]
    rows += [(f"{name}_selected", "pick", (name,), kept[name] - ones[BASE]) for name in others if name in kept]
    if {RETRIEVE, BASE} <= set(kept):
        rows.append(("combine", "pick", (RETRIEVE, BASE), kept[RETRIEVE] - kept[BASE]))
    seeds = int(np.asarray(base.outcomes).shape[1])
    return [
        question(name, kind, values, n, np.minimum.reduce([takes[arm] for arm in about]), seeds=seeds)
        for name, kind, about, values in rows
    ]


def answer(
    questions: Iterable[Question], worth: float, looks: RepeatedLooks | None = None, *, draws: int = 10_000
) -> dict[str, Finding]:
    """Answer each question, by name, with earlier ``looks`` at the run. ``worth`` is a fraction: .03 is 3 points."""
    return {question.name: question.ask(worth, looks, draws=draws) for question in questions}


@dataclass(frozen=True)
class _Option:
    """An option: its ``success`` (S,) at each start, and the name of the question whether it beats one take of base."""

    name: str
    arm: str
    takes: int
    success: F64
    question: str


def judge(
    data: CellData, settings: Settings, questions: Sequence[Question], findings: Mapping[str, Finding],
    looks: RepeatedLooks, past: CellHistory,
) -> r.Verdict:  # fmt: skip
    """Make the verdict of a cell. ``past``: the answers that it got at earlier looks."""
    n, worth = settings.n, settings.worth
    most, leak_free = int(tally(data.arms[BASE].outcomes)[0].max()), data.windows[0] != "episode"
    answers = answers_of(findings, n, most, deterministic=data.deterministic, leak_free=leak_free)
    for name in ("demonstrations", "both"):
        if data.left_out and answers[name].answer == "not measured":
            answers[name] = answers[name].model_copy(update={"reason": "left-out"})
    further = _forecasts(answers, questions, looks, worth, data.spare)
    advice = _advise(data, settings, {q.name: q for q in questions}, findings, looks, past)
    if advice["answer"] == "leave" and answers["takes"].reason == "no-score":
        advice["answer"] = "open"  # there is headroom, and no option that was tried could have found it
    beyond = findings.get("beyond_shuffled")
    not_shown = beyond is not None and beyond.answer != "yes" and beyond.estimate.value is not None
    counts, seeds = zip(*sorted({*past.looks, (data.played, settings.seeds)}), strict=True)
    return r.Verdict(
        **advice,
        **{name: answer.model_copy(update={"further": further.get(name)}) for name, answer in answers.items()},
        questions=dict(findings), leak=_leak(findings),
        any_chunk=answers["demonstrations"].answer == "yes" and not_shown,
        looks=list(counts), look_seeds=list(seeds), looked=looks.count,
    )  # fmt: skip


def _advise(
    data: CellData, settings: Settings, questions: Mapping[str, Question], findings: Mapping[str, Finding],
    looks: RepeatedLooks, past: CellHistory,
) -> dict[str, object]:  # fmt: skip
    """The fields of the verdict on the options: which there are, and which is recommended."""
    rows, worth = _options(data, settings.n, findings), settings.worth
    success = np.stack([row.success for row in rows], axis=1)
    takes = tally(data.arms[BASE].outcomes)[0]

    def shows(j: int, k: int) -> bool:
        return question("", "pick", success[:, j] - success[:, k], 1, takes).ask(worth, looks).answer == "no"

    advice = verdict.recommend(success, worth, shows if looks.anytime else None)
    option, within = advice.option, advice.within
    kept = next((i for i, row in enumerate(rows) if row.name == past.option), None)
    if kept is not None:
        option, within = kept, True
    shown = _shown(rows, questions, findings, looks, past.shown)
    answer = ("leave" if within else "open") if option == 0 else "act" if shown[option] else "open"
    optimism = round(verdict.optimism(success, worth), 12)  # the last bits differ from CPU to CPU
    behind = [
        None if i == advice.best else stats.mean_interval(success[:, advice.best] - column, stats.pick_scale())
        for i, column in enumerate(success.T)
    ]
    gap = behind[advice.cheaper] if advice.cheaper is not None and not within else None
    may_do = gap is not None and gap.low is not None and gap.low < worth
    gain = corrected(_gain(rows[option], findings), optimism if option else 0.0)
    # Another look at the same takes changes nothing, so an earlier gain is shown only if it differs.
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
                answer=findings[row.question].answer if row.question else "no",
                behind=behind[i],
            )
            for i, row in enumerate(rows)
        ],
    }  # fmt: skip


def _options(data: CellData, n: int, findings: Mapping[str, Finding]) -> list[_Option]:
    """The options that the takes of a cell can judge, from the cheapest, the frozen policy with one take."""
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
    measured = [row for row in rows if not row.question or findings[row.question].estimate.value is not None]
    return sorted(measured, key=lambda row: (row.takes, _effort(row.arm)))


def _effort(arm: str) -> int:
    """What an arm costs besides its takes: 0 nothing, 1 other settings, 2 a library to search."""
    return 2 if arm.partition("?")[0] in SEARCHING else int(arm != BASE)


def _success(row: _Option) -> Estimate:
    return stats.mean_interval(row.success, stats.unit_scale())


def _gain(row: _Option, findings: Mapping[str, Finding]) -> Estimate:
    return findings[row.question].estimate if row.question else _ZERO


def corrected(estimate: Estimate, optimism: float, least: float = -1.0) -> Estimate:
    """Subtract the optimism of a choice from an estimate, and keep it between ``least`` and 1. The interval only grows,
    because the choice may have added nothing."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    ends = estimate.value - optimism, estimate.low - max(optimism, 0.0), estimate.high - min(optimism, 0.0)
    value, low, high = (min(max(end, least), 1.0) for end in ends)
    return Estimate(value, low, high, estimate.n)


def _shown(
    rows: Sequence[_Option], questions: Mapping[str, Question], findings: Mapping[str, Finding], looks: RepeatedLooks,
    before: frozenset[str],
) -> list[bool]:  # fmt: skip
    """Which options are shown to gain, with a joint error of at most `_ALPHA`; those shown ``before`` stay shown."""
    compared = [row for row in rows if row.question]
    if not compared:
        return [False] * len(rows)
    if looks.anytime:
        evidence = _evidence([questions[row.question] for row in compared], looks)
        claims = verdict.claimed(evidence, looks.left(_ALPHA))
    else:
        claims = verdict.holm([findings[row.question].p_not_above_zero for row in compared], _ALPHA)
    gaining = {
        row.name for row, claim in zip(compared, claims.tolist(), strict=True)
        if claim and findings[row.question].answer == "yes"
    }  # fmt: skip
    return [row.name in gaining | before for row in rows]


def _evidence(questions: Sequence[Question], looks: RepeatedLooks) -> F64:
    """E-values (T, K) along the starts against the hypotheses that each of K options gains nothing."""
    values = np.stack([question.values[looks.order] for question in questions], axis=1)
    lo, hi = [q.widest.lo for q in questions], [q.widest.hi for q in questions]
    alpha = looks.left(_ALPHA) / len(questions)
    return wealth(values, 0.0, 1, lo, hi, fixed=[q.stake for q in questions], alpha=alpha) / 2


def answers_of(
    findings: Mapping[str, Finding], n: int, most_takes: int, *, deterministic: bool = False, leak_free: bool = True
) -> dict[str, r.Answer]:
    """Answer the paper's questions: do the best of n takes gain, do retrieved actions, and do both together beat each?

    ``most_takes``: the most takes of any start. ``leak_free``: the score read a window that hides the length.
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
    """Whether keeping the shortest take gains as much as the score, so that length may give the outcome away."""
    gain, shortest = findings.get("gain"), findings.get("shortest")
    if gain is None or shortest is None or shortest.answer != "yes":
        return False
    return (shortest.estimate.value or 0.0) >= (gain.estimate.value or 0.0)


def futures_of(
    questions: Sequence[Question], looks: RepeatedLooks, worth: float, most: int, parts: Sequence[str]
) -> Futures | None:
    """The simulated futures of the questions behind ``parts`` of the verdict; None if none of them has a value."""
    behind = {"takes": ("headroom", "gain"), "both": BOTH}
    names = {name for part in parts for name in behind.get(part, (part,))}
    used = [q for q in questions if q.name in names and not q.reason and np.isfinite(q.ruling).any()]
    if not used or most < 1:
        return None
    values = np.stack([question.ruling[looks.order] for question in used], axis=1)
    scales, stakes = [q.widest for q in used], [q.stake for q in used]
    # Open questions of a fixed sample are decided by later looks, which share the rest of alpha.
    return futures(values, [q.name for q in used], scales, stakes, worth, most, alpha=looks.left())


def _forecasts(
    answers: Mapping[str, r.Answer],
    questions: Sequence[Question],
    looks: RepeatedLooks,
    worth: float,
    spare: int | None,
) -> dict[str, Forecast]:
    """Forecast the further starts that would settle each open answer; ``spare`` is how many the env has, if known."""
    parts = [name for name, answer in answers.items() if answer.answer == "open" and not answer.reason]
    most = MOST if spare is None else min(MOST, spare)
    if not parts:
        return {}
    if most < 1:
        return dict.fromkeys(parts, Forecast(None, None, 0))
    names = {part: "content" if part == "demonstrations" else part for part in parts}
    simulated = futures_of(questions, looks, worth, most, [*names.values()])
    settled = {part: simulated.settled(name) for part, name in names.items()} if simulated is not None else {}
    return {part: forecast(times, most) for part, times in settled.items() if times is not None}
