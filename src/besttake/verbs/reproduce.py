"""The paper's tables: its protocols as plans, and its numbers beside those of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from besttake.config import Plan, load_plan
from besttake.core import relation
from besttake.errors import PlanError
from besttake.progress import Reporter
from besttake.result import Cell, Estimate, Result, Selector
from besttake.verbs.diagnose import diagnose

_PAPERS = "episode"
"""The window that the paper selects on. Verdicts never rest on it, since it leaks length."""
_ENOUGH_CELLS = 8
"""Below so many cells an interval that resamples them is too short."""


@dataclass(frozen=True)
class Protocol:
    """One table of the paper.

    ``policies`` and ``envs`` are its names; an env has the URI that it is run as by default. ``plan`` are the keys of
    its plan. A row of ``paper`` is a policy (all its envs together), ``policy/env``, or ``all``; its numbers follow
    ``columns``, None where the paper has none. ``notes`` say what no plan can take over from the paper.
    """

    name: str
    title: str
    policies: tuple[str, ...]
    envs: Mapping[str, str]
    plan: Mapping[str, Any]
    columns: tuple[str, ...]
    paper: Mapping[str, Sequence[float | None]]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "table": self.name, "title": self.title, "plan": dict(self.plan), "envs": dict(self.envs),
            "columns": list(self.columns), "paper": {row: list(numbers) for row, numbers in self.paper.items()},
        }  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """One number of the paper and the same of a run, in the paper's units; ``here`` has no value if not measured."""

    row: str
    column: str
    paper: float | None
    here: Estimate


@dataclass(frozen=True)
class ReproduceResult:
    """The numbers of a table beside those of a run. ``departures`` says where the run leaves the paper's protocol."""

    protocol: Protocol
    result: Result
    numbers: tuple[Compared, ...]
    departures: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        numbers = [{"row": n.row, "column": n.column, "paper": n.paper, "here": asdict(n.here)}
                   for n in self.numbers]  # fmt: skip
        return {**self.protocol.to_dict(), "left_protocol": list(self.departures), "numbers": numbers}


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
    """Run the protocol of ``table`` with ``policies`` (the paper's name -> URI) in run directory ``out``.

    ``envs`` names other URIs for the table's envs, and then only those are run. ``changes`` are keys of the plan that
    differ from the protocol's, e.g. ``{"starts": 10}``; the result tells each.
    """
    asked = protocol(table)
    plan, departures = plan_for(asked, policies, envs or {}, changes or {})
    result = diagnose(plan, out, progress=progress, command=command)
    numbers = compare(asked, result, policies, envs or {})
    return ReproduceResult(asked, result, tuple(numbers), tuple(departures))


def protocols() -> list[str]:
    """The names of the tables that can be reproduced."""
    return sorted(file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.name.endswith(".yaml"))


def protocol(name: str) -> Protocol:
    """The table ``name``; PlanError when there is none."""
    if name not in protocols():
        raise PlanError(f"no table {name!r}; there are {', '.join(protocols())}")
    own = yaml.safe_load((_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    like = protocol(own["like"]) if "like" in own else None
    return Protocol(
        name=name,
        title=own["title"],
        policies=tuple(own["policies"]),
        envs=own.get("envs") or (like.envs if like else {}),
        plan={**(like.plan if like else {}), **own.get("plan", {})},
        columns=tuple(own["columns"]),
        paper=own["paper"],
        notes=(*(like.notes if like else ()), *own.get("notes", ())),
    )


def plan_for(
    table: Protocol, policies: Mapping[str, str], envs: Mapping[str, str], changes: Mapping[str, Any]
) -> tuple[Plan, list[str]]:
    """The plan that reproduces ``table`` with ``policies`` (name -> URI), and where it leaves the paper's protocol.

    ``envs`` names other URIs for the table's envs; once one is named, only those that are named are run. ``changes``
    are keys of the plan that differ from the protocol where they are not None.
    """
    _known(policies, table.policies, f"{table.name} has no policy")
    _known(envs, tuple(table.envs), f"{table.name} has no env")
    chosen = envs or table.envs
    wanted = {name: value for name, value in changes.items() if value is not None}
    flags = {**table.plan, **wanted, "policy": list(policies.values()), "env": list(chosen.values())}
    departures = [f"{name} is {value}, the paper's {table.plan[name]}" for name, value in wanted.items()
            if name in table.plan and str(value) != str(table.plan[name])]  # fmt: skip
    departures += [f"{name} runs in {uri}" for name, uri in chosen.items() if uri != table.envs[name]]
    departures += [
        f"{name} is not run" for name in (*table.policies, *table.envs) if name not in {**policies, **chosen}
    ]
    departures += table.notes
    return load_plan(None, flags), departures


def compare(table: Protocol, result: Result, policies: Mapping[str, str], envs: Mapping[str, str]) -> list[Compared]:
    """Each number of ``table`` beside that of ``result``, for the rows whose policies were run."""
    uris = {**table.envs, **envs}
    compared = []
    for row, numbers in table.paper.items():
        policy, _, env = row.partition("/")
        if row != "all" and policy not in policies:
            continue
        for column, number in zip(table.columns, numbers, strict=True):
            if row == "all":
                here = _OF_RUNS[column](result)
            else:
                cell = _cell(result, policies[policy], uris[env] if env else None)
                here = _read(cell, column)
            compared.append(Compared(row, column, number, here))
    return compared


def _folder() -> Any:
    return files("besttake") / "protocols"


def _known(given: Mapping[str, str], known: Sequence[str], words: str) -> None:
    for name in given:
        if name not in known:
            raise PlanError(f"{words} {name!r}; it has {', '.join(known)}")


def _cell(result: Result, policy: str, env: str | None) -> Cell | None:
    """The cell of a policy in an env, or without one its summary over all envs."""
    if env is None:
        return next((cell for cell in result.policies if cell.policy == policy), None)
    own = [cell for cell in result.cells if (cell.policy, cell.env) == (policy, env)]
    return own[0] if len(own) == 1 else None


def _read(cell: Cell | None, column: str) -> Estimate:
    try:
        estimate = None if cell is None else _OF_CELLS[column](cell)
    except (AttributeError, KeyError, IndexError):  # what was not measured is not there
        estimate = None
    return estimate if estimate is not None else Estimate(reason="not measured")


def _scaled(of: Callable[[Any], Estimate | None]) -> Callable[[Cell], Estimate | None]:
    """In percent or points, as the paper prints."""

    def read(cell: Cell) -> Estimate | None:
        own = of(cell)
        if own is None or own.value is None:
            return own
        value, low, high = (None if x is None else 100 * x for x in (own.value, own.low, own.high))
        return replace(own, value=value, low=low, high=high)

    return read


def _selected(cell: Any) -> Selector:
    selector: Selector = cell.selectors.scored["manifold"][_PAPERS]
    return selector


def _picked(cell: Any, arm: str, n: int = 0) -> Estimate:
    """Success of keeping the best of ``n`` takes of an arm; of all where it is 0."""
    return _plain(cell.arms.arms[arm].picked[_PAPERS][n - 1])


def _combine(cell: Any) -> Estimate | None:
    both, alone = _picked(cell, "retrieve").value, _picked(cell, "base").value
    return None if both is None or alone is None else _plain(both - alone)


def _over_cells(result: Result, correlate: Callable[..., Any]) -> Estimate:
    """A correlation of gain and headroom over cells, as the paper's; with an interval where there are cells enough."""
    pairs = [(cell.headroom.headroom.value, _selected(cell).gain.value) for cell in result.cells
             if cell.headroom is not None and cell.selectors is not None]  # fmt: skip
    known = [pair for pair in pairs if None not in pair]
    r = correlate([x for x, _ in known], [y for _, y in known])
    enough = len(known) >= _ENOUGH_CELLS
    return Estimate(value=r.value, low=r.low if enough else None, high=r.high if enough else None)


def _captures(result: Result, of: Callable[[list[float]], Any]) -> float | None:
    cells = [_selected(cell).capture.value for cell in result.cells if cell.selectors is not None]
    known = [value for value in cells if value is not None]
    return float(of(known)) if len(known) > 1 else None


def _plain(value: float | None) -> Estimate:
    return Estimate(value=value)


_OF_CELLS: dict[str, Callable[[Any], Estimate | None]] = {
    "pass@1": _scaled(lambda cell: cell.headroom.pass_1),
    "pass@N": _scaled(lambda cell: cell.headroom.pass_n),
    "random": _scaled(lambda cell: cell.selectors.random.success),
    "select": _scaled(lambda cell: _selected(cell).success),
    "select gain": _scaled(lambda cell: _selected(cell).gain),
    "select of 2": _scaled(lambda cell: _picked(cell, "base", 2)),
    "retrieve": _scaled(lambda cell: cell.arms.arms["retrieve"].pass_1),
    "retrieve gain": _scaled(lambda cell: cell.arms.arms["retrieve"].gain),
    "sd over seeds": _scaled(lambda cell: _plain(cell.arms.arms["retrieve"].gain_seed_sd)),
    "retrieve + select": _scaled(lambda cell: _picked(cell, "retrieve")),
    "combine": _scaled(_combine),
    "rerank": _scaled(lambda cell: cell.arms.arms["rerank"].pass_1),
    "DFE": lambda cell: cell.dfe.dfe,
    "first action r": lambda cell: cell.dfe.correlation,
}

_OF_RUNS: dict[str, Callable[[Result], Estimate]] = {
    "r": lambda result: _over_cells(result, relation.pearson),
    "Spearman": lambda result: _over_cells(result, relation.spearman),
    "r on disjoint halves": lambda result: _plain(result.relation.disjoint.mean),
    "capture": lambda result: _plain(_captures(result, np.mean)),
    "sd of capture": lambda result: _plain(_captures(result, partial(np.std, ddof=1))),
}
