"""The paper's tables: its protocols as plans, and its numbers beside those of a run.

Every policy runs one frozen retrieval (the paper's S1), which ``protocols/table1.yaml`` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from besttake import registry
from besttake.arms import BASE, RERANK, RETRIEVE
from besttake.config import Plan, load_plan
from besttake.demos.base import NumericSource
from besttake.demos.resolve import source_of
from besttake.errors import PlanError
from besttake.files import write_bytes
from besttake.progress import Reporter
from besttake.registry import Uri
from besttake.reporting.table import Entry, Table, Tabular, right
from besttake.result import Cell, Estimate, Relation, Result, Selector
from besttake.verbs.compare import CompareResult
from besttake.verbs.compare import compare as compare_runs
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.diagnose.setup import load_policy

_NOT_AS = "not as in the paper: "
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
        paper: Published numbers by row, one per column: a number, a number with the ends of its interval, or None
            where the paper has none. A row is a policy (all its environments together), ``policy/env``, or ``all``.
        chunk: How many actions of a chunk are executed before the next; None: as the policy does by itself.
        frames: How many frames the library has in all; None: what ``plan`` says of demonstrations.
        notes: What a plan cannot reproduce.
    """

    name: str
    title: str
    policies: tuple[str, ...]
    envs: Mapping[str, str]
    plan: Mapping[str, Any]
    columns: tuple[str, ...]
    paper: Mapping[str, Sequence[float | Sequence[float] | None]]
    chunk: int | None = None
    frames: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def unitless(self) -> tuple[str, ...]:
        """The columns that are neither percent nor points."""
        return tuple(column for column in self.columns if column in _FRACTIONS or column in _OF_RUNS)

    @property
    def counts(self) -> tuple[str, ...]:
        """The columns that count something."""
        return tuple(column for column in self.columns if column in _COUNTS)

    def written(self, value: float | Sequence[float | None] | None, column: str) -> str:
        """Return a number of a column as the paper writes it, with its interval if it comes with one."""
        if value is None:
            return ""
        if isinstance(value, Sequence):
            middle, *ends = (self.written(one, column) for one in value)
            return f"{middle} [{', '.join(ends)}]"
        if column in self.counts:
            return f"{value:.0f}"
        return f"{value:.3f}" if column in self.unitless else f"{value + 0.0:.1f}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "table": self.name, "title": self.title, "plan": self.plan, "envs": self.envs, "columns": self.columns,
            "paper": self.paper, "chunk": self.chunk, "frames": self.frames,
        }  # fmt: skip


@dataclass(frozen=True)
class ComparedNumber:
    """A published number beside that of a run, both in the paper's units; ``here`` has no value if not measured.

    ``paper_interval`` holds the ends of the published number's interval, where the paper gives them.
    """

    row: str
    column: str
    paper: float | None
    here: Estimate
    paper_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class ReproduceResult(Tabular):
    """The numbers of a table beside those of a run. ``departures`` lists where the run differs from the protocol."""

    protocol: Protocol
    result: Result
    numbers: tuple[ComparedNumber, ...]
    departures: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        numbers = [asdict(number) for number in self.numbers]
        return {**self.protocol.to_dict(), "left_protocol": self.departures, "numbers": numbers}

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def _table(self) -> Table:
        rows = []
        for one in self.numbers:
            here, ends = one.here, one.paper_interval
            paper = one.paper if one.paper is None or ends is None else (one.paper, *ends)
            known = here.value is not None and here.low is not None and here.high is not None
            text = self.protocol.written((here.value, here.low, here.high) if known else here.value, one.column)
            outside = known and one.paper is not None and not (here.low or 0) <= one.paper <= (here.high or 0)
            mark = "warn" if outside else "" if text else "none"
            published = Entry(self.protocol.written(paper, one.column), value=one.paper)
            cells = published, Entry(text or "none", mark, here.value), Entry("outside" if outside else "", mark)
            rows.append((one.row, one.column, *cells))
        notes = [f"{_NOT_AS}{text}" for text in self.departures]
        return Table(self.protocol.title, ("row", "column", *right("paper", "here"), ""), rows, notes)


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

    All policies run the same retrieval, that of the paper: the rule ``next``, and Eq. 6 with alpha 0.3.

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
    wanted = {name: value for name, value in (changes or {}).items() if value is not None}
    plan, departures = plan_for(asked, policies, envs or {}, wanted)
    policies, shorter = with_whole_chunks(asked, policies, plan)
    plan = plan.model_copy(update={"policy": tuple(policies.values())})
    departures += shorter
    result = diagnose(plan, out, progress=progress, command=command)
    departures += library_departures(asked, result)
    result = _with_departures(result, departures, Path(out))
    over_cells = compare_runs(out, window=_WINDOW) if "all" in asked.paper else None
    numbers = compare(asked, result, policies, envs or {}, over_cells)
    return ReproduceResult(asked, result, tuple(numbers), tuple(departures))


def _with_departures(result: Result, departures: Sequence[str], out: Path) -> Result:
    """The result with ``departures`` among its notes, so that the page of the run lists them; also in its file."""
    others = [note for note in result.notes if not note.startswith(_NOT_AS)]
    noted = result.model_copy(update={"notes": [*others, *(f"{_NOT_AS}{text}" for text in departures)]})
    write_bytes(out / "result.json", noted.to_json().encode())
    return noted


def protocols() -> list[str]:
    """The names of the tables that can be reproduced."""
    return sorted(file.name.removesuffix(".yaml") for file in _FOLDER.iterdir() if file.name.endswith(".yaml"))


def protocol(name: str) -> Protocol:
    """Load the protocol of the paper's table ``name``; PlanError when there is none."""
    if name not in protocols():
        raise PlanError(f"no table {name!r}; there are {', '.join(protocols())}")
    own = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    like = protocol(own["like"]) if "like" in own else Protocol("", "", (), {}, {}, (), {})
    return Protocol(
        name, own["title"], tuple(own["policies"]), own.get("envs") or like.envs, {**like.plan, **own.get("plan", {})},
        tuple(own["columns"]), own["paper"], own.get("chunk", like.chunk), own.get("frames", like.frames),
        (*like.notes, *own.get("notes", ())),
    )  # fmt: skip


def plan_for(
    table: Protocol, policies: Mapping[str, str], envs: Mapping[str, str], changes: Mapping[str, Any]
) -> tuple[Plan, list[str]]:
    """The plan that reproduces ``table``, and where it leaves the paper's protocol; the arguments are `reproduce`'s."""
    for kind, given, known in (("policy", policies, table.policies), ("env", envs, table.envs)):
        for name in given:
            if name not in known:
                raise PlanError(f"{table.name} has no {kind} {name!r}; it has {', '.join(known)}")
    chosen = envs or table.envs
    flags = {**table.plan, **changes, "policy": list(policies.values()), "env": list(chosen.values())}
    if table.frames is not None and "demos" in changes:
        flags["demos_per_task"] = demos_for(str(changes["demos"]), table.frames / len(chosen))
    plan = load_plan(None, flags)
    theirs = {**table.plan, **table.plan["retrieval"]}
    departures = [
        *(f"{name} is {value}, the paper's {theirs[name]}" for name, value in changes.items()
          if name in theirs and name != "arms" and str(value) != str(theirs[name])),
        *(f"the arm {arm} is not run" for arm in table.plan["arms"] if arm not in plan.arms),
        *(f"of the tasks only {task} is run" for task in [", ".join(plan.task)] if task),
        *(f"{name} runs in {uri}" for name, uri in chosen.items() if uri != table.envs[name]),
        *(f"{name} is not run" for name in (*table.policies, *table.envs) if name not in {**policies, **chosen}),
        *table.notes,
    ]  # fmt: skip
    return plan, departures


def demos_for(demos: str, frames: float) -> int | None:
    """How many demonstrations have about ``frames`` frames; None for a library, or where lengths are not known."""
    if (Path(demos) / "library.json").is_file():
        return None
    source = source_of(demos)
    rows = list(islice(source.rows(), 100)) if isinstance(source, NumericSource) else []
    lengths = [len(values) for row in rows for values in row[1:] if values is not None]
    return max(1, round(frames / float(np.mean(lengths)))) if lengths else None


def with_whole_chunks(table: Protocol, policies: Mapping[str, str], plan: Plan) -> tuple[dict[str, str], list[str]]:
    """The policies with URIs by which they execute as many actions of a chunk as the paper's, and which cannot.

    Each policy is loaded once to see how long its chunks are. A URI that says ``replan`` itself stays as it is.
    """
    if table.chunk is None:
        return dict(policies), []
    changed, departures = {}, []
    for name, uri in policies.items():
        spec = load_policy(plan, uri).spec
        steps, most = spec.replan, min(table.chunk, spec.horizon)
        fixed = "replan" in Uri.parse(uri).options or not registry.takes_option("policies", uri, "replan")
        if steps != most and not fixed:
            uri, steps = f"{uri}{'&' if '?' in uri else '?'}replan={most}", most
        if steps != table.chunk:
            departures.append(
                f"{name} executes {steps} of the {spec.horizon} actions of a chunk, the paper's policies {table.chunk}"
            )
        changed[name] = uri
    return changed, departures


def library_departures(table: Protocol, result: Result) -> list[str]:
    """Where the library of a run is not the paper's: its demonstrations or frames, and what it takes for events."""
    library, each = result.library, int(table.plan["demos_per_task"] or 0)
    if library is None:
        return ["there is no library, so nothing was scored or retrieved"]
    wanted = {line.task for cell in result.cells for line in cell.tasks}
    counts = sorted({n for task, n in library.get("tasks", {}).items() if task in wanted} or {library.get("demos", 0)})
    texts = []
    if each and counts != [each]:
        has = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        texts.append(f"the library has {has} demonstrations of a task, the paper's {each}")
    if table.frames is not None and library.get("frames") != table.frames:
        texts.append(f"the library has {library.get('frames')} frames, the paper's {table.frames}")
    if any(_is_retrieval(arm) for arm in result.plan.get("arms", ())):
        texts.append("what angle makes a turn an event, the paper does not say; here it is 60 degrees, or your own")
        if library.get("turns", "spaced") != table.plan["event_turns"]:
            texts.append(
                "the library's events leave out turns that are slow or close together (event_turns: spaced); the"
                " paper names no such limits"
            )
    return texts


def _is_retrieval(arm: str) -> bool:
    return Uri.parse(arm).scheme == RETRIEVE


def compare(
    table: Protocol, result: Result, policies: Mapping[str, str], envs: Mapping[str, str],
    over_cells: CompareResult | None = None,
) -> list[ComparedNumber]:  # fmt: skip
    """Each number of ``table`` beside that of ``result``, for the rows whose policies were run.

    ``over_cells`` is the relation over the cells of the run, read on the paper's window, for a row called ``all``.
    """
    uris, compared = {**table.envs, **envs}, []
    for row, numbers in table.paper.items():
        policy, _, env = row.partition("/")
        if row == "all" and over_cells is None:
            continue
        if row == "all":
            here = [_OF_RUNS[column](over_cells, policies) for column in table.columns]
        elif policy in policies:
            cell = _cell(result, policies[policy], uris[env] if env else None)
            here = [_read(cell, column) for column in table.columns]
        else:
            continue
        compared += [_beside(row, *three) for three in zip(table.columns, numbers, here, strict=True)]
    return compared


def _beside(row: str, column: str, number: float | Sequence[float] | None, here: Estimate) -> ComparedNumber:
    if isinstance(number, Sequence):
        value, low, high = number
        return ComparedNumber(row, column, value, here, (low, high))
    return ComparedNumber(row, column, number, here)


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


def _picked(arm: Any, n: int = 0) -> Estimate:
    """Success of keeping the best of ``n`` takes of an arm; of all where it is 0."""
    return Estimate(arm.picked[_WINDOW][n - 1])


def _retrieval(cell: Any) -> Any:
    """The arm of a cell that retrieves."""
    return next(iter([arm for name, arm in cell.arms.arms.items() if _is_retrieval(name)]), None)


def _combine(cell: Any) -> Estimate | None:
    both, alone = _picked(_retrieval(cell)).value, _picked(cell.arms.arms[BASE]).value
    return None if both is None or alone is None else Estimate(both - alone)


def _within(name: str) -> Callable[[Any, Mapping[str, str]], Estimate]:
    """r over the cells of one of the paper's policies."""
    return lambda runs, policies: runs.result.relation.within.get(policies.get(name)) or Estimate(reason="not measured")


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
    "select of 2": lambda cell: _picked(cell.arms.arms[BASE], 2),
    "retrieve": lambda cell: _retrieval(cell).pass_1,
    "retrieve gain": lambda cell: _retrieval(cell).gain,
    "sd over seeds": lambda cell: Estimate(_retrieval(cell).gain_seed_sd),
    "retrieve + select": lambda cell: _picked(_retrieval(cell)),
    "combine": _combine,
    "retrieve pass@N": lambda cell: _retrieval(cell).pass_n,
    "rerank": lambda cell: cell.arms.arms[RERANK].pass_1,
}
_FRACTIONS: dict[str, Callable[[Any], Estimate | None]] = {
    "DFE": lambda cell: cell.dfe.mean_square,
    "DFE as a norm": lambda cell: cell.dfe.dfe,
    "first action r": lambda cell: cell.dfe.correlation,
}
_OF_RUNS: dict[str, Callable[[Any, Mapping[str, str]], Estimate]] = {
    "r": lambda runs, _: _estimate_of(runs.result.relation),
    "Spearman": lambda runs, _: runs.result.relation.spearman or Estimate(reason="not measured"),
    "r on disjoint halves": lambda runs, _: Estimate(runs.result.relation.disjoint.mean),
    "sd over the splits": lambda runs, _: Estimate(runs.result.relation.disjoint.sd),
    **{f"r within {name}": _within(name) for name in ("pi0", "smolvla", "pi05")},
    "lowest r without a policy": lambda runs, _: _extreme(runs.result.relation.leave_one_out, min),
    "highest r without a policy": lambda runs, _: _extreme(runs.result.relation.leave_one_out, max),
    "r with retrieval's gain": lambda runs, _: runs.across.retrieval,
    "pooled AUC": lambda runs, _: runs.across.auc,
    "takes with a valid score": lambda runs, _: Estimate(runs.across.takes),
    "takes": lambda runs, _: Estimate(runs.across.takes + runs.across.invalid),
    "capture": lambda runs, _: Estimate(runs.across.captures.mean),
    "sd of capture": lambda runs, _: Estimate(runs.across.captures.sd),
    "lowest capture": lambda runs, _: Estimate(runs.across.captures.low),
    "highest capture": lambda runs, _: Estimate(runs.across.captures.high),
}
_COUNTS = ("takes with a valid score", "takes")


def _estimate_of(relation: Relation) -> Estimate:
    low, high = relation.interval or (None, None)
    return Estimate(relation.r, low, high, relation.cells, relation.reason)
