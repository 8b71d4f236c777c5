"""What to do in one sentence, and what is still open with what it would cost to close."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from besttake.reporting.numbers import duration, estimate_points, number
from besttake.reporting.words.menu import action, price
from besttake.reporting.words.phrases import PARTS
from besttake.reporting.words.verdict import QUESTIONS, headline

if TYPE_CHECKING:
    from besttake.result import ActNow, Cell, Forecast, Menu, Result


_SHOWN = ("select", "retrieve", "cool", "cool-or-retrieve", "yes")
"""Answers of a part of a verdict that show a gain. The menu tests all options at once, and may still be undecided."""


@dataclass(frozen=True)
class Open:
    """A question that a policy's takes leave open: the estimate so far, and the range of what would settle it."""

    part: str
    question: str
    so_far: str
    starts: str
    takes: str
    time: str


def opening(cell: Cell) -> tuple[str, list[str]]:
    """What to do with a policy in one sentence, and what a reader with ten seconds should know beyond it."""
    whole = headline(cell)
    menu = cell.verdict.menu if cell.verdict is not None else None
    if cell.verdict is not None and menu is not None and menu.answer == "undecided" and menu.now is not None:
        shown = any(getattr(cell.verdict, part).answer in _SHOWN for part in PARTS)
        fact = "Not decided between all options" if shown else "Not decided yet"
        if cell.headroom is not None and cell.headroom.pass_1.value == 0:
            fact = "Every base take failed"
        return f"{fact}. {_now(menu, menu.now)}", [f"Question by question: {whole}" if shown else whole]
    first, *rest = re.split(r"(?<=[.!?])\s+(?=[A-Z])", whole, maxsplit=1)
    return first, rest


def _now(menu: Menu, now: ActNow) -> str:
    option = menu.option(now.option)
    if option is None:
        return "If you had to act now: leave it as it is."
    gain = number(now.gain, signed=True, scale=100)
    return f"If you had to act now: {action(option)} (about {gain} points, {price(option)})."


def still_open(cell: Cell, result: Result) -> list[Open]:
    """The open questions of a policy. Takes are those of the arms that a question needs; time is at the pace of the
    run's last invocation, and left out where that made none.
    """
    if cell.verdict is None:
        return []
    arms = len(cell.arms.arms) if cell.arms is not None else 1
    spent = result.cost.seconds.get("takes")
    pace = spent / result.cost.made if spent and result.cost.made else None
    lines = []
    for part in PARTS:
        decision = getattr(cell.verdict, part)
        if decision.further is None:
            continue
        each = cell.seeds * (1 if part == "reuse" else arms)
        starts, takes = _range(decision.further, 1), _range(decision.further, each)
        time = _times(decision.further, each * pace) if pace is not None else ""
        so_far = estimate_points(decision.gain) or decision.gain.reason
        lines.append(Open(part, QUESTIONS[part], so_far, starts, takes, time))
    return lines


def _range(forecast: Forecast, each: int) -> str:
    """``40 to 210``, ``61 or more``, ``over 230``: further starts, or takes with ``each`` of them per start."""
    if forecast.most == 0:
        return "there are no more starts" if each == 1 else ""
    if forecast.low is None:
        return f"over {_count(forecast.most * each)}"
    if forecast.high is None:
        return f"{_count(forecast.low * each)} or more"
    return f"{_count(forecast.low * each)} to {_count(forecast.high * each)}"


def _times(forecast: Forecast, each: float) -> str:
    if forecast.most == 0:
        return ""
    if forecast.low is None:
        return f"over {duration(forecast.most * each)}"
    if forecast.high is None:
        return f"{duration(forecast.low * each)} or more"
    return f"{duration(forecast.low * each)} to {duration(forecast.high * each)}"


def _count(n: int) -> str:
    return f"{n:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
