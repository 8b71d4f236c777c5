"""What `besttake plan` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.reporting import words
from besttake.reporting.numbers import count, number, whole_points

if TYPE_CHECKING:
    from besttake.verbs.plan import PlanResult


def render(results: Sequence[PlanResult]) -> RenderableType:
    """The plan of each policy as sentences."""
    parts: list[Text] = []
    for result in results:
        if result.name:
            parts.append(Text(result.name, style="bold"))
        parts.append(Text(f"From {result.basis}:", style="dim"))
        parts += [Text(f"  {line}") for line in sentences(result)]
    return Group(*parts)


def sentences(result: PlanResult) -> list[str]:
    """A plan in words, the numbers first."""
    plan = result.plan
    worth = whole_points(plan.worth)
    per = f"x {plan.seeds} seeds"
    lines = [
        f"{count(plan.half_width_starts, 'start')} {per} = {count(plan.half_width_takes, 'take')}"
        f" for an interval of +/- {worth} on the gain of keeping the best of {plan.n}",
    ]
    if result.cautious is not None:
        lines[-1] += f" ({count(result.cautious.half_width_takes, 'take')} if all starts were equally hard)"
    lines += [f"{words.QUESTIONS[name]} {words.further(starts)}" for name, starts in result.further.items()]
    if not result.further:
        if plan.yes_starts is not None:
            lines.append(f"about {count(plan.yes_starts, 'start')} {per} to decide a gain as large as expected")
        lines.append(
            f"about {count(plan.no_starts, 'start')} {per} = {count(plan.no_takes, 'take')}"
            f" to rule out {worth} if there is no gain"
        )
    lines.append(
        f"at most {count(result.content_starts, 'start')} {per} in each arm for +/- {worth} on retrieve minus cooled"
    )
    if plan.starts is not None and plan.smallest_effect is not None:
        effect = number(plan.smallest_effect, 1, scale=100)
        lines.append(f"a budget of {count(plan.starts, 'start')} {per} shows a gain of {effect} points in 4 of 5 runs")
    if result.available is not None and result.available < (plan.starts or plan.half_width_starts):
        lines.append(f"there are {count(result.available, 'start')} in all: add tasks, or let the env offer more")
    shared = f"with {count(result.tasks, 'task')}" if result.tasks > 1 else "with one task (more share the starts)"
    lines.append(f"besttake diagnose … {result.flags}  {shared}")
    lines.append(words.advice(plan))
    return lines
