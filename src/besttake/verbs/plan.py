"""Before running: how many starts and seeds settle the question (`besttake plan`)."""

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
"""Keys of a plan that another plan need not take over."""


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
            where its takes can be kept.
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
        return json.dumps([asdict(each) for each in self], indent=1, allow_nan=False)

    def _table(self) -> Table:
        rows = [(each.name or "any policy", *need) for each in self for need in each.needs()]
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
        raise PlanError("say what is known: either `pass1` (e.g. 0.64) or `pilot`, a run")
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
    typical, _ = planning.v_from_pass1(pass1)
    basis = f"pass@1 = {number(pass1, 2)} alone, with the spread between starts that is typical of the paper's policies"
    return Plans([_plan(goal, _Known("", basis, typical))])


@dataclass(frozen=True)
class _Goal:
    """What is to be found out; effects are fractions, not points."""

    worth: float
    seeds: int | None
    best_of: int | None


@dataclass(frozen=True)
class _Known:
    """What is known of one policy: ``v`` and, from a pilot of the same seeds and choice, its own ``variance``."""

    name: str
    basis: str
    v: float
    gain: float | None = None
    within_auc: float | None = None
    variance: float | None = None
    tasks: int = 1
    further: dict[str, Forecast] = field(default_factory=dict)
    available: int | None = None
    asked: str = "--policy URI --env URI"
    run: Path | None = None
    taken: tuple[int, int] = (0, 0)
    """The pilot, if it can be given more takes, and the starts and seeds that it has already."""


def _from_pilot(run: Path, goal: _Goal) -> list[PlanResult]:
    result = Result.load(run / "result.json")
    plans = [_from_cell(run, cell, goal, result) for cell in result.policies]
    usable = [plan for plan in plans if plan is not None]
    if not usable:
        raise PlanError(f"{run} has no policy with two takes per start, so it cannot serve as a pilot; use `pass1`")
    return usable


def _from_cell(run: Path, cell: Cell, goal: _Goal, result: Result) -> PlanResult | None:
    """The plan for one policy of a pilot; None where it has no two takes per start."""
    headroom = cell.headroom
    if headroom is None or cell.seeds < 2 or headroom.curve[1].value is None or headroom.curve[0].value is None:
        return None
    seeds = goal.seeds or cell.seeds
    n = min(headroom.n, seeds) if goal.best_of is None else goal.best_of
    kept = cell.selectors.by_n[n - 1] if cell.selectors is not None and n <= len(cell.selectors.by_n) else None
    gain = None
    if kept is not None and kept.value is not None and headroom.pass_1.value is not None:
        gain = kept.value - headroom.pass_1.value if kept.value > headroom.pass_1.value else None
    auc = cell.ranking.within.get(cell.scorer, {}).get(cell.window) if cell.ranking else None
    # The pilot's own variance and further starts hold for takes and choices as it made them.
    same = cell.verdict if (seeds, n) == (cell.seeds, headroom.n) else None
    picked = same.questions.get("gain") if same is not None else None
    further = {name: one.further for name, one in same.answers.items()} if same and goal.worth == result.worth else {}
    asked = result.plan  # one with starts from 0 and no other policy goes on in its run
    grows = len(asked.get("policy", ())) == 1 and not asked["until"] and str(asked["starts"]).isdigit()
    known = _Known(
        cell.policy, f"the pilot {run.name}: {count(headroom.starts, 'start')} x {cell.seeds} seeds",
        max(0.0, headroom.curve[1].value - headroom.curve[0].value), gain=gain, within_auc=auc.value if auc else None,
        variance=picked.variance if picked else None, tasks=max(1, len(cell.tasks)),
        further={part: forecast for part, forecast in further.items() if forecast is not None},
        available=None if cell.spare is None else cell.starts + cell.spare, asked=_flags_of(result, cell.policy),
        run=run if grows else None, taken=(cell.starts, cell.seeds),
    )  # fmt: skip
    return _plan(replace(goal, seeds=seeds, best_of=n), known)


def _flags_of(result: Result, policy: str) -> str:
    """The flags by which ``policy`` was diagnosed, less those that a plan is about; of recordings, what is to name."""
    try:
        asked = Plan.model_validate(result.plan)
    except PlanError:
        return _Known.asked
    uris = {name: uri for uri, name in asked.names.items()}
    given = asked.model_dump(mode="json", exclude_defaults=True, exclude={"retrieval", "policy", *_PLANNED})
    given = {"policy": uris[policy], **given, **asked.retrieval.given()}
    joined = {"arms", "eef_dims"}
    words: list[str] = []
    for name, value in given.items():
        several = value if isinstance(value, list) and name not in joined else [value]
        for one in several:
            text = ",".join(map(str, one)) if isinstance(one, list) else str(one)
            words += [f"--{name.replace('_', '-')}", *([] if one is True else [text])]
    return shlex.join(words)


def _plan(goal: _Goal, known: _Known) -> PlanResult:
    seeds = goal.seeds or 3
    n = min(3, seeds) if goal.best_of is None else goal.best_of
    if n > seeds:
        raise PlanError(f"`best_of` {n}: there are {seeds} seeds per start to keep one of; raise `seeds`")
    # A pilot without a mixed start shows no variance, which is not the same as there being none.
    likely = planning.plan(
        max(known.v, 1e-3), goal.worth, seeds=seeds, n=n, gain=known.gain, within_auc=known.within_auc,
        sigma2=known.variance,
    )  # fmt: skip
    content = planning.starts_for_half_width(planning.content_variance(likely.v, seeds), goal.worth)
    more = [forecast.high for forecast in known.further.values() if forecast.high]
    settled = known.taken[0] + max(more) if more else likely.half_width_starts
    per_task = ceil(settled / known.tasks)
    if known.available is not None:
        per_task = min(per_task, max(1, known.available // known.tasks))
    flags = f"{known.asked} --starts {per_task} --seeds {seeds} --best-of {n}"
    if known.run is not None and per_task * known.tasks >= known.taken[0] and seeds >= known.taken[1]:
        flags += f" -o {shlex.quote(str(known.run))}"
    return PlanResult(known.name, known.basis, likely, content, known.tasks, flags, known.further, known.available)
