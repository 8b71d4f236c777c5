"""The check of retrieval as people read it: the names of configurations, a sentence and a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from besttake.core.offline import GAIN, simplest
from besttake.core.stats import Estimate
from besttake.reporting.drawing import DotRow, Style, dots
from besttake.reporting.numbers import estimate_plain, interval, number

if TYPE_CHECKING:
    from besttake.core.offline import Check
    from besttake.core.retrieve import RetrievalConfig
    from besttake.reporting.drawing import Figure

VARIANTS = {
    "onset_alignment": "onset", "rerank": "re-ranking", "gripper_gating": "gripper gating",
    "reliability": "reliability",
}  # fmt: skip
LEGEND = (
    "Errors of one sample at demonstrated states, own demonstration left out, in action standard deviations. Added:"
    " against cooling at the same noise. Reach: how far the chunk moves the sample, over the policy's own spread."
)


def named(config: RetrievalConfig, *, prior: bool = True) -> str:
    """A configuration in short, without its noise: ``frame, prior 0.2, re-ranking``."""
    extra = [text for name, text in VARIANTS.items() if getattr(config, name)]
    extra += [f"lead {config.lead}"] if config.rule == "next" and config.lead != 1 else []
    extra += [f"turns of {config.angle:g}°"] if config.angle is not None else []
    extra += ["weights " + "/".join(f"{w:g}" for w in config.weights)] if len(set(config.weights)) > 1 else []
    return ", ".join([config.rule, *([f"prior {config.prior:g}"] if prior else []), *extra])


def sentence(check: Check) -> str:
    """What the check says, in one line."""
    if check.reason:
        return f"retrieval could not be checked on held-out demonstrations: {check.reason}"
    calm = f"at held-out demonstrations noise {check.noise:g} {'does best' if len(check.cooled) > 1 else 'was tried'}"
    if not check.tried:
        return calm
    at = "the error of a sample at that noise by"
    if not check.helps:
        return f"{calm}, and no retrieved actions are shown to lower {at} {GAIN:g} or more"
    best = check.best or simplest(check.tried)
    where = {name: group for name, group in check.groups.items() if group.prior}
    without = [name for name in check.groups if name not in where]
    if not without and len({group.prior for group in where.values()} | {best.config.prior}) == 1:
        how = f"retrieved actions ({named(best.config)}) lower {at} {_lower(best.added)}"
        return f"{calm}, and {how}: expect a gain over cooling"
    parts = [f"{_lower(group.added)} in {name} (prior {group.prior:g})" for name, group in where.items()]
    how = f"retrieved actions ({named(best.config, prior=False)}) lower {at} {', '.join(parts)}"
    return f"{calm}, and {how}: expect a gain over cooling there{', none in ' if without else ''}{', '.join(without)}"


def _lower(added: Estimate) -> str:
    value, low, high = (None if end is None else -end for end in (added.value, added.high, added.low))
    return estimate_plain(Estimate(value, low, high))


def figure(check: Check, path: str, title: str) -> Figure | None:
    """The error of one sample: mean action, base, cooled, and every configuration with its interval."""
    if check.reason or check.base.value is None:
        return None
    rows = [
        DotRow("mean action", check.mean_action, f"{path}/mean_action", "muted"),
        DotRow("base", check.base, f"{path}/base"),
    ]
    rows += [
        DotRow(f"noise {noise:g}", error, f"{path}/cooled/{noise:g}", strong=noise == check.noise)
        for noise, error in check.cooled.items()
        if noise != 1
    ]
    for index, one in enumerate(check.tried):
        chosen = one.config == check.chosen
        place = f"{path}/tried/{index}"
        rows.append(DotRow(named(one.config), one.error, f"{place}/error", "accent", chosen, not one.helps, index == 0))
        if index == 0 or one.config.rule != check.tried[index - 1].config.rule:
            rows.append(DotRow("its chunk alone", one.chunk, f"{place}/chunk", "muted", hollow=True))
    highest = max(e for row in rows for e in (row.estimate.high, row.estimate.value) if e is not None)
    return dots(
        rows, title, (0.0, 1.05 * highest), Style(_plain, _tip, scale=1.0, width=536, left=252), mark=check.base.value
    )


def _plain(value: float | None) -> str:
    return number(value, digits=3)


def _tip(row: DotRow) -> str:
    if row.estimate.value is None:
        return f"{row.label}: {row.estimate.reason or '-'}"
    span = interval(row.estimate.low, row.estimate.high, digits=3)
    return f"{row.label}: {_plain(row.estimate.value)} {span}".strip()
