"""Before running: how many starts and seeds settle the question, or what a budget can show (`besttake plan`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path

from besttake.core import planning
from besttake.errors import PlanError
from besttake.reporting.notebook import Table, Tabular
from besttake.reporting.numbers import count, number
from besttake.result import Result


@dataclass(frozen=True)
class PlanResult:
    """What it takes, for one policy. ``basis`` says what it was worked out from; proportions are fractions.

    ``cautious`` is the same plan for the largest variance that pass@1 allows, where only pass@1 is known; ``flags``
    are those of `besttake diagnose` that run it, with the starts shared by ``tasks`` tasks.
    """

    name: str
    basis: str
    plan: planning.Plan
    cautious: planning.Plan | None
    content_starts: int
    tasks: int
    flags: str

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)


class Plans(list[PlanResult], Tabular):
    """One plan per policy of the pilot; a single one where only pass@1 is known."""

    def _table(self) -> Table:
        rows = [
            (p.name or "any policy", p.plan.seeds, p.plan.half_width_starts, p.plan.half_width_takes, p.plan.no_takes)
            for p in self
        ]
        columns = ("policy", "seeds", "starts", "takes", "takes to rule a gain out")
        points = f"{100 * self[0].plan.worth:g} points"
        return Table(f"Starts and takes for an interval of +/- {points}", columns, rows, [p.plan.advice for p in self])


def plan(
    *,
    pass1: float | None = None,
    pilot: str | Path | None = None,
    worth: float = 3.0,
    seeds: int | None = None,
    best_of: int | None = None,
    gain: float | None = None,
    budget: int | None = None,
) -> Plans:
    """Starts and takes for a question about ``worth`` points, from ``pass1`` (a fraction) or a pilot run.

    ``gain``: the gain one hopes for, in points; ``budget``: takes that can be afforded, for the smallest effect they
    show; ``seeds``: takes per start (those of the pilot, else 3); ``best_of``: of so many takes one is kept (as in the
    pilot; else 3, or all of fewer seeds). A pilot gives one plan per policy.
    """
    if (pass1 is None) == (pilot is None):
        raise PlanError("say what is known: either --pass1 (e.g. 0.64) or --pilot RUN")
    if not 0 < worth < 100:
        raise PlanError(f"--worth {worth:g}: points between 0 and 100, e.g. 3")
    if seeds is not None and seeds < 2:
        raise PlanError(f"--seeds {seeds}: selection needs at least 2 takes per start")
    if best_of is not None and best_of < 2:
        raise PlanError(f"--best-of {best_of}: selection needs at least 2 takes to keep one of")
    if gain is not None and not 0 < gain <= 100:
        raise PlanError(f"--gain {gain:g}: points above 0")
    if budget is not None and budget < 1:
        raise PlanError(f"--budget {budget}: at least one take")
    if pilot is not None:
        return Plans(_from_pilot(Path(pilot), worth / 100, seeds, best_of, gain, budget))
    assert pass1 is not None
    if not 0 <= pass1 <= 1:
        hint = f"; did you mean {pass1 / 100:g}?" if 1 < pass1 <= 100 else ""
        raise PlanError(f"--pass1 {pass1:g}: a fraction between 0 and 1{hint}")
    n = seeds or 3
    typical, largest = planning.v_from_pass1(pass1)
    basis = f"pass@1 = {number(pass1, 2)} alone, with the spread between starts that is typical of the paper's policies"
    return Plans([_plan("", basis, typical, worth / 100, n, best_of, gain, budget, largest=largest)])


def _from_pilot(
    run: Path, worth: float, seeds: int | None, best_of: int | None, gain: float | None, budget: int | None
) -> list[PlanResult]:
    result = Result.load(run / "result.json")
    found = []
    for cell in result.policies:
        room = cell.headroom
        if room is None or cell.seeds < 2 or room.curve[1].value is None or room.curve[0].value is None:
            continue
        v = max(0.0, room.curve[1].value - room.curve[0].value)
        n = min(room.n, seeds or cell.seeds) if best_of is None else best_of
        ways = cell.selectors.by_n if cell.selectors is not None else []
        kept = ways[n - 1] if n <= len(ways) else None
        seen = (
            kept.value - room.pass_1.value
            if kept and kept.value is not None and room.pass_1.value is not None
            else None
        )
        auc = cell.ranking.within.get(cell.scorer, {}).get(cell.window) if cell.ranking else None
        hoped = gain if gain is not None else 100 * seen if seen is not None and seen > 0 else None
        basis = f"the pilot {run.name}: {count(room.starts, 'start')} x {cell.seeds} seeds"
        found.append(
            _plan(
                cell.policy, basis, v, worth, seeds or cell.seeds, n, hoped, budget,
                within_auc=auc.value if auc else None, tasks=len(cell.tasks),
            )
        )  # fmt: skip
    if not found:
        raise PlanError(f"{run} has no policy with two takes per start, so it cannot serve as a pilot; use --pass1")
    return found


def _plan(
    name: str,
    basis: str,
    v: float,
    worth: float,
    seeds: int,
    best_of: int | None,
    gain: float | None,
    budget: int | None,
    *,
    largest: float | None = None,
    within_auc: float | None = None,
    tasks: int = 1,
) -> PlanResult:
    n = min(3, seeds) if best_of is None else best_of
    if n > seeds:
        raise PlanError(f"--best-of {n}: there are {seeds} seeds per start to keep one of; raise --seeds")
    # A pilot without a mixed start shows no variance, which is not the same as there being none.
    v = max(v, 1e-3)
    starts = None if budget is None else max(1, budget // seeds)

    def made(spread: float) -> planning.Plan:
        hoped = None if gain is None else gain / 100
        return planning.plan(spread, worth, seeds=seeds, n=n, gain=hoped, starts=starts, within_auc=within_auc)

    content = planning.starts_for_half_width(planning.content_variance(v, seeds), worth)
    likely, cautious = made(v), None if largest is None else made(max(largest, 1e-3))
    per_task = ceil((starts or likely.half_width_starts) / max(1, tasks))
    flags = f"--starts {per_task} --seeds {seeds} --best-of {n}"
    return PlanResult(name, basis, likely, cautious, content, max(1, tasks), flags)
