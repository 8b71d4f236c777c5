"""Draw the figures of the report from the numbers of a `Result`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from besttake.reporting.drawing import (
    SERIES,
    Axis,
    DotRow,
    Element,
    Figure,
    Frame,
    Label,
    Mark,
    Polyline,
    datum,
    dots,
    horizontal,
    marker,
    padded_range,
    shorten,
)
from besttake.reporting.numbers import estimate_percent, estimate_points, percent, points
from besttake.reporting.result_tables import gain_headroom

if TYPE_CHECKING:
    from besttake.result import Cell, Relation, Result


def ladder(cell: Cell, number: int) -> Figure | None:
    """Draw the success of policy ``number`` with each way to keep one take: pass@1, controls, scorers and oracle."""
    if cell.headroom is None or cell.headroom.pass_1.value is None:
        return None
    n, path = cell.headroom.n, f"/policies/{number}"
    rows = [DotRow("pass@1", cell.headroom.pass_1, f"{path}/headroom/pass_1", strong=True)]
    selectors = cell.selectors
    if selectors is not None:
        controls = {"random": "keep a random take", "shortest": "keep the shortest"}
        for name, label in controls.items():
            rows.append(DotRow(label, getattr(selectors, name).success, f"{path}/selectors/{name}/success", "muted"))
        known = any(one.success.value is not None for windows in selectors.scored.values() for one in windows.values())
        for scorer, windows in selectors.scored.items() if known else ():
            for window, selector in windows.items():
                chosen = scorer == cell.scorer and window == cell.window
                source = f"{path}/selectors/scored/{scorer}/{window}/success"
                color = "accent" if chosen else "ink"
                rows.append(DotRow(f"{scorer}, {window}", selector.success, source, color, chosen))
    rows.append(DotRow(f"oracle, pass@{n}", cell.headroom.pass_n, f"{path}/headroom/pass_n"))
    title = f"Success of {cell.policy} with each way to keep one of {n} takes"
    return dots(rows, title, (0.0, 1.0), percent, estimate_percent, mark=cell.headroom.pass_1.value)


def option_gains(cell: Cell, number: int, worth: float) -> Figure | None:
    """Draw the gain of every option of policy ``number`` over one take of it as it is, the recommended one marked."""
    verdict, path = cell.verdict, f"/policies/{number}/verdict"
    if verdict is None or len(verdict.options) < 2:
        return None
    rows = []
    for i, option in enumerate(verdict.options[1:], start=1):
        best = option.name == verdict.option
        source = f"{path}/gain" if best else f"{path}/options/{i}/gain"
        label = f"{option.takes}\N{MULTIPLICATION SIGN} {option.arm}" + (f", {option.scorer}" if option.scorer else "")
        gain, color = verdict.shown_as(option)[1], "accent" if best else "ink"
        rows.append(DotRow(label, gain, source, color, strong=best, hollow=not option.shown, best=best))
    title = f"What each option gains over {cell.policy} as it is, with its cost in takes"
    ends = [end for row in rows for end in (row.estimate.low, row.estimate.high, row.estimate.value)]
    limits = padded_range([*ends, worth], low=-0.05, high=0.10)
    return dots(rows, title, limits, points, estimate_points, zero=True, mark=worth)


def relation(result: Result, *, legend: bool = False) -> Figure | None:
    """Draw selection gain against headroom (paper Fig. 1): cells, policies, and the fitted line with its band.

    The ``legend`` is at the upper left, where no mark can be: a gain is never above its headroom.
    """
    cells = [(f"/cells/{i}", cell) for i, cell in enumerate(result.cells)]
    pairs = [(x.value, y.value) for x, y in map(gain_headroom, result.cells) if x and y]
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    if not known:
        return None
    x_range = padded_range([x for x, _ in known], low=0.0, high=0.1)
    y_range = padded_range([*(y for _, y in known), 0.0], low=-0.02, high=0.1)
    width, height, left, top, right, bottom = 560, 400, 52.0, 14.0, 544.0, 352.0
    frame = Frame(Axis(*x_range, left, right), Axis(*y_range, bottom, top))
    reach = min(frame.x.high, frame.y.high)
    shapes: list[Element] = [
        *frame.grid(),
        *horizontal(frame.x, top, bottom),
        Label((left + right) / 2, height - 10, "headroom, points", color="muted", size=12.5, anchor="middle"),
        Label(left + 6, top + 12, "gain of selection, points", color="muted", size=12.5),
        Polyline([frame.at(0, 0), frame.at(reach, reach)], "muted", 1, (2, 4)),
        *_fitted_line(result.relation, frame),
    ]
    series = {name: i for i, name in enumerate(dict.fromkeys(policy.policy for policy in result.policies))}
    for name, i in series.items() if legend else ():
        y = top + 32 + 18 * i
        shapes.append(Mark(left + 13, y - 4, 4.5, f"s{i % SERIES}", marker(i)))
        shapes.append(Label(left + 24, y, shorten(name, 40), size=12))
    policies = [(f"/policies/{i}", policy) for i, policy in enumerate(result.policies)] if len(cells) > 1 else []
    for path, cell in (*cells, *policies):
        shapes += _relation_mark(cell, path, series.get(cell.policy, 0), frame, large=path.startswith("/policies"))
    return Figure(width, height, "Gain of selection against headroom, one dot per cell", tuple(shapes))


def sources(cell: Cell, number: int) -> Figure | None:
    """Draw where the spread of outcomes of policy ``number`` within a task comes from; None if that is not known."""
    parts, path = cell.audit.sources.parts if cell.audit is not None else {}, f"/policies/{number}/audit/sources/parts"
    rows = [DotRow(name, part, f"{path}/{name}/value", "ink") for name, part in parts.items()]
    title = f"Where the spread of outcomes of {cell.policy} within a task comes from"
    return dots(rows, title, (-0.1, 1.0), percent, estimate_percent, zero=True) if rows else None


def all_figures(result: Result) -> Iterator[tuple[str, Figure]]:
    """Yield every figure of a result with a name for its file."""
    named = [("relation", relation(result, legend=True))]
    for i, cell in enumerate(result.policies):
        policy = re.sub(r"[^A-Za-z0-9]+", "_", cell.policy).strip("_")[:40] or "policy"
        named.append((f"ladder-{i}-{policy}", ladder(cell, i)))
        named.append((f"options-{i}-{policy}", option_gains(cell, i, result.worth)))
        named.append((f"sources-{i}-{policy}", sources(cell, i)))
    for name, figure in named:
        if figure is not None:
            yield name, figure


def _fitted_line(relation: Relation, frame: Frame) -> list[Element]:
    line = relation.fit
    if line is None:
        return []
    ranges = [r for r in zip(line.x, line.low, line.high, strict=True) if frame.x.low <= r[0] <= frame.x.high]
    if not ranges:
        return []
    centre = [(x, line.intercept + line.slope * x) for x, _, _ in ranges]
    inside = [frame.at(x, y) for x, y in centre if frame.y.low <= y <= frame.y.high]
    return [frame.band(ranges, "accent", 0.12), Polyline(inside, "accent", 1.8)]


def _relation_mark(cell: Cell, path: str, series: int, frame: Frame, *, large: bool) -> list[Element]:
    headroom, gain = gain_headroom(cell)
    if headroom is None or gain is None or headroom.value is None or gain.value is None:
        return []
    name = f"{cell.policy}, {'all tasks' if cell.group == '*' else cell.group}"
    tip = f"{name}\nheadroom {estimate_points(headroom)}\ngain {estimate_points(gain)}"
    data = {
        **datum(f"{path}/headroom/headroom/value", headroom.value),
        "gain-path": f"{path}/selectors/scored/{cell.scorer}/{cell.window}/gain/value",
        "gain-value": repr(float(gain.value)),
    }
    at, color, size = frame.at(headroom.value, gain.value), f"s{series % SERIES}", 9.0 if large else 4.2
    return [Mark(*at, size, color, marker(series), tip=tip, data=data, opacity=0.35 if large else 1.0)]
