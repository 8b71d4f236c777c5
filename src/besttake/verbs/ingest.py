"""Outcomes to a result: headroom, test-retest agreement, intervals and pass@k of what others have run."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake.files import version
from besttake.measure.cell import cell as measure_cell
from besttake.measure.cells import ArmTakes, CellData, Settings, merge_cells
from besttake.recordings.outcomes import IngestError, Episode, Recording
from besttake.recordings.read import read
from besttake.reporting.notebook import Table, Tabular
from besttake.reporting.words import worded
from besttake.result import Cell, Cost, Relation, Result
from besttake.threads import one_thread

UNKNOWN = (
    "outcomes alone: what a score would pick, what cooling or retrieval would gain, and the fit to demonstrations are "
    "not known; `besttake diagnose` measures them"
)
_ALONE = "one outcome per start: headroom is not known; ingest further runs of the same starts together with this one"
_NO_RELATION = "Outcomes alone hold no gain of selection, so it cannot be set against headroom."
_WINDOWS = ("common", "episode")


@dataclass(frozen=True)
class IngestResult(Tabular):
    """What was read, and the result it gave; ``out`` is the run-like directory that holds it."""

    result: Result
    sources: tuple[Recording, ...]
    out: Path | None

    def _table(self) -> Table:
        rows = []
        for cell in self.result.cells:
            rates = (cell.headroom.pass_1, cell.headroom.pass_n, cell.headroom.headroom) if cell.headroom else ()
            numbers = [rate.value for rate in rates] or [None] * 3
            rows.append((cell.policy, cell.group, cell.starts, cell.seeds, *numbers))
        columns = ("policy", "tasks", "starts", "seeds", "pass@1", "pass@N", "headroom")
        heading = f"{sum(len(source.outcomes) for source in self.sources)} outcomes of {len(self.sources)} files"
        return Table(heading, columns, rows, self.result.notes)


def ingest(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    policy: str = "",
    columns: Mapping[str, str] | None = None,
    worth: float = 3.0,
    command: str = "",
) -> IngestResult:
    """Headroom without rollouts from result files (or directories of them); several files are repeated seeds.

    ``policy`` names the policy where files do not. With ``out``, writes ``result.json`` and ``outcomes.csv`` there.
    """
    sources, notes = read(paths, columns)
    named = [replace(source, outcomes=tuple(_named(o, policy) for o in source.outcomes)) for source in sources]
    with one_thread():
        result = _result(named, notes, worth, command)
    directory = Path(out) if out is not None else None
    if directory is not None:
        _write(directory, result, named)
    return IngestResult(result, tuple(named), directory)


def _named(outcome: Episode, policy: str) -> Episode:
    return replace(outcome, policy=policy or outcome.policy or "policy", env=outcome.env or "outcomes")


def _result(sources: Sequence[Recording], notes: list[str], worth: float, command: str) -> Result:
    cells = [_cell_data(*group) for group in _groups(sources)]
    names = list(dict.fromkeys(c.policy for c in cells))
    measured = [_cell(c, worth) for c in cells]
    outcomes = [o for s in sources for o in s.outcomes]
    done = [o for o in outcomes if o.success is not None]
    versions = {name: v for s in sources for name, v in s.versions.items()}
    return Result(
        besttake=version(),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        command=command,
        digest="",
        plan={"ingested": [s.path for s in sources]},
        versions=versions,
        library=None,
        worth=worth / 100,
        cells=measured,
        policies=[_policy(name, cells, measured, worth) for name in names],
        relation=Relation(reason=_NO_RELATION),
        cost=Cost(
            takes=len(done),
            errors=len(outcomes) - len(done),
            steps=sum(o.steps or 0 for o in done),
            policy_calls=0,
            frames_scored=0,
            frames_encoded=0,
            seconds={},
        ),
        notes=[UNKNOWN, *notes],
    )


def _groups(sources: Sequence[Recording]) -> list[tuple[str, str, dict[tuple[str, str], list[Episode]]]]:
    """(policy, env, start -> its outcomes in the order of files, then of seeds)."""
    cells: dict[tuple[str, str], dict[tuple[str, str], list[Episode]]] = {}
    for source in sources:
        for outcome in sorted(source.outcomes, key=lambda o: _natural(o.seed)):
            starts = cells.setdefault((outcome.policy, outcome.env), {})
            starts.setdefault((outcome.task, outcome.start), []).append(outcome)
    return [(policy, env, starts) for (policy, env), starts in cells.items()]


def _cell_data(policy: str, env: str, starts: dict[tuple[str, str], list[Episode]]) -> CellData:
    ordered = sorted(starts, key=lambda unit: (_natural(unit[0]), _natural(unit[1])))
    width = max(len(takes) for takes in starts.values())
    outcomes, lengths = np.full((len(ordered), width), np.nan), np.full((len(ordered), width), np.nan)
    for s, unit in enumerate(ordered):
        for n, take in enumerate(starts[unit]):
            if take.success is not None:
                outcomes[s, n] = float(take.success)
            if take.steps is not None:
                lengths[s, n] = take.steps
    places: dict[str, int] = {}
    units = []
    for task, _ in ordered:
        places[task] = places.get(task, -1) + 1
        units.append((env, task, places[task]))
    takes = [take for own in starts.values() for take in own]
    return CellData(
        policy=policy,
        env=env,
        group=env,
        units=tuple(units),
        arms={"base": ArmTakes(outcomes, lengths, {})},
        windows=_WINDOWS,
        scorer="manifold",
        planned=outcomes.size,
        errors=sum(take.success is None for take in takes),
    )


def _policy(name: str, cells: Sequence[CellData], measured: Sequence[Cell], worth: float) -> Cell:
    own = [(data, cell) for data, cell in zip(cells, measured, strict=True) if data.policy == name]
    if len(own) == 1:
        return own[0][1].model_copy(update={"group": "*"})
    return _cell(merge_cells(name, [data for data, _ in own]), worth)


def _cell(data: CellData, worth: float) -> Cell:
    """The measured cell, less what outcomes cannot tell."""
    outcomes = data.arms["base"].outcomes
    seeds = int(outcomes.shape[1])
    cell = measure_cell(data, Settings(seeds, seeds, worth / 100))
    update: dict[str, Any] = {"selectors": None, "ranking": None, "arms": None, "notes": []}
    if seeds == 1:
        update |= {"verdict": None, "notes": [_ALONE]}
    counts = np.isfinite(outcomes).sum(axis=1)
    if seeds > 1 and counts.min() < counts.max():
        update["notes"] = [f"starts have {counts.min()} to {counts.max()} outcomes; each counts with those it has"]
    return worded(cell.model_copy(update=update), worth / 100)


def _write(directory: Path, result: Result, sources: Sequence[Recording]) -> None:
    if (directory / "run.json").exists():
        raise IngestError(f"{directory} holds a diagnosis; choose another one with `out`")
    directory.mkdir(parents=True, exist_ok=True)
    result.save(directory / "result.json")
    with (directory / "outcomes.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("policy", "env", "task", "start", "seed", "success", "steps", "error", "file"))
        for source in sources:
            for o in source.outcomes:
                success = "" if o.success is None else int(o.success)
                steps = "" if o.steps is None else o.steps
                table.writerow((o.policy, o.env, o.task, o.start, o.seed, success, steps, o.error, source.path))


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers in the order of numbers, before words."""
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
