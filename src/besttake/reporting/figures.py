"""The figures of the report, each from the numbers of `Result` alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from besttake.reporting import drawing
from besttake.reporting.axes import Scale, datum, horizontal, shorten, spread, vertical
from besttake.reporting.dots import WIDTH, Row, Style, dots
from besttake.reporting.drawing import SERIES, Area, Figure, Label, Line, Mark, Shape, marker
from besttake.reporting.numbers import bounds, estimate_points, interval, number, percent, points
from besttake.result import Cell, Estimate, Relation, Result

ARM_TEXT = {
    "base": "as it is",
    "cooled": "cooled",
    "shuffled": "shuffled",
    "retrieve": "retrieve",
    "rerank": "rerank",
}


def ladder(cell: Cell, path: str) -> Figure | None:
    """pass@1, the controls, the selectors and the oracle, as success rates."""
    if cell.headroom is None or cell.headroom.pass_1.value is None:
        return None
    n = cell.headroom.n
    rows = [Row("pass@1", cell.headroom.pass_1, f"{path}/headroom/pass_1", strong=True)]
    selectors = cell.selectors
    if selectors is not None:
        rows.append(Row("keep a random take", selectors.random.success, f"{path}/selectors/random/success", "muted"))
        rows.append(Row("keep the shortest", selectors.shortest.success, f"{path}/selectors/shortest/success", "muted"))
        for scorer, windows in selectors.scored.items():
            for window, selector in windows.items():
                chosen = scorer == cell.scorer and window == cell.window
                rows.append(
                    Row(
                        f"{scorer}, {window}",
                        selector.success,
                        f"{path}/selectors/scored/{scorer}/{window}/success",
                        "accent",
                        strong=chosen,
                        hollow=not chosen,
                    )
                )
    rows.append(Row(f"oracle, pass@{n}", cell.headroom.pass_n, f"{path}/headroom/pass_n"))
    title = f"Success of {cell.policy} with each way to keep one of {n} takes"
    return dots(rows, title, 0.0, 1.0, Style(percent, _percent_tip), mark=cell.headroom.pass_1.value)


def forest(cell: Cell, path: str) -> Figure | None:
    """Paired differences to the frozen policy: each arm, each with selection, and what decides between them."""
    if cell.arms is None or not set(cell.arms.arms) - {"base"}:
        return None
    rows: list[Row] = []
    others = {name: arm for name, arm in cell.arms.arms.items() if name != "base"}
    for name, arm in others.items():
        rows.append(Row(ARM_TEXT.get(name, name), arm.gain, f"{path}/arms/arms/{name}/gain"))
    first = True
    for name, arm in cell.arms.arms.items():
        if arm.selected_gain.value is None:
            continue
        label = "best take" if name == "base" else f"{ARM_TEXT.get(name, name)}, best take"
        rows.append(Row(label, arm.selected_gain, f"{path}/arms/arms/{name}/selected_gain", "accent", gap=first))
        first = False
    decisive = [
        Row("retrieve − cooled", cell.arms.content, f"{path}/arms/content", strong=True, gap=True),
        Row("retrieve on best take", cell.arms.combine, f"{path}/arms/combine", strong=True),
    ]
    rows += [row for row in decisive if row.estimate.value is not None]
    rows = [row for row in rows if row.estimate.value is not None]
    if not rows:
        return None
    title = f"Differences to {cell.policy} as it is, paired by start"
    ends = [end for row in rows for end in (row.estimate.low, row.estimate.high, row.estimate.value)]
    low, high = spread(ends, low=-0.05, high=0.10)
    return dots(rows, title, low, high, Style(points, _points_tip), zero=True)


def relation(result: Result, *, legend: bool = False) -> Figure | None:
    """Selection gain against headroom (paper Fig. 1): cells, policies, the fit with its band.

    The ``legend`` stands at the upper left, where no mark can: a gain is never above its headroom.
    """
    dots = [(i, cell, *gain_headroom(cell)) for i, cell in enumerate(result.cells)]
    known = [(i, cell, x, y) for i, cell, x, y in dots if x.value is not None and y.value is not None]
    if not known:
        return None
    width, height, left, top, right, bottom = 560.0, 400.0, 52.0, 14.0, 16.0, 48.0
    xs = [x.value for _, _, x, _ in known]
    ys = [y.value for _, _, _, y in known]
    x_scale = Scale(*spread(xs, low=0.0, high=0.1), left, width - right)
    y_scale = Scale(*spread([*ys, 0.0], low=-0.02, high=0.1), height - bottom, top)
    shapes: list[Shape] = [
        *vertical(y_scale, left, width - right),
        *horizontal(x_scale, top, height - bottom),
        Label((left + width - right) / 2, height - 10, "headroom, points", color="muted", size=12.5, anchor="middle"),
        Label(left + 6, top + 12, "gain of selection, points", color="muted", size=12.5),
    ]
    reach = min(x_scale.high, y_scale.high)
    shapes.append(Line([(x_scale(0), y_scale(0)), (x_scale(reach), y_scale(reach))], "muted", 1, (2, 4)))
    shapes += _fit(result.relation, x_scale, y_scale)
    order = {name: i for i, name in enumerate(dict.fromkeys(policy.policy for policy in result.policies))}
    for name, i in order.items() if legend else ():
        y_place = top + 32 + 18 * i
        shapes.append(Mark(left + 13, y_place - 4, 4.5, f"s{i % SERIES}", marker(i)))
        shapes.append(Label(left + 24, y_place, shorten(name, 40), size=12))
    for i, cell, x, y in known:
        shapes.append(
            _relation_mark(cell, x, y, f"/cells/{i}", order.get(cell.policy, 0), x_scale, y_scale, large=False)
        )
    for i, policy in enumerate(result.policies):
        x, y = gain_headroom(policy)
        if x.value is not None and y.value is not None and len(result.cells) > 1:
            shapes.append(
                _relation_mark(policy, x, y, f"/policies/{i}", order[policy.policy], x_scale, y_scale, large=True)
            )
    return Figure(width, height, "Gain of selection against headroom, one dot per cell", tuple(shapes))


def curve(cell: Cell, path: str) -> Figure | None:
    """pass@k with its interval, the extrapolation dashed inside its sharp bounds, and the selector's success."""
    if cell.headroom is None or not cell.headroom.curve or cell.headroom.curve[0].value is None:
        return None
    known = [(i, p) for i, p in enumerate(cell.headroom.curve) if p.value is not None]
    width, height, left, top, right, bottom = WIDTH, 230.0, 44.0, 14.0, 14.0, 40.0
    last = max(p.k for _, p in known)
    x_scale = Scale(0.7, last + 0.3, left, width - right)
    ends = [e for _, p in known for e in (p.value, p.low, p.high, *(p.bounds or ()))]
    low = min([e for e in ends if e is not None])
    y_scale = Scale(max(0.0, low - 0.08), 1.0, height - bottom, top)
    shapes: list[Shape] = [*vertical(y_scale, left, width - right, about=4)]
    for k in range(1, last + 1):
        if last <= 12 or k % 5 == 0 or k == 1:
            shapes.append(Label(x_scale(k), height - bottom + 17, str(k), color="muted", size=11.5, anchor="middle"))
    shapes.append(Label(width - right, height - 5, "takes k", color="muted", size=12, anchor="end"))
    shapes.append(Label(left + 6, top + 12, "pass@k, %", color="muted", size=12))
    measured = [(i, p) for i, p in known if p.measured]
    beyond = [(i, p) for i, p in known if not p.measured]
    if beyond:
        possible = [(p.k, *p.bounds) for _, p in beyond if p.bounds is not None]
        if measured and possible:
            end = measured[-1][1]
            possible = [(end.k, float(end.value or 0), float(end.value or 0)), *possible]
        if possible:
            outline = [(x_scale(k), y_scale.clip(b)) for k, _, b in possible]
            outline += [(x_scale(k), y_scale.clip(a)) for k, a, _ in reversed(possible)]
            shapes.append(Area(outline, "muted", opacity=0.14))
        tail = [measured[-1], *beyond] if measured else beyond
        shapes.append(Line([(x_scale(p.k), y_scale(p.value or 0)) for _, p in tail], "muted", 1.5, (4, 4)))
    shapes.append(Line([(x_scale(p.k), y_scale(p.value or 0)) for _, p in measured], "ink", 1.5))
    for i, p in known:
        where = f"{path}/headroom/curve/{i}/value"
        if p.measured and p.low is not None and p.high is not None:
            shapes.append(Line([(x_scale(p.k), y_scale.clip(p.low)), (x_scale(p.k), y_scale.clip(p.high))], "ink", 1.5))
        span = interval(p.low, p.high, scale=100) if p.measured else ""
        if p.bounds is not None and not p.measured:
            span = f"extrapolated{bounds(p)}"
        tip = f"pass@{p.k}: {percent(p.value)} {span}".strip()
        color = "ink" if p.measured else "muted"
        shapes.append(
            Mark(
                x_scale(p.k),
                y_scale(p.value or 0),
                4,
                color,
                hollow=not p.measured,
                tip=tip,
                data=datum(where, p.value),
            )
        )
    if cell.selectors is not None:
        found = [(k + 1, e) for k, e in enumerate(cell.selectors.by_n) if e is not None]
        picked = [(k, e.value, interval(e.low, e.high, scale=100)) for k, e in found if e.value is not None]
        if len(picked) > 1:
            shapes.append(Line([(x_scale(k), y_scale.clip(v)) for k, v, _ in picked], "accent", 1.5))
            for k, v, span in picked:
                tip = f"best of {k} by {cell.scorer}, {cell.window}: {percent(v)} {span}".rstrip()
                data = datum(f"{path}/selectors/by_n/{k - 1}/value", v)
                shapes.append(Mark(x_scale(k), y_scale.clip(v), 3.5, "accent", "square", tip=tip, data=data))
    return Figure(width, height, f"pass@k of {cell.policy}", tuple(shapes))


def fit_error(result: Result) -> Figure | None:
    """DFE over the library's own floor, one row per policy, 1 = as far as demonstrations are from each other."""
    rows = [
        Row(shorten(cell.policy, 22), cell.dfe.ratio, f"/policies/{i}/dfe/ratio")
        for i, cell in enumerate(result.policies)
        if cell.dfe is not None and cell.dfe.ratio.value is not None
    ]
    if not rows:
        return None
    ends = [end for row in rows for end in (row.estimate.high, row.estimate.value, row.estimate.low)]
    low, high = spread(ends, low=0.0, high=1.4)
    title = "Demonstration-fit error as a multiple of the library's own floor"
    return dots(rows, title, low, high, Style(lambda v: number(v, 2), _ratio_tip, 1.0), mark=1.0)


def every(result: Result) -> Iterator[tuple[str, Figure]]:
    """All figures of a result by name, for ``--figures``."""
    whole = [("relation", relation(result, legend=True)), ("fit_error", fit_error(result))]
    for i, cell in enumerate(result.policies):
        where, own = f"/policies/{i}", f"{i}-{_file_name(cell.policy)}"
        whole += [(f"ladder-{own}", ladder(cell, where)), (f"arms-{own}", forest(cell, where))]
        whole += [(f"pass_at_k-{own}", curve(cell, where))]
    for name, figure in whole:
        if figure is not None:
            yield name, figure


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:40] or "policy"


def save_figures(result: Result, directory: Path) -> list[Path]:
    """Write every figure as SVG and PNG; those of a policy carry its number in the report and its name."""
    directory.mkdir(parents=True, exist_ok=True)
    return [path for name, figure in every(result) for path in drawing.save(figure, directory / name)]


def _percent_tip(row: Row) -> str:
    e = row.estimate
    return f"{row.label}: {percent(e.value)} {interval(e.low, e.high, scale=100)}, {e.n} starts"


def _points_tip(row: Row) -> str:
    return f"{row.label}: {estimate_points(row.estimate)}, {row.estimate.n} starts"


def _ratio_tip(row: Row) -> str:
    e = row.estimate
    return f"{row.label}: {number(e.value, 2)} times the floor {interval(e.low, e.high, digits=2)}"


def gain_headroom(cell: Cell) -> tuple[Estimate, Estimate]:
    """Headroom and the gain of the chosen selector; without values where they were not measured."""
    nothing = Estimate()
    if cell.headroom is None or cell.selectors is None:
        return nothing, nothing
    selector = cell.selectors.scored.get(cell.scorer, {}).get(cell.window)
    return cell.headroom.headroom, selector.gain if selector is not None else nothing


def _fit(found: Relation, x_scale: Scale, y_scale: Scale) -> list[Shape]:
    if found.fit is None or not found.fit.x:
        return []
    fit = found.fit
    inside = [
        (x, low, high)
        for x, low, high in zip(fit.x, fit.low, fit.high, strict=True)
        if x_scale.low <= x <= x_scale.high
    ]
    shapes: list[Shape] = []
    if inside:
        outline = [(x_scale(x), y_scale.clip(high)) for x, _, high in inside]
        outline += [(x_scale(x), y_scale.clip(low)) for x, low, _ in reversed(inside)]
        shapes.append(Area(outline, "accent", opacity=0.12))
        line = [(x, fit.intercept + fit.slope * x) for x, _, _ in inside]
        drawn = [(x_scale(x), y_scale(y)) for x, y in line if y_scale.low <= y <= y_scale.high]
        shapes.append(Line(drawn, "accent", 1.8))
    return shapes


def _relation_mark(
    cell: Cell, x: Estimate, y: Estimate, path: str, series: int, x_scale: Scale, y_scale: Scale, *, large: bool
) -> Mark:
    group = "all tasks" if cell.group == "*" else cell.group
    name = f"{cell.policy}, {group}"
    tip = f"{name}\nheadroom {estimate_points(x)}\ngain {estimate_points(y)}"
    data = {
        **datum(f"{path}/headroom/headroom/value", x.value),
        "gain-path": f"{path}/selectors/scored/{cell.scorer}/{cell.window}/gain/value",
        "gain-value": repr(float(y.value or 0.0)),
    }
    color, shape = f"s{series % SERIES}", marker(series)
    return Mark(
        x_scale(float(x.value or 0.0)),
        y_scale(float(y.value or 0.0)),
        9.0 if large else 4.2,
        color,
        shape,
        hollow=large,
        tip=tip,
        data=data,
    )
