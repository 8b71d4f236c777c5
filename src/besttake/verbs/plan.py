"""Compute before a run how many starts and seeds it needs (`besttake plan`)."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path

from besttake.config import Plan, check_worth
from besttake.core import planning
from besttake.core.stats import Forecast
from besttake.errors import PlanError
from besttake.reporting.numbers import count, number, whole_points
from besttake.reporting.table import Table, Tabular, right
from besttake.reporting.words import seeds_advice
from besttake.result import Cell, Result

_PLANNED = ("name", "starts", "seeds", "best_of", "until", "budget", "worth", "workers", "batch", "patience", "on")
"""Keys of the pilot's plan that the new plan sets itself or does not need."""


@dataclass(frozen=True)
class PlanResult:
    """How many starts and takes one policy needs. Proportions are fractions, not points.

    Attributes:
        name: The policy; empty if only pass@1 is known.
        basis: What the numbers were computed from, in words.
        plan: The numbers of starts and takes.
        content_starts: Starts for an interval of +/- ``worth`` on the content gain (retrieve minus cooled).
        tasks: Number of tasks that share the starts.
        flags: Flags of ``besttake diagnose`` that run this plan: the pilot's, with other numbers, and its directory
            if the pilot can be extended.
        further: How many more starts each open question of the pilot's verdict (takes, demonstrations, both) needs.
        available: Number of starts that the pilot's environments have, if known; ``flags`` never ask for more.
    """

    name: str
    basis: str
    plan: planning.SampleSize
    content_starts: int
    tasks: int
    flags: str
    further: dict[str, Forecast] = field(default_factory=dict)
    available: int | None = None

    def needs(self) -> list[tuple[int, int, str]]:
        """Return how many starts and takes are needed, and for what."""
        plan, worth = self.plan, whole_points(self.plan.worth)
        rows = [(plan.half_width_starts, plan.half_width_takes, f"+/- {worth} on the gain of the best of {plan.n}")]
        if not self.further and plan.yes_starts is not None:
            rows.append((plan.yes_starts, plan.yes_starts * plan.seeds, "deciding a gain as large as expected"))
        if not self.further:
            rows.append((plan.no_starts, plan.no_takes, f"ruling out {worth} if there is no gain"))
        content = f"+/- {worth} on retrieval, per arm, at most"
        return [*rows, (self.content_starts, self.content_starts * plan.seeds, content)]


class Plans(list[PlanResult], Tabular):
    """The plans of `besttake.plan`: one per policy of the pilot, or a single one if only pass@1 is known."""

    def to_json(self) -> str:
        """Return all plans as JSON text, in a list."""
        return json.dumps([asdict(plan) for plan in self], indent=1, allow_nan=False)

    def _table(self) -> Table:
        rows = [(plan.name or "any policy", *need) for plan in self for need in plan.needs()]
        return Table(
            "Starts and takes", ("policy", *right("starts", "takes"), "for"), rows, [seeds_advice(self[0].plan)]
        )


def plan(
    *,
    pass1: float | None = None,
    pilot: str | Path | None = None,
    worth: float = 3.0,
    seeds: int | None = None,
    best_of: int | None = None,
) -> Plans:
    """Compute how many starts and takes you need to detect or rule out an effect of ``worth`` points.

    Args:
        pass1: Success rate of the policy, a fraction from 0 to 1. Give this or ``pilot``.
        pilot: Directory of an earlier, small run; gives one plan per policy.
        worth: Smallest effect worth acting on, in percentage points.
        seeds: Takes per start (default: as in the pilot, else 3).
        best_of: Number of takes from which one is picked (default: as in the pilot, else 3; never more than ``seeds``).

    Returns:
        A list with one `PlanResult` per policy. ``.plan`` has the numbers, ``.flags`` the flags that run it.

    Raises:
        PlanError: Neither or both of ``pass1`` and ``pilot`` are given, or a number is out of range.

    Examples:
        >>> besttake.plan(pass1=0.64, worth=3)[0].plan.half_width_starts  # doctest: +SKIP
    """
    if (pass1 is None) == (pilot is None):
        raise PlanError("give either `pass1` (e.g. 0.64) or `pilot`, a run")
    check_worth(worth)
    if seeds is not None and seeds < 2:
        raise PlanError(f"`seeds` {seeds}: selection needs at least 2 takes per start")
    if best_of is not None and best_of < 2:
        raise PlanError(f"`best_of` {best_of}: selection needs at least 2 takes to keep one of")
    goal = _Goal(worth / 100, seeds, best_of)
    if pilot is not None:
        return Plans(_from_pilot(Path(pilot), goal))
    assert pass1 is not None
    if not 0 <= pass1 <= 1:
        hint = f"; did you mean {pass1 / 100:g}?" if 1 < pass1 <= 100 else ""
        raise PlanError(f"`pass1` {pass1:g}: a fraction between 0 and 1{hint}")
    basis = f"pass@1 = {number(pass1, 2)} alone, with the spread between starts that is typical of the paper's policies"
    return Plans([_plan(goal, _Evidence("", basis, planning.v_from_pass1(pass1)))])


@dataclass(frozen=True)
class _Goal:
    """What the planned run must tell: an effect of ``worth``, as a fraction, from the best of ``best_of`` takes."""

    worth: float
    seeds: int | None
    best_of: int | None


@dataclass(frozen=True)
class _Evidence:
    """What is known about a policy: `planning.plan` explains ``v``, ``gain``, ``within_auc`` and ``variance``.

    ``flags``: the pilot's flags of `besttake diagnose`. ``run``: the pilot, if it can be extended, and ``taken``: the
    starts and seeds that it has.
    """

    name: str
    basis: str
    v: float
    gain: float | None = None
    within_auc: float | None = None
    variance: float | None = None
    tasks: int = 1
    further: dict[str, Forecast] = field(default_factory=dict)
    available: int | None = None
    flags: str = "--policy URI --env URI"
    run: Path | None = None
    taken: tuple[int, int] = (0, 0)


def _from_pilot(run: Path, goal: _Goal) -> list[PlanResult]:
    result = Result.load(run / "result.json")
    plans = [_from_cell(run, cell, goal, result) for cell in result.policies]
    usable = [plan for plan in plans if plan is not None]
    if not usable:
        raise PlanError(f"{run} has no policy with two takes per start, so it cannot serve as a pilot; use `pass1`")
    return usable


def _from_cell(run: Path, cell: Cell, goal: _Goal, result: Result) -> PlanResult | None:
    """The plan for one policy of a pilot; None if it has no start with two takes."""
    headroom = cell.headroom
    if headroom is None or cell.seeds < 2 or headroom.curve[1].value is None or headroom.curve[0].value is None:
        return None
    seeds = goal.seeds or cell.seeds
    n = min(headroom.n, seeds) if goal.best_of is None else goal.best_of
    best = cell.selectors.by_n[n - 1] if cell.selectors is not None and n <= len(cell.selectors.by_n) else None
    gain = None
    if best is not None and best.value is not None and headroom.pass_1.value is not None:
        gain = best.value - headroom.pass_1.value if best.value > headroom.pass_1.value else None
    auc = cell.ranking.within.get(cell.scorer, {}).get(cell.window) if cell.ranking else None
    # The pilot's variance and forecasts are valid only for its own numbers of seeds and takes to choose from.
    verdict = cell.verdict if (seeds, n) == (cell.seeds, headroom.n) else None
    picked = verdict.questions.get("gain") if verdict is not None else None
    answers = verdict.answers if verdict is not None and goal.worth == result.worth else {}
    keys = result.plan  # a fixed sample of one policy, with starts from 0, can be extended
    grows = len(keys.get("policy", ())) == 1 and not keys["until"] and str(keys["starts"]).isdigit()
    evidence = _Evidence(
        cell.policy, f"the pilot {run.name}: {count(headroom.starts, 'start')} x {cell.seeds} seeds",
        max(0.0, headroom.curve[1].value - headroom.curve[0].value), gain=gain, within_auc=auc.value if auc else None,
        variance=picked.variance if picked else None, tasks=max(1, len(cell.tasks)),
        further={name: answer.further for name, answer in answers.items() if answer.further is not None},
        available=None if cell.spare is None else cell.starts + cell.spare, flags=_flags_of(result, cell.policy),
        run=run if grows else None, taken=(cell.starts, cell.seeds),
    )  # fmt: skip
    return _plan(replace(goal, seeds=seeds, best_of=n), evidence)


def _flags_of(result: Result, policy: str) -> str:
    """The flags that diagnosed ``policy``, without those of `_PLANNED`; placeholders if it was only recorded."""
    try:
        plan = Plan.model_validate(result.plan)
    except PlanError:
        return _Evidence.flags
    uris = {name: uri for uri, name in plan.names.items()}
    keys = plan.model_dump(mode="json", exclude_defaults=True, exclude={"retrieval", "policy", *_PLANNED})
    keys = {"policy": uris[policy], **keys, **plan.retrieval.given()}
    words: list[str] = []
    for name, value in keys.items():
        repeated = isinstance(value, list) and name not in ("arms", "eef_dims")
        for part in value if repeated else [value]:
            text = ",".join(map(str, part)) if isinstance(part, list) else str(part)
            words += [f"--{name.replace('_', '-')}", *([] if part is True else [text])]
    return shlex.join(words)


def _plan(goal: _Goal, evidence: _Evidence) -> PlanResult:
    seeds = goal.seeds or 3
    n = min(3, seeds) if goal.best_of is None else goal.best_of
    if n > seeds:
        raise PlanError(f"`best_of` {n}: there are only {seeds} seeds per start; raise `seeds`")
    # A pilot without a mixed start has v = 0, which does not show that there is no variance.
    size = planning.plan(
        max(evidence.v, 1e-3), goal.worth, seeds=seeds, n=n, gain=evidence.gain, within_auc=evidence.within_auc,
        sigma2=evidence.variance,
    )  # fmt: skip
    content = planning.starts_for_half_width(planning.content_variance(size.v, seeds), goal.worth)
    more = [forecast.high for forecast in evidence.further.values() if forecast.high]
    settled = evidence.taken[0] + max(more) if more else size.half_width_starts
    per_task = ceil(settled / evidence.tasks)
    if evidence.available is not None:
        per_task = min(per_task, max(1, evidence.available // evidence.tasks))
    flags = f"{evidence.flags} --starts {per_task} --seeds {seeds} --best-of {n}"
    if evidence.run is not None and per_task * evidence.tasks >= evidence.taken[0] and seeds >= evidence.taken[1]:
        flags += f" -o {shlex.quote(str(evidence.run))}"
    return PlanResult(
        evidence.name, evidence.basis, size, content, evidence.tasks, flags, evidence.further, evidence.available
    )
