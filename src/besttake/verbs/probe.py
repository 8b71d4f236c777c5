"""Test a policy at demonstrated states, without takes: how well it fits them, and which retrieval would help."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from besttake.config import Plan, as_plan
from besttake.conventions import check_compatible
from besttake.core.offline import RetrievalCheck
from besttake.errors import LibraryError, PlanError
from besttake.measure.arrays import Settings, probed_cells
from besttake.measure.cell import measure_cell
from besttake.progress import Reporter, as_reporter
from besttake.reporting.numbers import number
from besttake.reporting.table import Entry, Head, Table, Tabular, right
from besttake.result import Cell
from besttake.threads import one_thread
from besttake.verbs.diagnose.check import probe_notes, probe_policy
from besttake.verbs.diagnose.choice import check_for
from besttake.verbs.diagnose.setup import library_for, load_policy, match_tasks, open_envs


class ProbeResult(list[Cell], Tabular):
    """The demonstration-fit error of each policy: a list of cells, and a check of retrieval per policy.

    There is one `Cell` per policy and task group, and one per policy over all its tasks (``group="*"``). ``cell.dfe``
    holds the numbers. ``checks[policy_uri]`` tells which retrieval settings would help that policy
    (`besttake.core.offline`).
    """

    def __init__(self, cells: Iterable[Cell] = (), checks: Mapping[str, RetrievalCheck] | None = None) -> None:
        super().__init__(cells)
        self.checks = dict(checks or {})

    def to_json(self) -> str:
        """Return the cells and the check of each policy as JSON text."""
        cells = [cell.model_dump(mode="json") for cell in self]
        checks = {uri: asdict(check) for uri, check in self.checks.items()}
        return json.dumps({"cells": cells, "checks": checks}, indent=1)

    def _table(self) -> Table:
        names, rows = ("dfe", "floor", "ratio", "correlation", "spread"), []
        for cell in self:
            values = [getattr(cell.dfe, name).value if cell.dfe else None for name in names]
            numbers = [Entry(number(value, 3) or "-", "" if value is not None else "none", value) for value in values]
            group = "all tasks" if cell.group == "*" else cell.group
            why = (cell.dfe.reason if cell.dfe else "not measured") if values[0] is None else ""
            rows.append((cell.policy, group, *numbers, cell.dfe.states if cell.dfe else None, Entry(why, "warn")))
        columns: Head = ["policy", "tasks", *right("DFE", "floor", "DFE/floor", "first r", "spread", "states"), ""]
        return Table("Demonstration-fit error", columns, rows)


def probe(plan: Plan | str | Path, *, progress: bool | Reporter = False) -> ProbeResult:
    """Measure how well each policy fits the demonstrations, without playing a take.

    The policy samples ``plan.probe_samples`` chunks at each of ``plan.probe_states`` demonstrated states. The
    demonstration-fit error (DFE, Eq. 3 of the paper) is the L2 distance from the demonstrated chunk to the nearest
    sample. Unless ``plan.check_states`` is 0, retrieval settings are also compared on held-out demonstrations.

    Args:
        plan: A `Plan`, or the path of a YAML file with the same keys. It must name demonstrations (``demos``).
        progress: True shows a progress bar.

    Returns:
        A list of cells, one per policy and task group and one per policy over all its tasks (``group="*"``). The
        numbers are in ``cell.dfe``; ``.checks[policy_uri]`` holds the comparison of retrieval settings.

    Raises:
        PlanError: The plan names no demonstrations, or ``probe_states`` is 0.
        LibraryError: No policy can be sampled at demonstrated states, for example because states are missing.
    """
    plan, reporter = as_plan(plan), as_reporter(progress)
    if not plan.probe_states:
        raise PlanError("`probe_states` 0: there is nothing to probe; give at least 1")
    with one_thread():
        envs = open_envs(plan)
        library = library_for(plan, envs, reporter)
        if library is None:
            raise PlanError("the probe needs demonstrations; name them with `demos`")
        for note in match_tasks(plan, envs, library):
            reporter.note(note)
        specs, probes, checks = {}, {}, {}
        for uri, name in plan.names.items():
            policy = load_policy(plan, uri)
            for env in envs.values():
                check_compatible(replace(policy.spec, name=name), env)
            specs[name], probes[name] = policy.spec, probe_policy(policy, library, envs, plan, reporter)
            if plan.check_states:
                checks[name] = check_for(policy, plan, envs, library, reporter)
        if all(result.reason for result in probes.values()):
            raise LibraryError(f"{library.path}: {next(iter(probes.values())).reason}")
        for name, result in probes.items():
            for note in probe_notes(name, result):
                reporter.note(note)
        settings = Settings(plan.seeds, plan.n, scorer=plan.scorer[0], probe_samples=plan.probe_samples)
        cells = probed_cells(settings.scorer, envs, specs, probes, plan.task)
        return ProbeResult((measure_cell(data, settings) for data in cells), checks)
