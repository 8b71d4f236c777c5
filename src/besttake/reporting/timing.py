"""How soon takes succeed: of all takes of an arm, the part that had succeeded by each step.

A take that ends without success, at the last step or before it, is not censored: it can no longer succeed, so it stays
among the takes that are counted, and the curve ends at pass@1. (To treat it as censored, as a Kaplan-Meier curve does,
would give it the chances of the takes that went on, and promise more successes than there were.) Takes that could
not be made are left out, as they are everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from besttake.core.stats import mean_interval, unit_scale
from besttake.reporting.axes import Frame, horizontal
from besttake.reporting.candidates import Candidate
from besttake.reporting.dots import WIDTH
from besttake.reporting.drawing import SERIES, Element, Figure, Label, Mark, Polyline
from besttake.reporting.numbers import interval, percent
from besttake.result import Cell, Estimate

POINTS = 16
"""Steps at which a curve has an interval."""
_MARGINS = (44, 14, 14, 42)


@dataclass(frozen=True)
class Curve:
    """An arm's curve: ``steps`` at which a take succeeded, the part ``by`` then, and intervals ``at`` some steps.

    ``half``: the step by which half of all takes had succeeded; None where fewer than half did.
    """

    arm: str
    steps: list[int]
    by: list[float]
    at: dict[int, Estimate]
    half: int | None


def curves(starts: Iterable[Candidate]) -> list[Curve]:
    """One curve per arm of the given starts; none where the step of some success is not known."""
    by_arm: dict[str, dict[str, list[float]]] = {}
    last = 0
    for start in starts:
        for arm, rows in start.arms.items():
            done = [row for row in rows if row.success is not None]
            if any(row.success and row.success_step is None for row in done):
                return []
            if done:
                times = [float(row.success_step) if row.success_step is not None else np.inf for row in done]
                by_arm.setdefault(arm, {})[start.id] = times
                last = max(last, *(row.steps for row in done))
    return [_curve(arm, times, last) for arm, times in by_arm.items()]


def of_policy(cell: Cell, starts: Sequence[Candidate]) -> list[tuple[str, list[Curve]]]:
    """The curves of a policy under its name; those of each of its cells where its own would not end at its pass@1.

    That is so in a run until decided whose cells stopped at different times: pass@1 leaves out what was made after the
    first of them stopped, because tasks with more starts than others would tilt it, and an arm that went on longer.
    """
    whole = curves(starts)
    own = {name: arm.pass_1.n for name, arm in cell.arms.arms.items()} if cell.arms is not None else {}
    if cell.path is None or all(own.get(one.arm, 0) == one.at[max(one.at)].n for one in whole):
        return [(cell.policy, whole)]
    places = {start.place: f"{cell.policy}, {start.cell.group}" for start in starts}
    return [(name, curves(one for one in starts if one.place == place)) for place, name in sorted(places.items())]


def figure(policy: str, drawn: list[Curve]) -> Figure | None:
    """The curves of a policy; None where no take succeeded or nothing is known."""
    if not any(curve.steps for curve in drawn):
        return None
    last = max(step for curve in drawn for step in curve.at)
    frame = Frame.of((WIDTH, 240 + 16 * len(drawn)), (*_MARGINS[:3], _MARGINS[3] + 16 * len(drawn)), (0, last), (0, 1))
    bottom = frame.y.start
    shapes: list[Element] = [
        *frame.grid(about=4),
        *horizontal(frame.x, frame.y.end, bottom, about=5, scale=1),
        Label(frame.x.end, bottom + 32, "step", color="muted", size=12, anchor="end"),
        Label(frame.x.start + 6, frame.y.end + 12, "takes that have succeeded, %", color="muted", size=12),
    ]
    for i, curve in enumerate(drawn):
        shapes += _drawn(curve, i, frame)
    return Figure(frame.width, frame.height, f"How soon takes of {policy} succeed, by arm", tuple(shapes))


def _curve(arm: str, times: Mapping[str, list[float]], last: int) -> Curve:
    """A start counts once, with the part of its takes that had succeeded: as pass@1 does."""
    table = np.full((len(times), max(map(len, times.values()))), np.nan)
    for row, takes in zip(table, times.values(), strict=True):
        row[: len(takes)] = takes
    made = np.sum(~np.isnan(table), axis=1)
    steps = np.unique(table[np.isfinite(table)])
    parts = [float(np.mean(np.sum(table <= step, axis=1) / made)) for step in steps]
    grid = sorted({round(step) for step in np.linspace(0, last, POINTS + 1)})
    at = {step: mean_interval(np.sum(table <= step, axis=1) / made, unit_scale()) for step in grid}
    half = next((int(step) for step, part in zip(steps, parts, strict=True) if part >= 0.5), None)
    return Curve(arm, [int(step) for step in steps], parts, at, half)


def _drawn(curve: Curve, i: int, frame: Frame) -> list[Element]:
    color = "ink" if curve.arm == "base" else f"s{i % SERIES}"
    spans = [(step, e.low, e.high) for step, e in curve.at.items() if e.low is not None and e.high is not None]
    stairs, part = [frame.at(0, 0)], 0.0
    for step, now in zip(curve.steps, curve.by, strict=True):
        stairs += [frame.at(step, part), frame.at(step, now)]
        part = now
    end = max(curve.at)
    stairs.append(frame.at(end, part))
    shapes: list[Element] = [frame.band(spans, color, 0.08), Polyline(stairs, color, 1.7)]
    for step, estimate in curve.at.items():
        if step and estimate.value is not None:
            span = interval(estimate.low, estimate.high, scale=100)
            tip = f"{curve.arm}: {percent(estimate.value)} {span} of takes had succeeded by step {step}"
            shapes.append(Mark(*frame.at(step, estimate.value), 2.4, color, tip=tip))
    half = f"half of all takes by step {curve.half}" if curve.half is not None else "fewer than half of all takes"
    y = frame.y.start + 46 + 16 * i
    shapes.append(Mark(frame.x.start + 4, y - 4, 3.5, color))
    shapes.append(Label(frame.x.start + 14, y, f"{curve.arm}: {half}", color="muted", size=11.5))
    return shapes
