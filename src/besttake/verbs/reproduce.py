"""Run the protocols of the paper's tables, and compare its numbers with those of a run (`besttake reproduce`).

All policies run the paper's frozen retrieval (S1), which is in ``protocols/table1.yaml``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from besttake.result import Cell, Estimate, Result
from besttake.verbs.compare import CompareResult
from besttake.verbs.compare import compare as compare_runs
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.diagnose.setup import load_policy

_NOT_AS = "not as in the paper: "
_FOLDER = files("besttake") / "protocols"
_WINDOW = "episode"
"""The window on which the paper selects. No verdict reads it, because it gives the length of takes away."""
_NOT_MEASURED = Estimate(reason="not measured")
_PERCENT = (
    "pass@1", "pass@N", "random", "select", "select gain", "select of 2", "retrieve", "retrieve gain", "sd over seeds",
    "retrieve + select", "combine", "retrieve pass@N", "rerank",
)  # fmt: skip
_COUNTS = ("takes with a valid score", "takes")


@dataclass(frozen=True)
class Protocol:
    """One table of the paper: what was run, and the published numbers.

    Attributes:
        name: Name of the table, such as ``table1``.
        title: Its title.
        policies: Names of the policies in the paper.
        envs: Names of the environments in the paper, and the default URI of each.
        plan: Keys of the plan that reproduces it.
        columns: Names of its columns.
        paper: Published numbers by row, one per column: a number, a number with the ends of its interval, or None
            where the paper has none. A row is a policy (all its environments together), ``policy/env``, or ``all``.
        chunk: How many actions of a chunk are executed before the next; None: the policy decides.
        frames: How many frames the library has in all; None: ``plan`` limits demonstrations.
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

    def written(self, value: float | Sequence[float | None] | None, column: str) -> str:
        """Return a number of a column as the paper writes it, with its interval if it has one."""
        if value is None:
            return ""
        if isinstance(value, Sequence):
            middle, *ends = (self.written(number, column) for number in value)
            return f"{middle} [{', '.join(ends)}]"
        if column in _COUNTS:
            return f"{value:.0f}"
        return f"{value + 0.0:.1f}" if column in _PERCENT else f"{value:.3f}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "table": self.name, "title": self.title, "plan": self.plan, "envs": self.envs, "columns": self.columns,
            "paper": self.paper, "chunk": self.chunk, "frames": self.frames,
        }  # fmt: skip


@dataclass(frozen=True)
class ComparedNumber:
    """A published number and that of a run, in the paper's units; ``here`` has no value if the run did not measure it.

    ``paper_interval`` has the ends of the published interval, if there is one.
    """

    row: str
    column: str
    paper: float | None
    here: Estimate
    paper_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class ReproduceResult(Tabular):
    """The numbers of a table and those of a run; ``departures`` lists where the run differs from the protocol."""

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
        for number in self.numbers:
            here, ends, column = number.here, number.paper_interval, number.column
            paper = number.paper if number.paper is None or ends is None else (number.paper, *ends)
            known = here.value is not None and here.low is not None and here.high is not None
            text = self.protocol.written((here.value, here.low, here.high) if known else here.value, column)
            outside = known and number.paper is not None and not (here.low or 0) <= number.paper <= (here.high or 0)
            mark = "warn" if outside else "" if text else "none"
            published = Entry(self.protocol.written(paper, column), value=number.paper)
            entries = published, Entry(text or "none", mark, here.value), Entry("outside" if outside else "", mark)
            rows.append((number.row, column, *entries))
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
    """Run the protocol of a table of the paper with your policies, and compare the published numbers with yours.

    All policies run the retrieval of the paper: the rule ``next``, and Eq. 6 with alpha 0.3.

    Args:
        table: ``table1`` to ``table7``, ``relation`` or ``fit``.
        policies: The policies to run, as ``{"pi0": "lerobot:org/pi0_libero"}``. Keys are names that the table uses.
        out: The run directory.
        envs: Other URIs for environments of the table, by their names in it. Only these are then run.
        changes: Keys of the plan that differ from the protocol, such as ``{"starts": 10}``. The result lists them.
        progress: True shows a progress bar.
        command: The command line to record in the result, if there was one.

    Returns:
        The published and the measured numbers, and in ``departures`` every difference from the paper's protocol.

    Raises:
        PlanError: The table, or a policy or environment of that name, does not exist.
    """
    published = protocol(table)
    changed = {name: value for name, value in (changes or {}).items() if value is not None}
    plan, departures = plan_for(published, policies, envs or {}, changed)
    policies, shorter = with_whole_chunks(published, policies, plan)
    plan = plan.model_copy(update={"policy": tuple(policies.values())})
    result = diagnose(plan, out, progress=progress, command=command)
    departures += [*shorter, *library_departures(published, result)]
    # The run's report lists the departures as well.
    notes = [note for note in result.notes if not note.startswith(_NOT_AS)]
    result = result.model_copy(update={"notes": [*notes, *(f"{_NOT_AS}{text}" for text in departures)]})
    write_bytes(Path(out) / "result.json", result.to_json().encode())
    over_cells = compare_runs(out, window=_WINDOW) if "all" in published.paper else None
    numbers = compare(published, result, policies, envs or {}, over_cells)
    return ReproduceResult(published, result, tuple(numbers), tuple(departures))


def protocols() -> list[str]:
    """Return the names of the tables that can be reproduced."""
    return sorted(file.name.removesuffix(".yaml") for file in _FOLDER.iterdir() if file.name.endswith(".yaml"))


def protocol(name: str) -> Protocol:
    """Load the protocol of the paper's table ``name``; PlanError if there is none."""
    if name not in protocols():
        raise PlanError(f"no table {name!r}; there are {', '.join(protocols())}")
    file = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    like = protocol(file["like"]) if "like" in file else Protocol("", "", (), {}, {}, (), {})
    return Protocol(
        name, file["title"], tuple(file["policies"]), file.get("envs") or like.envs,
        {**like.plan, **file.get("plan", {})}, tuple(file["columns"]), file["paper"],
        file.get("chunk", like.chunk), file.get("frames", like.frames), (*like.notes, *file.get("notes", ())),
    )  # fmt: skip


def plan_for(
    table: Protocol, policies: Mapping[str, str], envs: Mapping[str, str], changes: Mapping[str, Any]
) -> tuple[Plan, list[str]]:
    """Return the plan that reproduces ``table``, and its departures from the paper; arguments as in `reproduce`."""
    for kind, names, known in (("policy", policies, table.policies), ("env", envs, table.envs)):
        for name in names:
            if name not in known:
                raise PlanError(f"{table.name} has no {kind} {name!r}; it has {', '.join(known)}")
    chosen = envs or table.envs
    flags = {**table.plan, **changes, "policy": list(policies.values()), "env": list(chosen.values())}
    if table.frames is not None and "demos" in changes:
        flags["demos_per_task"] = demos_for(str(changes["demos"]), table.frames / len(chosen))
    plan = load_plan(None, flags)
    keys = {**table.plan, **table.plan["retrieval"]}
    departures = [
        *(f"{name} is {value}, the paper's {keys[name]}" for name, value in changes.items()
          if name in keys and name != "arms" and str(value) != str(keys[name])),
        *(f"the arm {arm} is not run" for arm in table.plan["arms"] if arm not in plan.arms),
        *(f"of the tasks only {task} is run" for task in [", ".join(plan.task)] if task),
        *(f"{name} runs in {uri}" for name, uri in chosen.items() if uri != table.envs[name]),
        *(f"{name} is not run" for name in (*table.policies, *table.envs) if name not in {**policies, **chosen}),
        *table.notes,
    ]  # fmt: skip
    return plan, departures


def demos_for(demos: str, frames: float) -> int | None:
    """Return how many demonstrations have about ``frames`` frames in all; None for a library or unknown lengths."""
    if (Path(demos) / "library.json").is_file():
        return None
    source = source_of(demos)
    rows = list(islice(source.rows(), 100)) if isinstance(source, NumericSource) else []
    lengths = [len(values) for row in rows for values in row[1:] if values is not None]
    return max(1, round(frames / float(np.mean(lengths)))) if lengths else None


def with_whole_chunks(table: Protocol, policies: Mapping[str, str], plan: Plan) -> tuple[dict[str, str], list[str]]:
    """Make policies execute as many actions of a chunk as the paper's, and list those that cannot.

    Each policy is loaded once to see how long its chunks are. A URI with its own ``replan`` is not changed.
    """
    if table.chunk is None:
        return dict(policies), []
    changed, departures = {}, []
    for name, uri in policies.items():
        spec = load_policy(plan, uri).spec
        steps, possible = spec.replan, min(table.chunk, spec.horizon)
        fixed = "replan" in Uri.parse(uri).options or not registry.takes_option("policies", uri, "replan")
        if steps != possible and not fixed:
            uri, steps = f"{uri}{'&' if '?' in uri else '?'}replan={possible}", possible
        if steps != table.chunk:
            departures.append(
                f"{name} executes {steps} of the {spec.horizon} actions of a chunk, the paper's policies {table.chunk}"
            )
        changed[name] = uri
    return changed, departures


def library_departures(table: Protocol, result: Result) -> list[str]:
    """List where the library of a run differs from the paper's: its size, and what counts as an event."""
    library, per_task = result.library, int(table.plan["demos_per_task"] or 0)
    if library is None:
        return ["there is no library, so nothing was scored or retrieved"]
    tasks = {line.task for cell in result.cells for line in cell.tasks}
    counts = sorted({n for task, n in library.get("tasks", {}).items() if task in tasks} or {library.get("demos", 0)})
    texts = []
    if per_task and counts != [per_task]:
        number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        texts.append(f"the library has {number} demonstrations of a task, the paper's {per_task}")
    if table.frames is not None and library.get("frames") != table.frames:
        texts.append(f"the library has {library.get('frames')} frames, the paper's {table.frames}")
    if any(_is_retrieval(arm) for arm in result.plan.get("arms", ())):
        texts.append("the paper does not say which angle makes a turn an event; here it is 60 degrees, or your own")
        if library.get("turns", "spaced") != table.plan["event_turns"]:
            texts.append(
                "the library's events leave out turns that are slow or close together (event_turns: spaced), which the"
                " paper does not"
            )
    return texts


def _is_retrieval(arm: str) -> bool:
    return Uri.parse(arm).scheme == RETRIEVE


def compare(
    table: Protocol, result: Result, policies: Mapping[str, str], envs: Mapping[str, str],
    over_cells: CompareResult | None = None,
) -> list[ComparedNumber]:  # fmt: skip
    """Pair each number of ``table`` with that of ``result``, for the rows whose policies were run.

    ``over_cells`` is the relation over the run's cells on the paper's window, for a row called ``all``.
    """
    uris, compared = {**table.envs, **envs}, []
    for row, published in table.paper.items():
        policy, _, env = row.partition("/")
        if row == "all" and over_cells is not None:
            measured = _relation_numbers(over_cells, policies)
        elif policy in policies:
            measured = _cell_numbers(_cell(result, policies[policy], uris[env] if env else None))
        else:
            continue
        for column, number in zip(table.columns, published, strict=True):
            here = _in_paper_units(measured.get(column) or _NOT_MEASURED, column)
            value, *ends = number if isinstance(number, Sequence) else (number,)
            compared.append(ComparedNumber(row, column, value, here, (ends[0], ends[1]) if ends else None))
    return compared


def _cell(result: Result, policy: str, env: str | None) -> Cell | None:
    """Return the cell of a policy in an env, over all envs if ``env`` is None; None unless there is exactly one."""
    cells = result.policies if env is None else [cell for cell in result.cells if cell.env == env]
    matches = [cell for cell in cells if cell.policy == policy]
    return matches[0] if len(matches) == 1 else None


def _in_paper_units(estimate: Estimate, column: str) -> Estimate:
    """Turn fractions into percent if the paper gives this column in percent or points."""
    if column not in _PERCENT:
        return estimate
    value, low, high = (None if x is None else 100 * x for x in (estimate.value, estimate.low, estimate.high))
    return replace(estimate, value=value, low=low, high=high)


def _cell_numbers(cell: Cell | None) -> dict[str, Estimate | None]:
    """Return the measured numbers of a cell by the names of the paper's columns."""
    numbers: dict[str, Estimate | None] = {}
    if cell is None:
        return numbers
    if cell.headroom is not None:
        numbers |= {"pass@1": cell.headroom.pass_1, "pass@N": cell.headroom.pass_n}
    if cell.selectors is not None:
        numbers["random"] = cell.selectors.random.success
        if (selector := cell.selectors.scored.get("manifold", {}).get(_WINDOW)) is not None:
            numbers |= {"select": selector.success, "select gain": selector.gain}
    if cell.dfe is not None:
        dfe = cell.dfe
        numbers |= {"DFE": dfe.mean_square, "DFE as a norm": dfe.dfe, "first action r": dfe.correlation}
    arms = cell.arms.arms if cell.arms is not None else {}
    alone = arms[BASE].picked.get(_WINDOW, []) if BASE in arms else []
    if len(alone) > 1:
        numbers["select of 2"] = Estimate(alone[1])
    if RERANK in arms:
        numbers["rerank"] = arms[RERANK].pass_1
    for arm in [arm for name, arm in arms.items() if _is_retrieval(name)][:1]:
        numbers |= {"retrieve": arm.pass_1, "retrieve gain": arm.gain, "retrieve pass@N": arm.pass_n}
        numbers["sd over seeds"] = Estimate(arm.gain_seed_sd)
        if both := arm.picked.get(_WINDOW):
            numbers["retrieve + select"] = Estimate(both[-1])
            if alone and both[-1] is not None and alone[-1] is not None:
                numbers["combine"] = Estimate(both[-1] - alone[-1])
    return numbers


def _relation_numbers(compared: CompareResult, policies: Mapping[str, str]) -> dict[str, Estimate | None]:
    """Return the numbers over all cells by the names of the paper's columns."""
    relation, across, captures = compared.result.relation, compared.across, compared.across.captures
    low, high = relation.interval or (None, None)
    without = [r.value for r in relation.leave_one_out.values() if r is not None and r.value is not None]
    return {
        "r": Estimate(relation.r, low, high, relation.cells, relation.reason),
        "Spearman": relation.spearman,
        "r on disjoint halves": Estimate(relation.disjoint.mean),
        "sd over the splits": Estimate(relation.disjoint.sd),
        **{f"r within {name}": relation.within.get(uri) for name, uri in policies.items()},
        "lowest r without a policy": Estimate(min(without)) if without else None,
        "highest r without a policy": Estimate(max(without)) if without else None,
        "r with retrieval's gain": across.retrieval,
        "pooled AUC": across.auc,
        "takes with a valid score": Estimate(across.takes),
        "takes": Estimate(across.takes + across.invalid),
        "capture": Estimate(captures.mean),
        "sd of capture": Estimate(captures.sd),
        "lowest capture": Estimate(captures.low),
        "highest capture": Estimate(captures.high),
    }
