"""Plain sentences, numbers first, from the numbers of a cell."""

from __future__ import annotations

from dataclasses import dataclass

from besttake.reporting.numbers import count, estimate_points, interval, number, percent, points, times
from besttake.result import Cell, Estimate, Finding, Relation, Result

QUESTIONS = {"reuse": "More takes?", "retrieve": "Demonstrations?", "combine": "Both?"}
BADGES = {
    "select": "run several takes",
    "unranked": "headroom, not found",
    "none": "no",
    "undecided": "undecided",
    "retrieve": "retrieve",
    "cool": "cool",
    "yes": "yes",
    "no": "no",
    "not-measured": "not measured",
}
_ACTS = {"select", "retrieve", "cool", "yes"}


@dataclass(frozen=True)
class Answer:
    """One finding as it is shown: the question, a badge, a sentence, the reason, and whether it asks to act."""

    name: str
    question: str
    badge: str
    sentence: str
    because: str
    tone: str
    value: float | None = None


def answers(cell: Cell, worth: float) -> list[Answer]:
    """The three findings of a verdict in words."""
    if cell.verdict is None:
        return []
    found = {"reuse": cell.verdict.reuse, "retrieve": cell.verdict.retrieve, "combine": cell.verdict.combine}
    return [
        Answer(
            name,
            QUESTIONS[name],
            BADGES.get(finding.answer, finding.answer),
            _sentence(name, finding, cell, worth),
            finding.because,
            "act" if finding.answer in _ACTS else "open" if finding.answer in ("undecided", "unranked") else "rest",
            finding.gain.value,
        )
        for name, finding in found.items()
    ]


def _sentence(name: str, finding: Finding, cell: Cell, worth: float) -> str:
    n = cell.headroom.n if cell.headroom is not None else cell.seeds
    gain = estimate_points(finding.gain)
    least = f"{number(worth, 1, scale=100).removesuffix('.0')} points"
    price = f"{times(finding.cost)} the executions" if finding.cost > 1 else "no further executions"
    known = f": {gain}" if gain else ""
    match name, finding.answer:
        case "reuse", "select":
            return f"Run {n} takes and keep the best{known}, {price}."
        case "reuse", "unranked":
            room = estimate_points(cell.headroom.headroom) if cell.headroom is not None else ""
            return f"{n} takes hold {room or 'headroom'}, but the score does not find it{known}."
        case "reuse", "none":
            return f"One take is enough: keeping the best of {n} gains less than {least}{_so(gain)}."
        case "retrieve", "retrieve":
            return f"Start sampling from retrieved demonstrations{known}, {price}."
        case "retrieve", "cool":
            return f"Cool the sampling noise{known}, {price}. Retrieved actions are not shown to add to it."
        case "retrieve", "none":
            return f"Neither retrieval nor cooling gains {least}{_so(gain)}."
        case "combine", "yes":
            return f"Retrieval on top of selection adds{known.removeprefix(':')}, {price}."
        case "combine", "no":
            return f"Retrieval on top of selection adds less than {least}{_so(gain)}."
        case "reuse", "undecided" if cell.selectors is None or not cell.selectors.scored:
            return f"{n} takes hold{known.removeprefix(':')} of headroom; nothing says yet whether a score finds it."
        case _, "undecided":
            further = finding.further_starts
            rest = f"; about {count(further, 'more start')} would settle it" if further else ""
            return f"These takes do not settle it{known}{rest}."
        case _, "not-measured":
            return "This run did not measure it."
    return finding.because


def _so(gain: str) -> str:
    return f" ({gain})" if gain else ""


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
    short = points(cell.selectors.shortest.gain.value)
    fact = f"Keeping the shortest take gains {short} points, as much as the score: length gives the outcome away."
    if cell.window == "episode":
        return f"{fact} This gain is no evidence that the score ranks behaviour."
    return f"{fact} The verdict rests on the window {cell.window}, which hides length."


def headline(cell: Cell) -> str:
    """The first sentence about a policy."""
    if cell.verdict is not None and cell.verdict.headline:
        return cell.verdict.headline
    return state(cell) or "There is no verdict for this policy."


def relation(found: Relation) -> list[str]:
    """What the relation says, a sentence per test."""
    lines: list[str] = []
    if found.r is None:
        return [found.reason or f"The relation needs at least three cells; this run has {found.cells}."]
    ends, resampled = r_interval(found)
    span = f" {interval(*ends, digits=2)}" if ends else ""
    lines.append(
        f"r = {number(found.r, 2)}{span} over {count(found.cells, 'cell')}{f' ({resampled})' if resampled else ''}."
    )
    if found.spearman is not None and found.spearman.value is not None:
        lines.append(f"Spearman {correlation(found.spearman)}.")
    if found.disjoint.mean is not None:
        sd = f" ± {number(found.disjoint.sd, 2)}" if found.disjoint.sd is not None else ""
        lines.append(
            f"With headroom and gain from disjoint halves of the starts: {number(found.disjoint.mean, 2)}{sd}"
            f" ({count(found.disjoint.splits, 'split')})."
        )
    elif found.disjoint.reason:
        lines.append(f"Disjoint halves of the starts: {found.disjoint.reason}.")
    if found.capture_mean is not None:
        sd = f" ± {number(found.capture_sd, 2)}" if found.capture_sd is not None else ""
        lines.append(f"Selection captures {number(found.capture_mean, 2)}{sd} of the headroom on average.")
    return lines


def r_interval(found: Relation) -> tuple[tuple[float, float] | None, str]:
    """The interval of r to show, and what was resampled for it: starts too wherever the result has that."""
    if found.ci_nested is not None:
        return found.ci_nested, "interval over cells and their starts"
    if found.ci is not None:
        rough = ", too short below eight" if found.cells < 8 else ""
        return found.ci, f"interval over cells alone{rough}"
    return None, ""


def correlation(found: Estimate | None) -> str:
    """``0.88 [0.61, 0.97]``; empty when there is none."""
    if found is None:
        return ""
    return f"{number(found.value, 2)} {interval(found.low, found.high, digits=2)}".strip()


def success(estimate: Estimate) -> str:
    """``64.2 %``, or why there is none."""
    return percent(estimate.value) or estimate.reason or "not measured"


def overview(result: Result) -> str:
    """How much was run, in one line."""
    tasks = {(line.env, line.task) for cell in result.policies for line in cell.tasks}
    starts = sum(line.starts for line in {(t.env, t.task): t for c in result.policies for t in c.tasks}.values())
    parts = [count(len(result.policies), "policy", "policies"), count(len(tasks), "task"), count(starts, "start")]
    parts.append(count(result.cost.takes, "take"))
    if result.cost.errors:
        parts.append(f"{count(result.cost.errors, 'error')}")
    return " · ".join(parts)
