"""The verifier page: how well scorers find good takes, as HTML and Markdown; `verifier_tables` has the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from besttake.escapes import markdown as harmless
from besttake.measure.verifiers import harmful
from besttake.reporting import numbers, retrying
from besttake.reporting.charts import DotRow, Frame, Style, datum, dots, horizontal, shorten
from besttake.reporting.drawing import Element, Figure, Label, Mark, Polyline
from besttake.reporting.numbers import count, estimate_percent, estimate_plain, estimate_points, number, percent, points
from besttake.reporting.page import may_load, svg, template

if TYPE_CHECKING:
    from besttake.measure.verifiers import Calibration, Verified, Verifier
    from besttake.verbs.verifiers import VerifierResult

HEAD = (
    "scorer", "window", "gain over random", "capture", "AUC within starts", "over shortest", "over the classifier",
    "harm", "s / take",
)  # fmt: skip


def summary(result: VerifierResult) -> list[str]:
    """What the comparison says, in a few sentences."""
    pooled = result.pooled
    window = pooled.windows[0]
    rows = sorted((v for v in pooled.verifiers if v.window == window), key=lambda v: -(v.gain.value or 0.0))
    lines = [
        f"{count(len(rows), 'scorer')} on the same {count(pooled.takes, 'take')} of {count(pooled.starts, 'start')},"
        f" best of {pooled.n}, window {window}. Headroom is {estimate_points(pooled.headroom)}: a success is among the"
        " takes where a single one would often have failed."
    ]
    if rows and rows[0].gain.value is not None:
        best = rows[0]
        lines.append(
            f"The highest gain is that of {best.scorer}, {estimate_points(best.gain)}; it was the best of"
            f" {len(rows)} on these very takes, so expect a little less elsewhere."
        )
    blind = [v.scorer for v in rows if v.gain.low is not None and v.gain.low <= 0 <= (v.gain.high or 0.0)]
    if blind:
        lines.append(f"Not shown to differ from a random pick: {', '.join(blind)}.")
    harms = harmful(result.cells)
    for scorer in dict.fromkeys(v.scorer for _, v in harms):
        own = [f"{named(cell)} ({estimate_points(v.gain)})" for cell, v in harms if v.scorer == scorer]
        lines.append(f"Picking by {scorer} is worse than a random pick for {', '.join(own)}.")
    if harms:
        asked = len(rows) * len(result.cells)
        lines.append(
            f"These are {len(harms)} of {count(asked, 'pair')} of scorer and cell; if none harmed, about"
            f" {number(0.025 * asked)} would still seem to."
        )
    if result.length:
        lines.append(
            f"{', '.join(result.length)} depends on how long a take is. Where episodes stop at success, that gives the"
            " outcome away, so what it gains proves nothing about how it ranks behaviour."
        )
    return lines


def html(result: VerifierResult) -> str:
    """One self-contained page."""
    document = json.loads(result.to_json())
    own = _Numbers(document)
    given = {"document": document, "num": own.num, "est": own.est, "may_load": may_load, "count": count}
    return str(template("verifiers.html.j2", **given, **_context(result)))


def section(result: VerifierResult) -> dict[str, Any]:
    """What the report of a run shows of the comparison."""
    return {"rows": [texts(result, v) for v in leading(result)], "head": HEAD, "summary": summary(result)}


def _context(result: VerifierResult) -> dict[str, Any]:
    pooled = result.pooled
    place = "/cells/0" if len(result.cells) == 1 else "/pooled"
    return {
        "result": result, "pooled": pooled, "summary": summary(result), "gains": svg(gains(pooled, place)),
        "rows": [(v, f"{place}/verifiers/{i}") for i, v in enumerate(pooled.verifiers)],
        "controls": [(v, f"{place}/controls/{i}") for i, v in enumerate(pooled.controls)],
        "any_invalid": any(v.invalid for v in (*pooled.verifiers, *pooled.controls)),
        "place": place, "pointer": pointer, "matrix": _matrix(pooled, place), "named": named,
        "calibration": [
            (c, f"{place}/calibration/{i}", svg(reliability(c, f"{place}/calibration/{i}")))
            for i, c in enumerate(pooled.calibration)
        ],
        "retrying": retrying.context(pooled, place),
        "cells": [(i, c, [_index(c, s) for s in result.scorers]) for i, c in enumerate(result.cells)],
    }  # fmt: skip


def _index(cell: Verified, scorer: str) -> int | None:
    """Where a cell keeps a scorer on the window that its verdict reads."""
    wanted = scorer, cell.windows[0]
    return next((i for i, v in enumerate(cell.verifiers) if (v.scorer, v.window) == wanted), None)


def gains(cell: Verified, path: str) -> Figure:
    """The gain of every scorer on the verdict's window, with the controls below and the headroom as the last line."""
    order = [(i, v) for i, v in enumerate(cell.verifiers) if v.window == cell.windows[0]]
    order.sort(key=lambda pair: -(pair[1].gain.value or 0.0))
    rows = [
        DotRow(shorten(v.scorer, 20), v.gain, f"{path}/verifiers/{i}/gain", "accent", i == order[0][0])
        for i, v in order
    ]
    rows += [
        DotRow(v.scorer, v.gain, f"{path}/controls/{i}/gain", "muted", hollow=True, gap=v.scorer == "random")
        for i, v in enumerate(cell.controls)
    ]
    every = [e for row in rows for e in (row.estimate.value, row.estimate.low, row.estimate.high) if e is not None]
    low, high = min([0.0, *every]), max([0.01, *every])
    style = Style(points, lambda row: f"{row.label}: {estimate_points(row.estimate)}")
    return dots(rows, "Gain of every scorer over a random pick, in points", (low, high), style, zero=True)


def reliability(calibrated: Calibration, path: str) -> Figure | None:
    """Stated against happened: on the diagonal a probability can be taken at its word."""
    if not calibrated.bins:
        return None
    frame = Frame.of((320, 300), (52, 26, 14, 40), (0, 1), (0, 1))
    shapes: list[Element] = [
        *horizontal(frame.x, frame.y.end, frame.y.start, scale=100),
        Polyline([frame.at(0, 0), frame.at(1, 1)], "muted", 1, (3, 3)),
        Label(frame.x.end, frame.height - 4, "stated, %", "muted", 11.5, "end"),
        Label(frame.x.start, 14, "happened, %", "muted", 11.5),
    ]
    for tick in (0.0, 0.5, 1.0):
        shapes.append(Label(frame.x.start - 7, frame.y(tick) + 4, f"{100 * tick:.0f}", "muted", 11.5, "end"))
    for i, one in enumerate(calibrated.bins):
        low, high, value = one.happened.low, one.happened.high, one.happened.value
        if value is None:
            continue
        if low is not None and high is not None:
            shapes.append(Polyline([frame.at(one.stated, low), frame.at(one.stated, high)], "accent", 1.4))
        tip = f"stated {percent(one.stated)}, happened {estimate_percent(one.happened)}, {count(one.takes, 'take')}"
        data = datum(f"{path}/bins/{i}/happened/value", value)
        shapes.append(
            Mark(*frame.at(one.stated, value), 3 + 4 * (one.takes / calibrated.takes) ** 0.5, tip=tip, data=data)
        )
    return Figure(frame.width, frame.height, f"Reliability of {calibrated.scorer}", tuple(shapes))


def _matrix(cell: Verified, path: str) -> list[tuple[str, list[tuple[str, str] | None]]]:
    """For each scorer the pointer to its difference from every other one, with the sign to read it by."""
    at = {(p.first, p.second): f"{path}/pairs/{i}/difference" for i, p in enumerate(cell.pairs)}
    names = list(dict.fromkeys(name for pair in at for name in pair))
    lines = []
    for a in names:
        line: list[tuple[str, str] | None] = [(at[a, b], f"{a} minus {b}") if (a, b) in at else None for b in names]
        lines.append((a, line))
    return lines


def named(cell: Verified) -> str:
    """Which cell, in words."""
    if cell.policy == "*":
        return "all cells together"
    return cell.policy if cell.tasks == "*" else f"{cell.policy} on {cell.tasks}"


def leading(result: VerifierResult) -> list[Verifier]:
    """Scorers on the verdict's window, best first, then the controls."""
    first = [v for v in result.pooled.verifiers if v.window == result.pooled.windows[0]]
    return [*sorted(first, key=lambda v: -(v.gain.value or 0.0)), *result.pooled.controls]


def texts(result: VerifierResult, v: Verifier) -> tuple[str, ...]:
    """A line of a table; the controls have neither window nor costs."""
    length = " (reads length)" if v.scorer in result.length else ""
    seconds = result.seconds.get(v.scorer)
    return (
        f"{v.scorer}{length}", v.window, estimate_points(v.gain, ""), estimate_plain(v.capture), estimate_plain(v.auc),
        estimate_points(v.over_shortest, ""), estimate_points(v.over_bar, ""), estimate_percent(v.harm),
        number(seconds, 4) if seconds is not None and v.window else "",
    )  # fmt: skip


def markdown(result: VerifierResult) -> str:
    """Tables for notes and pull requests."""
    pooled = result.pooled
    parts = [f"# Scorers on {harmless(', '.join(result.runs))}", *(harmless(line) for line in summary(result))]
    rows = [texts(result, v) for v in (*pooled.verifiers, *pooled.controls)]
    parts.append(_md_table(HEAD, rows))
    if pooled.pairs:
        pairs = [(p.first, p.second, estimate_points(p.difference, "")) for p in pooled.pairs]
        parts += ["## Pairs on the same starts", _md_table(("scorer", "minus", "difference in gain"), pairs)]
    if pooled.retrying:
        head = (*retrying.HEAD[:-1], f"success, best of {pooled.n}")
        parts += [
            "## Retrying until the score passes",
            f"At most {pooled.n} takes; thresholds come from other starts of the same cell.",
            _md_table(head, retrying.rows(pooled)),
            "Success against mean takes, of every threshold and of the best of k:",
            _md_table(retrying.POINTS, retrying.points(pooled)),
        ]
    for c in pooled.calibration:
        bins = [(percent(b.stated), estimate_percent(b.happened), str(b.takes)) for b in c.bins]
        parts += [
            f"## Calibration of {harmless(c.scorer)}",
            f"Brier score {number(c.brier, 3)}, mean gap {number(c.error, 3)}, {count(c.takes, 'take')}.",
            _md_table(("stated", "happened", "takes"), bins),
        ]
    if len(result.cells) > 1:
        lines = [
            (
                named(cell),
                str(cell.starts),
                estimate_points(cell.headroom, ""),
                *(_gain(cell, s) for s in result.scorers),
            )
            for cell in result.cells
        ]
        parts += ["## Gain in every cell", _md_table(("cell", "starts", "headroom", *result.scorers), lines)]
    parts += [f"> {harmless(note)}" for note in result.notes]
    return "\n\n".join(parts) + "\n"


def _gain(cell: Verified, scorer: str) -> str:
    own = cell.of(scorer)
    return estimate_points(own.gain, "") if own is not None else ""


def _md_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(harmless(cell) if i != 1 else cell for cell in line) + " |" for i, line in enumerate(lines)
    )


class _Numbers:
    """Numbers of a JSON document, written by pointer."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def num(self, pointer: str, style: str = "plain") -> Markup:
        """The number at a JSON pointer; words where there is none."""
        value = self.at(pointer)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return _missing("")
        text = _STYLES[style](float(value))
        return Markup('<span class="num" data-path="{}" data-value="{}" data-style="{}">{}</span>').format(
            pointer, repr(value), style, text
        )

    def est(self, pointer: str, style: str = "plain") -> Markup:
        """The `Estimate` at a JSON pointer with its interval; its reason in words where it has no value."""
        estimate = self.at(pointer)
        if estimate is None or estimate.get("value") is None:
            return _missing((estimate or {}).get("reason") or "")
        value = self.num(f"{pointer}/value", style)
        low, high = estimate.get("low"), estimate.get("high")
        if low is None or high is None:
            return value
        digits, scale = (2, 1) if style == "plain" else (1, 100)
        span = Markup('<span class="ci" data-path="{}" data-low="{}" data-high="{}" data-style="{}">{}</span>').format(
            pointer, repr(low), repr(high), style, numbers.interval(low, high, scale=scale, digits=digits)
        )
        return value + Markup(" ") + span

    def at(self, pointer: str) -> Any:
        """The value at a JSON pointer (RFC 6901)."""
        value: Any = self._document
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if value is None:
                return None
            value = value[int(part)] if isinstance(value, list | tuple) else value.get(part)
        return value


_STYLES: dict[str, Callable[[float], str]] = {
    "plain": lambda v: numbers.number(v, 2),
    "percent": numbers.percent,
    "points": numbers.points,
    "spread": numbers.spread,
    "count": lambda v: f"{round(v):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
    "fine": lambda v: numbers.number(v, 4),
}


def _missing(reason: str) -> Markup:
    return Markup('<span class="none">{}</span>').format(reason or "not measured")


def pointer(*parts: str | int) -> str:
    """A JSON pointer: ``pointer("a/b", 0)`` -> "/a~1b/0"."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
