"""The verdict of a cell in plain words: `core.verdict` decides, this file says it."""

from __future__ import annotations

import numpy as np

from besttake import result as r
from besttake.cells import CellData, start_means, start_picked
from besttake.core import select, verdict
from besttake.core.headroom import F64, start_headroom
from besttake.core.stats import Estimate


def judge(data: CellData, worth: float) -> r.Verdict:
    """What the policy of a cell needs, by the rule of `besttake.core.verdict`."""
    decided = verdict.decide(evidence(data), worth)
    findings = (decided.reuse, decided.retrieve, decided.combine)
    reuse, retrieve, combine = (
        r.Finding(answer=v.choice, gain=told(v.gain), cost=float(v.cost), further_starts=v.further, because=v.sentence)
        for v in findings
    )
    return r.Verdict(
        reuse=reuse, retrieve=retrieve, combine=combine, leak=decided.reuse.length_leak,
        headline=headline(decided),
    )  # fmt: skip


def evidence(data: CellData) -> verdict.Evidence:
    """The per-start values that the verdict rests on."""
    base = data.arms["base"]
    seeds = base.outcomes.shape[1]
    ones, cooled, retrieved = (start_means(data, arm) for arm in ("base", "cooled", "retrieve"))
    picked, picked_retrieved = start_picked(data, "base"), start_picked(data, "retrieve")
    return verdict.Evidence(
        headroom=start_headroom(base.outcomes),
        gain=_measured(picked - ones),
        shortest=select.start_gain(base.outcomes, -base.lengths),
        retrieve=_measured(retrieved - ones),
        cooled=_measured(cooled - ones),
        content=_measured(retrieved - cooled),
        beyond_shuffled=_measured(retrieved - start_means(data, "shuffled")),
        combine=_measured(picked_retrieved - picked),
        retrieve_selection=_measured(picked_retrieved - retrieved),
        n=seeds,
        leak_free=data.windows[0] != "episode",
        deterministic=data.deterministic or seeds == 1,
    )


def headline(decided: verdict.Verdict) -> str:
    """One sentence to read first."""
    parts = []
    reuse, retrieve, combine = decided.reuse, decided.retrieve, decided.combine
    if combine.choice == "yes":
        parts.append(
            f"retrieve, run {decided.n} takes and keep the best: {_points(combine.gain)} beyond selection alone"
        )
    elif reuse.choice == "select":
        parts.append(f"run {decided.n} takes and keep the best: {_points(reuse.gain)}, {decided.n}x the executions")
    elif reuse.choice == "unranked":
        parts.append(f"more takes hold {_points(reuse.findings['headroom'].estimate)}, but the score cannot find them")
    elif reuse.choice == "undecided":
        parts.append(f"whether to run more takes is undecided{_more(reuse.further)}")
    if retrieve.choice == "retrieve" and combine.choice != "yes":
        parts.append(f"retrieve demonstrations: {_points(retrieve.gain)}")
    elif retrieve.choice == "cool":
        parts.append(f"cool the sampling: {_points(retrieve.gain)}, at no cost")
    elif retrieve.choice == "undecided":
        parts.append(f"whether to retrieve or cool is undecided{_more(retrieve.further)}")
    if not parts:
        return "Leave it as it is: neither more takes, nor retrieval, nor calmer sampling is worth it."
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def told(value: Estimate) -> r.Estimate:
    """A core estimate in the result's words."""
    return r.Estimate(value=value.value, low=value.low, high=value.high, n=value.n, reason=value.reason)


def _measured(values: F64) -> F64 | None:
    return None if bool(np.isnan(values).all()) else values


def _points(value: Estimate) -> str:
    if value.value is None or value.low is None or value.high is None:
        return "an unknown gain"
    return f"{100 * value.value:+.0f} points [{100 * value.low:.0f}, {100 * value.high:.0f}]"


def _more(further: int | None) -> str:
    return "" if further is None else f" (about {further} more starts would settle it)"
