"""The verdict of a cell in plain words: `core.verdict` decides, this file says it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from besttake import result as r
from besttake.core import verdict
from besttake.core.evidence import Arm, Evidence, gather
from besttake.core.stats import Estimate
from besttake.errors import RunError
from besttake.measure.cells import CellData, Unit


def judge(data: CellData, worth: float, n: int, looked: Sequence[int] = ()) -> r.Verdict:
    """What the policy of a cell needs where one of n takes is kept, by the rule of `besttake.core.verdict`.

    ``looked``: how many starts the cell had whenever it was judged before (`looks_of`).
    """
    now = int(np.isfinite(data.arms["base"].outcomes).any(axis=1).sum())
    looks = verdict.Looks(_as_they_came(data.units), tuple(sorted({count for count in looked if 0 < count < now})))
    decided = verdict.decide(evidence(data, n), worth, looks=looks)
    again = f" Looked at {looks.count} times: a test that holds over all looks decides." if looks.earlier else ""
    findings = (decided.reuse, decided.retrieve, decided.combine)
    reuse, retrieve, combine = (
        r.Finding(
            answer=v.choice, gain=told(v.gain), cost=float(v.cost), further_starts=v.further,
            because=v.sentence + (again if v.choice != "not-measured" else ""),
        )
        for v in findings
    )  # fmt: skip
    return r.Verdict(
        reuse=reuse, retrieve=retrieve, combine=combine, leak=decided.reuse.length_leak,
        headline=headline(decided), looks=sorted({*looked, now}),
    )  # fmt: skip


def looks_of(run: Path) -> dict[str, list[int]]:
    """How many starts each cell of a run had whenever a result was written, by `look_key`; empty for a new run."""
    try:
        result = r.Result.load(run / "result.json")
    except RunError:
        return {}
    return {
        look_key(c.policy, c.env, c.group): c.verdict.looks or [c.headroom.starts]
        for c in (*result.cells, *result.policies)
        if c.verdict is not None and c.headroom is not None
    }


def look_key(policy: str, env: str, group: str) -> str:
    """What a cell is known by from one look to the next; a policy's summary stays the same when envs are added."""
    return " ".join((policy, *([] if group == "*" else [env]), group))


def _as_they_came(units: Sequence[Unit]) -> NDArray[np.int64]:
    """Positions of the starts by index, the tasks of one index shuffled: more starts per task go to the end."""

    def key(i: int) -> tuple[int, bytes]:
        env, task, start = units[i]
        return start, hashlib.sha256(f"{env} {task} {start}".encode()).digest()

    return np.array(sorted(range(len(units)), key=key), dtype=np.int64)


def evidence(data: CellData, n: int) -> Evidence:
    """The per-start values that the verdict rests on, on the leak-free window, one of n takes kept."""
    arms = {name: _arm(data, name) for name in ("base", "cooled", "shuffled", "retrieve") if name in data.arms}
    return gather(
        arms["base"], cooled=arms.get("cooled"), shuffled=arms.get("shuffled"), retrieve=arms.get("retrieve"),
        n=n, leak_free=data.windows[0] != "episode", deterministic=data.deterministic,
    )  # fmt: skip


def _arm(data: CellData, name: str) -> Arm:
    arm = data.arms[name]
    scores = arm.scores[data.kind]
    return Arm(arm.outcomes, scores if np.isfinite(scores).any() else None, arm.lengths)


def headline(decided: verdict.Verdict) -> str:
    """One sentence to read first."""
    parts = []
    reuse, retrieve, combine = decided.reuse, decided.retrieve, decided.combine
    if combine.choice == "yes":
        how = "retrieve or cool" if combine.by_cooling else "retrieve"
        parts.append(
            f"{how}, run {decided.n} takes and keep the best: {_points(combine.gain)} beyond selection alone"
            + (", where retrieving is not shown to beat cooling" if combine.by_cooling else "")
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


def _points(value: Estimate) -> str:
    if value.value is None or value.low is None or value.high is None:
        return "an unknown gain"
    return f"{100 * value.value:+.0f} points [{100 * value.low:.0f}, {100 * value.high:.0f}]"


def _more(further: int | None) -> str:
    return "" if further is None else f" (about {further} more starts would settle it)"
