"""Sentences about a run that is not finished: what is settled, what is open, and what the bounds mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from besttake.reporting.numbers import count, interval, points, sentence, whole_points
from besttake.reporting.words.verdict import Tone

if TYPE_CHECKING:
    from besttake.measure.sofar import SoFar

_ASKED = {
    "headroom": ("A perfect pick?", "a perfect pick of {n} takes gains"),
    "gain": ("Keeping the best?", "keeping the best of {n} takes by {scorer} gains"),
    "cooled": ("Cooling?", "calmer sampling gains"),
    "retrieve": ("Retrieval?", "retrieval gains"),
    "content": ("Retrieval beyond cooling?", "retrieval adds to calmer sampling"),
}
_BADGES: dict[str, tuple[str, Tone]] = {
    "yes": ("shown", "act"),
    "no": ("ruled out", "rest"),
    "open": ("open", "open"),
}


@dataclass(frozen=True)
class Line:
    """A question on the live page: what is asked, a badge, the estimate with its bounds, and when it was settled."""

    name: str
    question: str
    badge: str
    tone: Tone
    estimate: str
    when: str


def lines(one: SoFar) -> list[Line]:
    """The questions of a cell so far."""
    path, shown = one.cell.path, []
    for name, answer in one.answers.items() if path is not None else ():
        assert path is not None
        last, (badge, tone) = path.points[name][-1], _BADGES[answer]
        estimate = f"{points(last.value)} points {interval(last.low, last.high, scale=100)}"
        settled = path.settled.get(name)
        when = "" if settled is None else f"settled after {count(settled, 'take')}"
        shown.append(Line(name, _ASKED[name][0], badge, tone, estimate, when))
    return shown


def summary(cells: Sequence[SoFar], n: int, worth: float) -> str:
    """What is settled of one policy: ``Shown: calmer sampling gains (pick, push). Open: 7 of 10 questions.``"""
    asked = [(name, answer, one) for one in cells for name, answer in one.answers.items()]
    if not asked:
        return "No start is complete yet."
    parts = []
    for wanted, title, more in (("yes", "Shown", ""), ("no", "Ruled out", f" {whole_points(worth)} or more")):
        settled: dict[str, list[str]] = {}
        for name, answer, one in asked:
            if answer == wanted:
                what = _ASKED[name][1].format(n=n, scorer=one.cell.scorer or "the score") + more
                settled.setdefault(what, []).append(group_name(one.cell.group))
        if settled:
            parts.append(f"{title}: {'; '.join(f'{what} ({_some(names)})' for what, names in settled.items())}")
    still = sum(answer == "open" for _, answer, _ in asked)
    parts.append(f"Open: {still} of {count(len(asked), 'question')}" if still else "every question is settled")
    return " ".join(map(sentence, parts))


def group_name(group: str) -> str:
    """``*``, a policy's summary, in words."""
    return "all tasks" if group == "*" else group


def _some(names: Iterable[str], most: int = 6) -> str:
    every = list(dict.fromkeys(names))
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def meaning(until: bool) -> str:
    """What the bounds of the live page are, and what they are not."""
    held = (
        "These bounds hold whenever you look: each answer errs in at most 5 % of runs, however long you watch and"
        " whenever you stop. An answer needs one side alone, at 5 %; the bounds hold on both sides at once, at 95 %, so"
        " an answer can come a little before they leave 0."
    )
    if until:
        return f"{held} The run itself stops by the same bounds."
    return (
        f"{held} They are wider than those of the report: when the planned sample is complete, the report judges it"
        " once, with 95 % intervals, and scores the takes, so what a score gains is known only then. More starts than"
        " planned, added because of what you see here, count there as a second look. Only starts whose takes are all"
        " there count, in the order of the plan."
    )


def phase(name: str, silent: float = 0.0) -> str:
    """What the run is doing, in one sentence."""
    return {
        "setting up": "The run is being set up.",
        "running": "The run goes on.",
        "stopped": "The run is stopped. Finished takes are kept: the same command goes on with them.",
        "lost": f"There has been no sign of the run for {silent:.0f} s. If it was killed, the same command goes on.",
        "gone": "The run is no longer there: its directory was removed or moved.",
        "finished": "The run is finished.",
        "ended": "The run has ended.",
    }[name]
