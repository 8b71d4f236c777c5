"""The figures of the report, each from the numbers of a `Result` alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from besttake.arms import BASE, COOLED, RETRIEVE
from besttake.reporting.drawing import (
    SERIES,
    WIDTH,
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
    shorten,
    spread,
)
from besttake.reporting.numbers import bounds, estimate_percent, estimate_points, interval, percent, points
from besttake.reporting.tables import gain_headroom

if TYPE_CHECKING:
    from besttake.reporting.candidates import Curve
    from besttake.result import Cell, CurvePoint, Relation, Result


def ladder(cell: Cell, path: str) -> Figure | None:
    """pass@1, the controls, the selectors and the oracle, as success rates."""
    if cell.headroom is None or cell.headroom.pass_1.value is None:
        return None
    n = cell.headroom.n
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
                place = f"{path}/selectors/scored/{scorer}/{window}/success"
                rows.append(DotRow(f"{scorer}, {window}", selector.success, place, "accent", chosen, not chosen))
    rows.append(DotRow(f"oracle, pass@{n}", cell.headroom.pass_n, f"{path}/headroom/pass_n"))
    title = f"Success of {cell.policy} with each way to keep one of {n} takes"
    return dots(rows, title, (0.0, 1.0), percent, estimate_percent, mark=cell.headroom.pass_1.value)


def menu(cell: Cell, path: str, worth: float) -> Figure | None:
    """The gain of every option over the frozen policy with one take, its cost before its name, the best one marked."""
    rows = _options(cell, path)
    if not rows:
        return None
    title = f"What each option gains over {cell.policy} as it is, with its cost in takes"
    known = [end for row in rows for end in (row.estimate.low, row.estimate.high, row.estimate.value)]
    ends = spread([*known, worth], low=-0.05, high=0.10)
    return dots(rows, title, ends, points, estimate_points, zero=True, mark=worth)


def _options(cell: Cell, path: str) -> list[DotRow]:
    if cell.verdict is None:
        return []
    rows = []
    for i, option in enumerate(cell.verdict.options[1:], start=1):
        best = option.name == cell.verdict.option
        place = f"{path}/verdict/gain" if best else f"{path}/verdict/options/{i}/gain"
        label = f"{option.takes}\N{MULTIPLICATION SIGN} {option.arm}" + (f", {option.scorer}" if option.scorer else "")
        gain, color = cell.verdict.shown_as(option)[1], "accent" if option.shown else "ink"
        rows.append(DotRow(label, gain, place, color, strong=best, hollow=not option.shown, best=best))
    return rows


_PATH_SERIES = {
    "headroom": ("s4", "a perfect pick"),
    "gain": ("accent", "keeping the best"),
    RETRIEVE: ("s1", "retrieval"),
    COOLED: ("s2", "cooling"),
    "content": ("s3", "retrieval beyond cooling"),
}


def course(cell: Cell, path: str) -> Figure | None:
    """A run until decided: the estimate of each question against takes, inside its bounds."""
    if cell.path is None or not cell.path.points:
        return None
    drawn = [(name, line) for name, line in cell.path.points.items() if name in _PATH_SERIES and line]
    ends = [end for _, line in drawn for p in line for end in (p.value, p.low, p.high)]
    last = max(line[-1].takes for _, line in drawn)
    low, high = max(-0.6, min(-0.05, *ends)), min(0.8, max(0.1, *ends))
    legend = 16 * len(drawn)
    frame = Frame.of((WIDTH, 250 + legend), (44, 14, 14, 42 + legend), (0, last * 1.02), (low, high))
    bottom = frame.y.start
    shapes: list[Element] = [
        *frame.grid(about=5),
        *horizontal(frame.x, frame.y.end, bottom, about=5, scale=1),
        Polyline([frame.at(0, 0), frame.at(last, 0)], "muted", 1, (3, 3)),
        Label(frame.x.end, bottom + 34, "takes", color="muted", size=12, anchor="end"),
        Label(frame.x.start + 6, frame.y.end + 12, "gain, points", color="muted", size=12),
    ]
    for i, (name, line) in enumerate(drawn):
        (color, shown), settled = _PATH_SERIES[name], cell.path.settled.get(name)
        shapes.append(frame.band([(p.takes, p.low, p.high) for p in line], color, 0.07))
        shapes.append(Polyline([frame.at(p.takes, p.value) for p in line], color, 1.6))
        for j, p in enumerate(line):
            tip = f"{shown} after {p.takes} takes: {points(p.value)} points {interval(p.low, p.high, scale=100)}"
            data = datum(f"{path}/path/points/{name}/{j}/value", p.value)
            shapes.append(Mark(*frame.at(p.takes, p.value), 2.6, color, tip=tip, data=data))
        when = f"settled after {settled} takes" if settled is not None else "open"
        y = bottom + 46 + 16 * i
        shapes.append(Mark(frame.x.start + 4, y - 4, 3.5, color))
        shapes.append(Label(frame.x.start + 14, y, f"{shown}: {when}", color="muted", size=11.5))
    return Figure(frame.width, frame.height, f"How {cell.policy} was decided, against takes", tuple(shapes))


def relation(result: Result, *, legend: bool = False) -> Figure | None:
    """Selection gain against headroom (paper Fig. 1): cells, policies, the fitted line with its band.

    The ``legend`` stands at the upper left, where no mark can: a gain is never above its headroom.
    """
    cells = [(f"/cells/{i}", cell) for i, cell in enumerate(result.cells)]
    pairs = [(x.value, y.value) for x, y in map(gain_headroom, result.cells) if x and y]
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    if not known:
        return None
    x_range = spread([x for x, _ in known], low=0.0, high=0.1)
    y_range = spread([*(y for _, y in known), 0.0], low=-0.02, high=0.1)
    frame = Frame.of((560, 400), (52, 14, 16, 48), x_range, y_range)
    (left, right), (bottom, top) = (frame.x.start, frame.x.end), (frame.y.start, frame.y.end)
    reach = min(frame.x.high, frame.y.high)
    shapes: list[Element] = [
        *frame.grid(),
        *horizontal(frame.x, top, bottom),
        Label((left + right) / 2, frame.height - 10, "headroom, points", color="muted", size=12.5, anchor="middle"),
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
    return Figure(frame.width, frame.height, "Gain of selection against headroom, one dot per cell", tuple(shapes))


def curve(cell: Cell, path: str) -> Figure | None:
    """pass@k with its interval, the extrapolation dashed inside its sharp bounds, and the selector's success."""
    if cell.headroom is None or not cell.headroom.curve or cell.headroom.curve[0].value is None:
        return None
    known = [point for point in cell.headroom.curve if point.value is not None]
    last = max(point.k for point in known)
    ends = [end for p in known for end in (p.value, p.low, p.high, *(p.bounds or ())) if end is not None]
    frame = Frame.of((WIDTH, 230), (44, 14, 14, 40), (0.7, last + 0.3), (max(0.0, min(ends) - 0.08), 1.0))
    below = frame.y.start + 17
    shapes: list[Element] = [
        *frame.grid(about=4),
        *(
            Label(frame.x(k), below, str(k), color="muted", size=11.5, anchor="middle")
            for k in range(1, last + 1)
            if last <= 12 or k % 5 == 0 or k == 1
        ),
        Label(frame.x.end, frame.height - 5, "takes k", color="muted", size=12, anchor="end"),
        Label(frame.x.start + 6, frame.y.end + 12, "pass@k, %", color="muted", size=12),
        *_extrapolation(known, frame),
    ]
    shapes.append(Polyline([frame.at(p.k, p.value or 0) for p in known if p.measured], "ink", 1.5))
    for i, point in enumerate(cell.headroom.curve):
        shapes += _pass_at_k(point, f"{path}/headroom/curve/{i}/value", frame)
    shapes += _best_of_k(cell, path, frame)
    return Figure(frame.width, frame.height, f"pass@k of {cell.policy}", tuple(shapes))


def timing(policy: str, drawn: list[Curve]) -> Figure | None:
    """The curves of a policy; None where no take succeeded or nothing is known."""
    if not any((estimate.value or 0) > 0 for curve in drawn for estimate in curve.at.values()):
        return None
    last = max(step for curve in drawn for step in curve.at)
    frame = Frame.of((WIDTH, 240 + 16 * len(drawn)), (44, 14, 14, 42 + 16 * len(drawn)), (0, last), (0, 1))
    bottom = frame.y.start
    shapes: list[Element] = [
        *frame.grid(about=4),
        *horizontal(frame.x, frame.y.end, bottom, about=5, scale=1),
        Label(frame.x.end, bottom + 32, "step", color="muted", size=12, anchor="end"),
        Label(frame.x.start + 6, frame.y.end + 12, "takes that have succeeded, %", color="muted", size=12),
    ]
    for i, curve in enumerate(drawn):
        shapes += _success_over_time(curve, i, frame)
    return Figure(frame.width, frame.height, f"How soon takes of {policy} succeed, by arm", tuple(shapes))


def every(result: Result) -> Iterator[tuple[str, Figure]]:
    """All figures of a result by name, for ``--figures``."""
    named = [("relation", relation(result, legend=True))]
    for i, cell in enumerate(result.policies):
        path, own = f"/policies/{i}", f"{i}-{_file_name(cell.policy)}"
        named += [(f"ladder-{own}", ladder(cell, path)), (f"options-{own}", menu(cell, path, result.worth))]
        named += [(f"until-{own}", course(cell, path)), (f"pass_at_k-{own}", curve(cell, path))]
    for name, figure in named:
        if figure is not None:
            yield name, figure


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:40] or "policy"


def _extrapolation(known: list[CurvePoint], frame: Frame) -> list[Element]:
    """The curve beyond the takes that were made: what is possible as an area, what is likely as a dashed line."""
    measured, beyond = [p for p in known if p.measured][-1:], [p for p in known if not p.measured]
    if not beyond:
        return []
    shapes: list[Element] = []
    possible = [(p.k, *p.bounds) for p in beyond if p.bounds is not None]
    if possible:
        begin = [(p.k, float(p.value or 0), float(p.value or 0)) for p in measured]
        shapes.append(frame.band([*begin, *possible], "muted", 0.14))
    line = [frame.at(p.k, p.value or 0) for p in (*measured, *beyond)]
    return [*shapes, Polyline(line, "muted", 1.5, (4, 4))]


def _pass_at_k(point: CurvePoint, path: str, frame: Frame) -> list[Element]:
    if point.value is None:
        return []
    shapes: list[Element] = []
    if point.measured and point.low is not None and point.high is not None:
        shapes.append(Polyline([frame.at(point.k, point.low), frame.at(point.k, point.high)], "ink", 1.5))
    span = interval(point.low, point.high, scale=100) if point.measured else ""
    if point.bounds is not None and not point.measured:
        span = f"extrapolated{bounds(point)}"
    tip = f"pass@{point.k}: {percent(point.value)} {span}".strip()
    color, data = "ink" if point.measured else "muted", datum(path, point.value)
    return [*shapes, Mark(*frame.at(point.k, point.value), 4, color, hollow=not point.measured, tip=tip, data=data)]


def _best_of_k(cell: Cell, path: str, frame: Frame) -> list[Element]:
    """The success of keeping the best of k takes by the chosen score."""
    kept = enumerate(cell.selectors.by_n, start=1) if cell.selectors is not None else ()
    known = [(k, e.value, interval(e.low, e.high, scale=100)) for k, e in kept if e is not None and e.value is not None]
    if len(known) < 2:
        return []
    shapes: list[Element] = [Polyline([frame.at(k, value) for k, value, _ in known], "accent", 1.5)]
    for k, value, span in known:
        tip = f"best of {k} by {cell.scorer}, {cell.window}: {percent(value)} {span}".rstrip()
        data = datum(f"{path}/selectors/by_n/{k - 1}/value", value)
        shapes.append(Mark(*frame.at(k, value), 3.5, "accent", "square", tip=tip, data=data))
    return shapes


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
    return [Mark(*at, size, color, marker(series), hollow=large, tip=tip, data=data)]


def _success_over_time(curve: Curve, i: int, frame: Frame) -> list[Element]:
    color = "ink" if curve.arm == BASE else f"s{i % SERIES}"
    spans = [(step, e.low, e.high) for step, e in curve.at.items() if e.low is not None and e.high is not None]
    line = [frame.at(step, estimate.value or 0) for step, estimate in curve.at.items()]
    shapes: list[Element] = [frame.band(spans, color, 0.08), Polyline(line, color, 1.7)]
    for step, estimate in curve.at.items():
        if step and estimate.value is not None:
            span = interval(estimate.low, estimate.high, scale=100)
            tip = f"{curve.arm}: {percent(estimate.value)} {span} of takes had succeeded by step {step}"
            shapes.append(Mark(*frame.at(step, estimate.value), 2.4, color, tip=tip))
    y = frame.y.start + 46 + 16 * i
    shapes.append(Mark(frame.x.start + 4, y - 4, 3.5, color))
    shapes.append(Label(frame.x.start + 14, y, curve.arm, color="muted", size=11.5))
    return shapes
