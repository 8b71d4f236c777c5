"""The options of a cell: every arm with one take, and with the best of N takes by each score that the run has.

`core.options` says which are shown to beat the frozen policy and which is best; this file makes their values, one per
start, and puts the choice in the result's form. ``shuffled`` is a control and no option: nobody would choose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from besttake import result as r
from besttake.core import options, select
from besttake.core.estimate import Finding
from besttake.core.headroom import start_pass_at_k, tally
from besttake.core.options import Offer
from besttake.core.sequential import Looks, wealth
from besttake.measure.cells import CellData
from besttake.measure.questions import Kind, Question, question
from besttake.measure.scores import AUTO, SCORERS
from besttake.types import F64

_CONTROLS = ("shuffled",)
_ALPHA = 0.05
_LEAST = 0.005
"""An option that costs nothing is advised from half a point of expected gain on: less is what chance gives."""


@dataclass(frozen=True)
class Option:
    """An arm with one take, or with the best of ``takes`` by ``scorer``; ``success`` (S,) of each start.

    ``question``: does it beat base with one take?
    """

    name: str
    arm: str
    scorer: str | None
    takes: int
    success: F64
    question: Question


def options_of(data: CellData, n: int, asked: Mapping[str, Question]) -> list[Option]:
    """Every option that the takes of a cell can judge, the frozen policy with one take left out.

    A question that the cell is ``asked`` anyway is the option's, so that both have the same estimate.
    """
    base, offered = start_pass_at_k(data.arms["base"].outcomes, 1), []
    for name, arm in data.arms.items():
        if name in _CONTROLS or not arm.takes:
            continue
        counts = tally(arm.outcomes)[0]
        if name != "base":
            one = start_pass_at_k(arm.outcomes, 1)
            offered.append(Option(name, name, None, 1, one, asked[name]))
        if data.deterministic or min(n, int(counts.max(initial=0))) < 2 or data.windows[0] == "episode":
            continue
        for score in (key for key in arm.scores if key.window == data.windows[0]):
            scores = arm.score(score)
            if scores is None or (data.auto is not None and score.scorer not in (AUTO, *SCORERS)):
                continue  # what `auto` chooses from is no option of its own: the menu stays as short as it was
            kept = select.select(arm.outcomes, scores, n).successes
            known = ("gain" if name == "base" else f"{name}_selected") if score == data.score_name else ""
            kind: Kind = "choice" if name == "base" else "pick"
            own = asked.get(known) or question(known, kind, kept - base, n, counts, seeds=arm.outcomes.shape[1])
            offered.append(Option(f"{name}, best of {n} by {score.scorer}", name, score.scorer, n, kept, own))
    return offered


def menu_of(
    data: CellData,
    offered: Sequence[Option],
    findings: Mapping[str, Finding],
    controls: Mapping[str, str],
    worth: float,
    looks: Looks,
) -> r.Menu | None:
    """The choice among options; None where there is none. ``findings``: answers to questions asked anyway."""
    answers = {
        option.name: findings.get(option.question.name) or option.question.ask(worth, looks) for option in offered
    }
    known = [option for option in offered if answers[option.name].estimate.value is not None]
    if not known:
        return None
    shown = _shown(known, [answers[option.name] for option in known], worth, looks)
    offers = [
        Offer(
            option.name, option.takes, _cheaper(option, known, controls), answers[option.name].answer,
            answers[option.name].estimate.value, is_shown,
        )
        for option, is_shown in zip(known, shown, strict=True)
    ]  # fmt: skip
    best = options.best_of(offers)
    behind = {} if best is None else _behind(best, known, data, worth, looks)
    not_worse = [name for name, finding in behind.items() if finding.p_not_above_zero > _ALPHA]
    cheapest = None if best is None else options.cheapest_of(offers, best, not_worse)
    bet = options.act_now(
        np.stack([option.question.values for option in known], axis=1),
        [option.question.scale.pseudo for option in known],
        [_LEAST if option.takes == 1 else worth for option in known],  # further takes are not free
    )
    return r.Menu(
        answer=options.menu_answer(offers),
        best=best.name if best else None,
        cheaper=cheapest.name if cheapest else None,
        options=[
            r.Option(
                name=option.name, arm=option.arm, scorer=option.scorer, takes=option.takes,
                gain=answers[option.name].estimate, answer=answers[option.name].answer,
                p_not_above_zero=answers[option.name].p_not_above_zero, shown=offer.shown,
                behind=behind[option.name].estimate if option.name in behind else None,
                not_worse=option.name in not_worse,
            )
            for option, offer in zip(known, offers, strict=True)
        ],
        now=r.ActNow(
            option=None if bet.index is None else known[bet.index].name, gain=bet.expected, chance=bet.chance
        ),
    )  # fmt: skip


def _shown(known: Sequence[Option], answers: Sequence[Finding], worth: float, looks: Looks) -> list[bool]:
    """Which options are shown to be worth it, with the error of the whole menu under control."""
    enough = [finding.estimate.value is not None and finding.estimate.value >= worth - 1e-12 for finding in answers]
    if not looks.anytime:
        rejected = options.holm([finding.p_not_above_zero for finding in answers], _ALPHA)
    else:
        rejected = options.claimed(e_values([option.question for option in known], looks), looks.left(_ALPHA))
    return [bool(a and b) for a, b in zip(rejected, enough, strict=True)]


def e_values(questions: Sequence[Question], looks: Looks) -> F64:
    """The e-values (T, K) against {mean <= 0} of K questions after each start, in the order of the run.

    The bets are laid out for a claim about all K of them.
    """
    values = np.stack([question.values[looks.order] for question in questions], axis=1)
    lo, hi = [q.widest.lo for q in questions], [q.widest.hi for q in questions]
    alpha = _ALPHA / len(questions)
    return wealth(values, 0.0, 1, lo, hi, fixed=[q.stake for q in questions], alpha=alpha) / 2


def _behind(best: Offer, known: Sequence[Option], data: CellData, worth: float, looks: Looks) -> dict[str, Finding]:
    """By how much the best option is ahead of each other one, paired by start."""
    top = next(option for option in known if option.name == best.name)
    takes, behind = tally(data.arms["base"].outcomes)[0], {}
    for option in known:
        if option is not top:
            kind: Kind = "difference" if option.takes == top.takes == 1 else "pick"
            behind[option.name] = question("", kind, top.success - option.success, 1, takes).ask(worth, looks)
    return behind


def _cheaper(option: Option, known: Sequence[Option], controls: Mapping[str, str]) -> frozenset[str]:
    """The options that cost less: fewer takes, or as many of an arm that this option's arm has as its control."""
    return frozenset(
        other.name
        for other in known
        if other.takes < option.takes
        or (other.takes == option.takes and other.arm != option.arm and _control_of(option.arm, other.arm, controls))
    )


def _control_of(arm: str, other: str, controls: Mapping[str, str]) -> bool:
    """Whether ``arm`` is ``other`` and something more. Cooling is free, so that it is no dearer than base."""
    if arm.partition("?")[0] == "cooled":
        return False
    seen = set()
    while (control := controls.get(arm, "base" if arm != "base" else None)) is not None and arm not in seen:
        if control == other:
            return True
        seen.add(arm)
        arm = control
    return False
