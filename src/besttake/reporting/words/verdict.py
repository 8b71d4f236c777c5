"""Sentences about a verdict: the headline, the three answers, and what a cell needs in a word or two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from besttake.core.verdict import PAIRS
from besttake.reporting.numbers import count, estimate_points, number, sentence, whole_points
from besttake.reporting.words.menu import action, price
from besttake.reporting.words.phrases import PARTS, Tone, gain_of, kept_of, more_starts, moved, price_of, say
from besttake.reporting.words.reasons import because

if TYPE_CHECKING:
    from besttake.result import Cell, Decision, Verdict

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
LEFT_OUT = "left out by the check"
BETWEEN_NEEDS = " \N{MIDDLE DOT} "


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
    """One word of what a cell needs, as tables show it, with a ``label`` that says of what: ``takes: ``."""

    text: str
    tone: Tone
    label: str = ""


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
    shown: list[Answer] = []
    if cell.verdict is None:
        return shown
    for name in PARTS:
        decision: Decision = getattr(cell.verdict, name)
        badge, sentence = BADGES.get(decision.answer, decision.answer), _sentence(name, decision, cell, worth)
        if name == "retrieve" and decision.answer == "not-measured" and cell.verdict.left_out:
            badge = LEFT_OUT
        why, tone = because(name, cell, worth), _TONES.get(decision.answer, "rest")
        shown.append(Answer(name, QUESTIONS[name], badge, sentence, why, tone, decision.gain.value))
    return shown


def needs(cell: Cell) -> list[Need]:
    """What a cell needs in a word or two: ``takes: select``, ``demos: retrieve``. Every table of cells shows these."""
    if cell.verdict is None:
        return [Need("nothing measured", "rest")]
    codes = {"takes: ": cell.verdict.reuse.answer, "demos: ": cell.verdict.retrieve.answer}
    texts = {label: code.replace("-", " ") for label, code in codes.items()}
    if cell.verdict.left_out and codes["demos: "] != "cool":
        about_cooling = "" if codes["demos: "] == "not-measured" else f"{texts['demos: ']}, retrieval "
        texts["demos: "] = f"{about_cooling}{LEFT_OUT}"
    shown = [Need(texts[label], _TONES.get(code, "rest"), label) for label, code in codes.items()]
    return [*shown, Need("combine", "act", "both: ")] if cell.verdict.combine.answer == "yes" else shown


def needs_text(cell: Cell) -> str:
    """`needs` as one text."""
    return BETWEEN_NEEDS.join(f"{need.label}{need.text}" for need in needs(cell))


def headline(cell: Cell) -> str:
    """The first sentence about a policy."""
    if cell.verdict is None:
        return state(cell) or "There is no verdict for this policy."
    return cell.verdict.headline or _headline(cell)


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
    run = "retrieve" in verdict.questions
    if run and verdict.retrieve.answer in ("cool-or-retrieve", "undecided") and best.arm not in ("base", "retrieve"):
        sentences.append(f"whether retrieving beats cooling is open{more_starts(verdict.retrieve, ' ({})')}")
    elif verdict.retrieve.answer == "undecided":
        asked = "cooling alone gains" if not run and best.arm != "base" else f"to {_open_choice(verdict)}"
        sentences.append(f"whether {asked} is undecided{more_starts(verdict.retrieve, ' ({})')}")
    if verdict.reuse.answer == "undecided" and best.takes == 1:
        sentences.append(f"whether to run more takes is undecided{more_starts(verdict.reuse, ' ({})')}")
    return " ".join(sentence(text) for text in sentences)


def _headline_of_parts(cell: Cell, verdict: Verdict) -> str:
    reuse, retrieve, combine, n = verdict.reuse, verdict.retrieve, verdict.combine, kept_of(cell)
    parts = []
    if combine.answer == "yes":
        how = "retrieve or cool" if verdict.by_cooling else "cool" if combine.arm == "cooled" else "retrieve"
        doubt = ", where retrieving is not shown to beat cooling" if verdict.by_cooling else ""
        parts.append(
            f"{how}, run {n} takes and keep the best by {cell.scorer}: {gain_of(combine)} beyond selection alone{doubt}"
        )
    elif reuse.answer == "select":
        parts.append(f"run {n} takes and keep the best by {cell.scorer}: {gain_of(reuse)}, {price_of(reuse.cost, '')}")
    elif reuse.answer == "unranked":
        parts.append(f"{n} takes hold {say(verdict.questions.get('headroom'))}, but the score does not find it")
    elif reuse.answer == "undecided" and reuse.reason == "no-score":
        parts.append(
            f"{n} takes hold {say(verdict.questions.get('headroom'))} of headroom, but nothing was measured \
that picks among them"
        )
    elif reuse.answer == "undecided":
        parts.append(f"whether to run more takes is undecided{more_starts(reuse, ' ({})')}")
    if retrieve.answer == "retrieve" and combine.answer != "yes":
        parts.append(f"retrieve demonstrations: {gain_of(retrieve)}, {price_of(retrieve.cost, 'retrieve')}")
    elif retrieve.answer == "cool":
        parts.append(f"cool the sampling: {gain_of(retrieve)}, at no cost")
    elif retrieve.answer == "cool-or-retrieve":
        parts.append(f"cool or retrieve: {gain_of(retrieve)}, which of the two is open{more_starts(retrieve, ' ({})')}")
    elif retrieve.answer == "undecided":
        parts.append(f"whether to {_open_choice(verdict)} is undecided{more_starts(retrieve, ' ({})')}")
    text = "; ".join(parts)
    first = f"{text[0].upper()}{text[1:]}." if text else _nothing(verdict)
    deciding = ["gain"] * (reuse.answer == "select") + [retrieve.arm] * (retrieve.answer in ("retrieve", "cool"))
    return " ".join([first, *moved(verdict.questions, deciding)])


def _open_choice(verdict: Verdict) -> str:
    return "cool" if verdict.retrieve.reason == "cooled-only" else "retrieve or cool"


def _nothing(verdict: Verdict) -> str:
    """What to say where nothing of what was measured is worth it."""
    names = {"retrieve": "retrieval", "cooled": "calmer sampling"}
    tried = ["more takes", *(text for name, text in names.items() if name in verdict.questions)]
    what = f"{tried[0]} are not" if len(tried) == 1 else f"neither {' nor '.join(tried)} is"
    rest = f"; retrieval was {LEFT_OUT if verdict.left_out else 'not measured'}"
    return f"Leave it as it is: {what} worth it{'' if 'retrieve' in verdict.questions else rest}."


def _none_of(cell: Cell, where: str = "") -> str:
    """``Neither retrieval nor cooling gains``, of those that were run."""
    run = cell.arms.arms if cell.arms is not None else {}
    if not {"retrieve", "cooled"} <= set(run):
        return f"{'Cooling' if 'cooled' in run else 'Retrieval'}{where} does not gain"
    return f"Neither retrieval nor cooling{where} gains"


def _no_pair(cell: Cell, least: str, aside: str) -> str:
    """Which way selection and an arm do not add up: the arm adds too little to selection, or selection to the arm."""
    asked = cell.verdict.questions if cell.verdict is not None else {}
    pairs = {arm: [asked[name].answer for name in names if name in asked] for arm, names in PAIRS.items()}
    first = [answers[0] == "no" for answers in pairs.values() if answers]
    if all(first):
        return f"{_none_of(cell, ' on top of selection')} {least}{aside}."
    run = [text for arm, text in (("retrieve", "retrieval"), ("cooled", "cooling")) if pairs[arm]]
    if not any(first):
        return f"Selection on top of {' or '.join(run)} does not gain {least}{aside}."
    return (
        f"Neither {' nor '.join(run)} adds up with selection: each pair gains less than {least} over one of its parts."
    )


def _sentence(name: str, decision: Decision, cell: Cell, worth: float) -> str:
    n, gain, least = kept_of(cell), estimate_points(decision.gain), whole_points(worth)
    cost = price_of(decision.cost, decision.arm)
    known = f": {gain}" if gain else ""
    aside = f" ({gain})" if gain else ""
    match name, decision.answer:
        case "reuse", "select":
            return f"Run {n} takes and keep the best by {cell.scorer}{known}, {cost}."
        case "reuse", "unranked":
            headroom = estimate_points(cell.headroom.headroom) if cell.headroom is not None else ""
            return f"{n} takes hold {headroom or 'headroom'}, but the score does not find it{known}."
        case "reuse", "none":
            return f"One take is enough: keeping the best of {n} gains less than {least}{aside}."
        case "retrieve", "retrieve":
            return f"Start sampling from retrieved demonstrations{known}, {cost}."
        case "retrieve", "cool":
            rest = f"Retrieved actions add less than {least}"
            if decision.reason == "cooled-only":
                how = LEFT_OUT if cell.verdict is not None and cell.verdict.left_out else "not measured"
                rest = f"Retrieval was {how}, so whether it adds to that is not known"
            return f"Cool the sampling noise{known}, {cost}. {rest}."
        case "retrieve", "cool-or-retrieve":
            do = "Retrieve" if decision.arm == "retrieve" else "Cool the sampling noise"
            other = "cooling alone does as well" if decision.arm == "retrieve" else "retrieved actions add to it"
            return f"{do}{known}, {cost}. Whether {other} is open{more_starts(decision)}."
        case "retrieve", "none":
            return f"{_none_of(cell)} {least}{aside}."
        case "combine", "yes":
            what = "Cooling" if decision.arm == "cooled" else "Retrieval"
            return f"{what} on top of selection adds{known.removeprefix(':')}, {cost}."
        case "combine", "no":
            return _no_pair(cell, least, aside)
        case "reuse", "undecided" if decision.reason == "no-score":
            return f"{n} takes hold{known.removeprefix(':')} of headroom; which of them to keep is not known."
        case _, "undecided":
            return f"These takes do not settle it{known}{more_starts(decision)}."
        case "retrieve", "not-measured" if cell.verdict is not None and cell.verdict.left_out:
            return "The check at held-out demonstrations left retrieval out: nothing it tried beats cooling there."
        case _, "not-measured":
            return "This run did not measure it."
    return decision.because


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
    if cell.selectors is None or not cell.selectors.scored:
        return "The takes have no score, so selection could not be measured."
    return ""


def leak(cell: Cell) -> str:
    """The warning where keeping the shortest take explains the gain; empty where it does not."""
    if cell.verdict is None or not cell.verdict.leak or cell.selectors is None:
        return ""
    if cell.window != "episode":
        return (
            f"Length gives the outcome away here, so the verdict rests on the window `{cell.window}`, which hides it."
        )
    short = number(cell.selectors.shortest.gain.value, signed=True, scale=100)
    fact = f"Keeping the shortest take gains {short} points, no less than the score: length gives the outcome away."
    return f"{fact} This gain is no evidence that the score ranks behaviour."
