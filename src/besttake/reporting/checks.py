"""The check of retrieval as people read it: what each configuration is called, a table, a figure and one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from besttake.reporting.dots import DotRow, Style, dots
from besttake.reporting.numbers import interval, number

if TYPE_CHECKING:
    from besttake.core.estimate import Estimate
    from besttake.core.offline import Check
    from besttake.core.retrieve import RetrievalConfig
    from besttake.reporting.drawing import Figure

VARIANTS = {
    "onset_alignment": "onset", "whitening": "whitening", "rerank": "re-ranking", "gripper_gating": "gripper gating",
    "reliability": "reliability",
}  # fmt: skip
COLUMNS = ("tried", "error", "lasting error", "change", "worst dimension", "chunk alone", "cosine", "")
LEGEND = (
    "Errors of what is executed at demonstrated states, own demonstration left out, in action standard deviations."
    " Lasting: of the mean over draws. Change: of the lasting error, against as much noise with nothing retrieved."
)


@dataclass(frozen=True)
class Line:
    """One line of the table: a label, its cells, and whether it is what was chosen."""

    label: str
    cells: tuple[str, ...]
    chosen: bool = False


def named(config: RetrievalConfig) -> str:
    """A configuration in short: ``frame, start 0.3, re-ranking``."""
    extra = [text for name, text in VARIANTS.items() if getattr(config, name)]
    extra += [f"lead {config.lead}"] if config.rule == "next" and config.lead != 1 else []
    extra += [f"turns of {config.angle:g}°"] if config.angle is not None else []
    extra += ["weights " + "/".join(f"{w:g}" for w in config.weights)] if len(set(config.weights)) > 1 else []
    return ", ".join([config.rule, f"{config.way} {config.alpha:g}", *extra])


def lines(check: Check, *, intervals: bool = True) -> list[Line]:
    """The table: what needs no demonstrations first, then every configuration that was tried."""

    def text(estimate: Estimate, *, signed: bool = False) -> str:
        return _of(estimate, signed=signed) if intervals else number(estimate.value, 3, signed=signed)

    rows = [Line("mean action", (text(check.mean_action),)), Line("base", (text(check.base),))]
    rows += [
        Line(f"cooled {alpha:g}", (text(error),), chosen=alpha == check.cooling)
        for alpha, error in check.cooled.items()
    ]
    for one in check.tried:
        cells = (
            text(one.error), text(one.lasting), _of(one.change, signed=True), text(one.worst, signed=True),
            text(one.chunk), number(one.cosine.value, 2), "passes" if one.sound else "adds error" if one.passes else "",
        )  # fmt: skip
        rows.append(Line(named(one.config), cells, chosen=_same(one.config, check.chosen)))
    return rows


def sentence(check: Check) -> str:
    """What the check says, in one line."""
    if check.reason:
        return f"retrieval could not be checked on held-out demonstrations: {check.reason}"
    cooling = "" if check.cooling is None else f"; cooling alone does best at strength {check.cooling:g}"
    if check.chosen is None:
        return f"at held-out demonstrations no retrieval that was tried beats cooling{cooling}"
    best = next(one for one in check.tried if _same(one.config, check.chosen))
    change = (
        f"{number(best.change.value, signed=True, digits=3)} {interval(best.change.low, best.change.high, digits=3)}"
    )
    how = f"{named(check.chosen)} (change of the lasting error: {change})"
    return f"at held-out demonstrations retrieval helps by {how}{cooling}"


def figure(check: Check, path: str, title: str) -> Figure | None:
    """The error of one sample: mean action, base, cooled, and every configuration with its interval."""
    if check.reason or check.base.value is None:
        return None
    rows = [
        DotRow("mean action", check.mean_action, f"{path}/mean_action", "muted"),
        DotRow("base", check.base, f"{path}/base"),
    ]
    rows += [
        DotRow(f"cooled {alpha:g}", error, f"{path}/cooled/{alpha:g}", strong=alpha == check.cooling)
        for alpha, error in check.cooled.items()
    ]
    for index, one in enumerate(check.tried):
        chosen = _same(one.config, check.chosen)
        place = f"{path}/tried/{index}"
        rows.append(DotRow(named(one.config), one.error, f"{place}/error", "accent", chosen, not one.sound, index == 0))
        if index == 0 or one.config.rule != check.tried[index - 1].config.rule:
            rows.append(DotRow("its chunk alone", one.chunk, f"{place}/chunk", "muted", hollow=True))
    highest = max(e for row in rows for e in (row.estimate.high, row.estimate.value) if e is not None)
    return dots(
        rows, title, (0.0, 1.05 * highest), Style(_plain, _tip, scale=1.0, width=536, left=252), mark=check.base.value
    )


def _same(config: RetrievalConfig, chosen: RetrievalConfig | None) -> bool:
    return chosen is not None and config == chosen


def _plain(value: float | None) -> str:
    return number(value, digits=3)


def _tip(row: DotRow) -> str:
    return f"{row.label}: {_of(row.estimate)}"


def _of(estimate: Estimate, *, signed: bool = False) -> str:
    if estimate.value is None:
        return estimate.reason or "-"
    return (
        f"{number(estimate.value, signed=signed, digits=3)} {interval(estimate.low, estimate.high, digits=3)}".strip()
    )
