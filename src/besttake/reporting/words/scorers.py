"""Sentences about the scorer that picks: which one ``auto`` chose, and what retrying by it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from besttake.reporting.numbers import count, estimate_percent, estimate_points, number

if TYPE_CHECKING:
    from besttake.result import Cell


def chosen(cell: Cell) -> str:
    """Which scorer ``auto`` chose how often; "" where another one picks."""
    auto = cell.auto
    if auto is None:
        return ""
    often = ", ".join(f"{name} at {count(times, 'start')}" for name, times in auto.chosen.items())
    return (
        f"auto picked by {often}, each time the scorer that had gained most on the starts before; the gain is that of"
        f" choosing so. Use {auto.final} from now on."
    )


def retrying(cell: Cell) -> str:
    """What it takes to retry until the score passes; "" where that was not measured, or saves nothing."""
    one = cell.rejection
    if one is None or one.takes.value is None or one.threshold is None or (one.gain.low or 0.0) <= 0:
        return ""
    return (
        f"Or retry until the {one.scorer} score is at least {one.threshold:.3g}, with at most {one.n} takes: success"
        f" {estimate_percent(one.success)}, {estimate_points(one.gain)} over one take, with"
        f" {number(one.takes.value, 2)} takes on average instead of {one.n}."
    )


def lines(cell: Cell) -> list[str]:
    """Both sentences, as far as there is something to say."""
    return [line for line in (chosen(cell), retrying(cell)) if line]
