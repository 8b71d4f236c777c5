"""Sentences about the options of a cell, and how a run until decided went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from besttake.reporting.numbers import count, estimate_points, number, percent, whole_points
from besttake.reporting.words.phrases import price_of, say

if TYPE_CHECKING:
    from besttake.result import Cell, Menu, Option, Verdict


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
    """What an option costs."""
    return price_of(option.takes, option.arm)


def menu_lines(cell: Cell, worth: float) -> list[str]:
    """What the menu of options says beyond the headline, a sentence each."""
    if cell.verdict is None:
        return []
    menu = cell.verdict.menu
    lines = (
        []
        if menu is None
        else [_other_arm(cell.verdict), _menu_claim(menu, worth, _error(cell)), *_act_now(menu, worth)]
    )
    return [line for line in (*lines, _why_zero(cell.verdict), path(cell), shortest(cell)) if line]


def _other_arm(verdict: Verdict) -> str:
    """Why the best option retrieves where the answer about demonstrations is to cool, or the other way round."""
    best = verdict.menu.option(verdict.menu.best) if verdict.menu is not None else None
    arms = {"retrieve": ("retrieves", "retrieval", "cool"), "cooled": ("cools", "cooling", "retrieve")}
    does, what, other = arms.get(best.arm, ("", "", "")) if best is not None else ("", "", "")
    if best is None or best.takes == 1 or verdict.retrieve.answer != other:
        return ""
    single = {name: say(verdict.questions.get(name)) for name in ("cooled", "retrieve")}
    return (
        f"The best option {does} although the answer about demonstrations is to {other}: that answer compares single \
takes, where cooling gains {single['cooled']} and retrieval {single['retrieve']}; with {best.takes} takes to pick \
from, {what} has the highest estimate."
    )


def _error(cell: Cell) -> str:
    """How often the claim of a menu errs at most: more starts after a look spend half as much again, and each time
    that the starts were given more takes spends half of what was spent before (`besttake.core.sequential`)."""
    verdict = cell.verdict
    if cell.path is not None or verdict is None or verdict.looked < 2:
        return "5 %"
    grown = len({seeds for seeds in verdict.look_seeds if seeds != cell.seeds})
    return f"{5 * (2 - 2 ** -(grown + 1)):.3g} %"


def _menu_claim(menu: Menu, worth: float, error: str) -> str:
    least, options = whole_points(worth), count(len(menu.options), "option")
    match menu.answer:
        case "act":
            shown = sum(option.shown for option in menu.options)
            few = f"{shown} of {options} {'is' if shown == 1 else 'are'}"
            return (
                f"{few} shown to gain, with an estimate of {least} or more; over all options together, the chance of \
showing one that gains nothing is at most {error}."
            )
        case "none":
            if len(menu.options) == 1:
                return f"The only option is ruled out: it does not gain {least}."
            return f"Each of {options} is ruled out: none gains {least}."
    return f"Of {options}, none is shown to gain with an estimate of {least} or more; over all options together, the \
chance of showing one that gains nothing is at most {error}."


def _why_zero(verdict: Verdict) -> str:
    """Why something is shown although its interval holds 0; empty where nothing is."""
    options = [option.gain for option in verdict.menu.options if option.shown] if verdict.menu is not None else []
    answered = [finding.estimate for finding in verdict.questions.values() if finding.answer == "yes"]
    if all(gain.low is None or gain.low > 0 for gain in (*options, *answered)):
        return ""
    return (
        "Where an interval holds 0 and the gain is shown all the same: the interval allows for errors on both sides, \
2.5 % each, the test for those on one side, 5 %."
    )


def _act_now(menu: Menu, worth: float) -> list[str]:
    """What to do where nothing is shown and somebody has to act."""
    if menu.now is None or menu.answer != "undecided":
        return []
    option = menu.option(menu.now.option)
    if option is None:
        return [
            "If you had to act now: leave the policy as it is; no option with one take is expected to gain half a"
            f" point, and none with several is expected to gain {whole_points(worth)} or more."
        ]
    gain = number(menu.now.gain, signed=True, scale=100)
    return [
        f"If you had to act now: {action(option)} (expected gain {gain} points, {percent(menu.now.chance)} sure not to \
lose by it, {price(option)})."
    ]


_STOPPED = {
    "decided": "Everything asked was decided after",
    "budget": "The budget ended it after",
    "starts": "There were no more starts after",
    "hopeless": "What is left of budget and starts will hardly decide it; stopped after",
}
_PART_NAMES = {"reuse": "more takes", "retrieve": "retrieve or cool", "combine": "both", "arms": "the other arms"}


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
over at success. With such a signal keep any take that succeeds, which gains {say(headroom)}; without one, length says \
nothing."
    return f"{ask} No: {gains}, the score {say(gain)}, and length gives success away only where takes end at success."
