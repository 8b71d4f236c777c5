"""The paper's tables: its protocols as plans, and its numbers beside those of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from besttake.config import Plan, load_plan
from besttake.errors import PlanError
from besttake.progress import Reporter
from besttake.reporting.checks import sentence
from besttake.reporting.notebook import Table, Tabular
from besttake.result import Cell, Estimate, Result, Selector
from besttake.verbs.compare import CompareResult
from besttake.verbs.compare import compare as compare_runs
from besttake.verbs.diagnose import diagnose

_FOLDER = files("besttake") / "protocols"
_WINDOW = "episode"
"""The window that the paper selects on. Verdicts never rest on it, since it leaks length."""


@dataclass(frozen=True)
class Protocol:
    """One table of the paper: what was run, and the published numbers.

    Attributes:
        name: Name of the table, such as ``table1``.
        title: Its title.
        policies: Names of the policies in the paper.
        envs: Names of the environments in the paper, and the URI that each runs as by default.
        plan: Keys of the plan that reproduces it.
        columns: Names of its columns.
        paper: Published numbers by row, one per column; None where the paper has none. A row is a policy (all its
            environments together), ``policy/env``, or ``all``.
        own_arms: Arms that the paper ran. ``plan`` adds their controls.
        notes: What a plan cannot reproduce.
    """

    name: str
    title: str
    policies: tuple[str, ...]
    envs: Mapping[str, str]
    plan: Mapping[str, Any]
    columns: tuple[str, ...]
    paper: Mapping[str, Sequence[float | None]]
    own_arms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unitless(self) -> tuple[str, ...]:
        """The columns that are neither percent nor points."""
        return tuple(column for column in self.columns if column in _FRACTIONS or column in _OF_RUNS)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "table": self.name, "title": self.title, "plan": self.plan, "envs": self.envs, "columns": self.columns,
            "paper": self.paper,
        }  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """A published number beside that of a run, both in the paper's units; ``here`` has no value if not measured."""

    row: str
    column: str
    paper: float | None
    here: Estimate


@dataclass(frozen=True)
class ReproduceResult(Tabular):
    """The numbers of a table beside those of a run. ``departures`` lists where the run differs from the protocol."""

    protocol: Protocol
    result: Result
    numbers: tuple[Compared, ...]
    departures: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        numbers = [asdict(number) for number in self.numbers]
        return {**self.protocol.to_dict(), "left_protocol": self.departures, "numbers": numbers}

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def _table(self) -> Table:
        rows = [(n.row, n.column, n.paper, n.here.value, n.here.low, n.here.high) for n in self.numbers]
        notes = [f"not as in the paper: {text}" for text in self.departures]
        return Table(self.protocol.title, ("row", "column", "paper", "here", "low", "high"), rows, notes)


def reproduce(
    table: str,
    policies: Mapping[str, str],
    *,
    out: str | Path,
    envs: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
    progress: bool | Reporter = False,
    command: str = "",
) -> ReproduceResult:
    """Run the protocol of a table of the paper with your policies, and set the published numbers beside yours.

    Args:
        table: ``table1`` to ``table7``, ``relation`` or ``fit``.
        policies: The policies to run, as ``{"pi0": "lerobot:org/pi0_libero"}``. Keys are names that the table uses.
        out: The run directory.
        envs: Other URIs for environments of the table, by their names in it. Only these are then run.
        changes: Keys of the plan that differ from the protocol, as ``{"starts": 10}``. The result lists them.
        progress: True shows a progress bar.
        command: The command line to record in the result, if there was one.

    Returns:
        The published and the measured numbers, and in ``departures`` every difference from the paper's protocol.

    Raises:
        PlanError: The table, or a policy or environment of that name, does not exist.
    """
    asked = protocol(table)
    plan, departures = plan_for(asked, policies, envs or {}, changes or {})
    result = diagnose(plan, out, progress=progress, command=command)
    over_cells = compare_runs(out, window=_WINDOW) if "all" in asked.paper else None
    numbers = compare(asked, result, policies, envs or {}, over_cells)
    return ReproduceResult(asked, result, tuple(numbers), (*departures, *library_departures(asked, result)))


def protocols() -> list[str]:
    """The names of the tables that can be reproduced."""
    return sorted(file.name.removesuffix(".yaml") for file in _FOLDER.iterdir() if file.name.endswith(".yaml"))


def protocol(name: str) -> Protocol:
    """The table ``name``; PlanError when there is none."""
    if name not in protocols():
        raise PlanError(f"no table {name!r}; there are {', '.join(protocols())}")
    own = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    like = protocol(own["like"]) if "like" in own else Protocol("", "", (), {}, {}, (), {})
    return Protocol(
        name, own["title"], tuple(own["policies"]), own.get("envs") or like.envs, {**like.plan, **own.get("plan", {})},
        tuple(own["columns"]), own["paper"], tuple(own.get("own_arms", like.own_arms)),
        (*like.notes, *own.get("notes", ())),
    )  # fmt: skip


def plan_for(
    table: Protocol, policies: Mapping[str, str], envs: Mapping[str, str], changes: Mapping[str, Any]
) -> tuple[Plan, list[str]]:
    """The plan that reproduces ``table``, and where it leaves the paper's protocol; the arguments are `reproduce`'s.

    A change that is None is none.
    """
    for kind, given, known in (("policy", policies, table.policies), ("env", envs, table.envs)):
        for name in given:
            if name not in known:
                raise PlanError(f"{table.name} has no {kind} {name!r}; it has {', '.join(known)}")
    chosen = envs or table.envs
    wanted = {name: value for name, value in changes.items() if value is not None}
    flags = {**table.plan, **wanted, "policy": list(policies.values()), "env": list(chosen.values())}
    plan = load_plan(None, flags)
    # The paper retrieves by `next`; which of its variants, and here also which rule, held-out demonstrations choose.
    theirs = {"rule": "next", **table.plan, **table.plan.get("retrieval", {})}
    departures = [
        *(f"{name} is {value}, the paper's {theirs[name]}" for name, value in wanted.items()
          if name in theirs and name != "arms" and str(value) != str(theirs[name])),
        *(f"the arm {arm} is not run" for arm in table.own_arms if arm not in plan.arms),
        *(f"of the tasks only {task} is run" for task in [", ".join(plan.task)] if task),
        *(f"{name} runs in {uri}" for name, uri in chosen.items() if uri != table.envs[name]),
        *(f"{name} is not run" for name in (*table.policies, *table.envs) if name not in {**policies, **chosen}),
        *table.notes,
    ]  # fmt: skip
    return plan, departures


def library_departures(table: Protocol, result: Result) -> list[str]:
    """Where the library of a run is not the paper's: how many demonstrations it has of a task, and its tuning."""
    library, each = result.library, int(table.plan.get("demos_per_task", 0))
    if library is None:
        return ["there is no library, so nothing was scored or retrieved"]
    wanted = {line.task for cell in result.cells for line in cell.tasks}
    counts = sorted({n for task, n in library.get("tasks", {}).items() if task in wanted} or {library.get("demos", 0)})
    texts = []
    if each and counts != [each]:
        has = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        texts.append(f"the library has {has} demonstrations of a task, the paper's {each}")
    if "retrieve" in result.plan.get("arms", ()):
        tuned = (library.get("retrieval") or {}).get("config")
        settings = ", ".join(f"{name} {value}" for name, value in (tuned or {}).items())
        how = f"retrieval is as tuned in this library ({settings}) where the plan says nothing else" if tuned else (
            "retrieval is not tuned; the paper's settings were chosen on held-out demonstrations (library tune)"
        )  # fmt: skip
        texts += [f"{uri}: {sentence(check)}" for uri, check in result.checks.items()] if result.checks else [how]
    return texts


def compare(
    table: Protocol, result: Result, policies: Mapping[str, str], envs: Mapping[str, str],
    over_cells: CompareResult | None = None,
) -> list[Compared]:  # fmt: skip
    """Each number of ``table`` beside that of ``result``, for the rows whose policies were run.

    ``over_cells`` is the relation over the cells of the run, read on the paper's window, for a row called ``all``.
    """
    uris, compared = {**table.envs, **envs}, []
    for row, numbers in table.paper.items():
        policy, _, env = row.partition("/")
        if row == "all" and over_cells is None:
            continue
        if row == "all":
            here = [_OF_RUNS[column](over_cells) for column in table.columns]
        elif policy in policies:
            cell = _cell(result, policies[policy], uris[env] if env else None)
            here = [_read(cell, column) for column in table.columns]
        else:
            continue
        compared += [Compared(row, *three) for three in zip(table.columns, numbers, here, strict=True)]
    return compared


def _cell(result: Result, policy: str, env: str | None) -> Cell | None:
    """The cell of a policy in an env, or without one its summary over all envs."""
    cells = result.policies if env is None else [cell for cell in result.cells if cell.env == env]
    own = [cell for cell in cells if cell.policy == policy]
    return own[0] if len(own) == 1 else None


def _read(cell: Cell | None, column: str) -> Estimate:
    """The number of a cell in the paper's units: percent or points, but for fractions."""
    try:
        estimate = _FRACTIONS[column](cell) if column in _FRACTIONS else _PERCENT[column](cell)
    except (AttributeError, KeyError, IndexError):  # what was not measured is not there
        estimate = None
    if estimate is None:
        return Estimate(reason="not measured")
    if column in _FRACTIONS or estimate.value is None:
        return estimate
    value, low, high = (None if x is None else 100 * x for x in (estimate.value, estimate.low, estimate.high))
    return replace(estimate, value=value, low=low, high=high)


def _selected(cell: Any) -> Selector:
    selector: Selector = cell.selectors.scored["manifold"][_WINDOW]
    return selector


def _picked(cell: Any, arm: str, n: int = 0) -> Estimate:
    """Success of keeping the best of ``n`` takes of an arm; of all where it is 0."""
    return Estimate(cell.arms.arms[arm].picked[_WINDOW][n - 1])


def _combine(cell: Any) -> Estimate | None:
    both, alone = _picked(cell, "retrieve").value, _picked(cell, "base").value
    return None if both is None or alone is None else Estimate(both - alone)


def _extreme(estimates: Mapping[str, Estimate | None], of: Callable[[list[float]], float]) -> Estimate:
    """The lowest or highest of several correlations, without an interval."""
    known = [one.value for one in estimates.values() if one is not None and one.value is not None]
    return Estimate(of(known)) if known else Estimate(reason="not measured")


_PERCENT: dict[str, Callable[[Any], Estimate | None]] = {
    "pass@1": lambda cell: cell.headroom.pass_1,
    "pass@N": lambda cell: cell.headroom.pass_n,
    "random": lambda cell: cell.selectors.random.success,
    "select": lambda cell: _selected(cell).success,
    "select gain": lambda cell: _selected(cell).gain,
    "select of 2": lambda cell: _picked(cell, "base", 2),
    "retrieve": lambda cell: cell.arms.arms["retrieve"].pass_1,
    "retrieve gain": lambda cell: cell.arms.arms["retrieve"].gain,
    "sd over seeds": lambda cell: Estimate(cell.arms.arms["retrieve"].gain_seed_sd),
    "retrieve + select": lambda cell: _picked(cell, "retrieve"),
    "combine": _combine,
    "retrieve pass@N": lambda cell: cell.arms.arms["retrieve"].pass_n,
    "rerank": lambda cell: cell.arms.arms["rerank"].pass_1,
}
_FRACTIONS: dict[str, Callable[[Any], Estimate | None]] = {
    "DFE": lambda cell: cell.dfe.mean_square,
    "DFE as a norm": lambda cell: cell.dfe.dfe,
    "first action r": lambda cell: cell.dfe.correlation,
}
_OF_RUNS: dict[str, Callable[[Any], Estimate]] = {
    "r": lambda runs: _with_interval(runs.result.relation.r, runs.result.relation.ci_nested),
    "Spearman": lambda runs: runs.result.relation.spearman or Estimate(reason="not measured"),
    "r on disjoint halves": lambda runs: Estimate(runs.result.relation.disjoint.mean),
    "lowest r within a policy": lambda runs: _extreme(runs.result.relation.within, min),
    "highest r within a policy": lambda runs: _extreme(runs.result.relation.within, max),
    "lowest r without a policy": lambda runs: _extreme(runs.result.relation.leave_one_out, min),
    "highest r without a policy": lambda runs: _extreme(runs.result.relation.leave_one_out, max),
    "r with retrieval's gain": lambda runs: runs.across.retrieval,
    "pooled AUC": lambda runs: runs.across.auc,
    "capture": lambda runs: Estimate(runs.across.captures.mean),
    "sd of capture": lambda runs: Estimate(runs.across.captures.sd),
    "lowest capture": lambda runs: Estimate(runs.across.captures.low),
    "highest capture": lambda runs: Estimate(runs.across.captures.high),
}


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> Estimate:
    return Estimate(value, *(interval or (None, None)))
