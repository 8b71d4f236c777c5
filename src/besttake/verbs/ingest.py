"""Outcomes to a result: headroom, test-retest agreement, intervals and pass@k of what others have run."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake.arms import BASE
from besttake.config import check_worth
from besttake.files import as_paths, version
from besttake.measure.cell import cell as measure_cell
from besttake.measure.cells import ArmTakes, CellData, Settings, merge_cells
from besttake.recordings.combine import name_policies, once_by_seed
from besttake.recordings.episodes import Episode, IngestError, Recording
from besttake.recordings.read import read
from besttake.recordings.tabular import OWN
from besttake.reporting.numbers import count, percent
from besttake.reporting.table import Entry, Head, Table, Tabular, in_points, plain, right
from besttake.reporting.tables import rates
from besttake.reporting.words import worded
from besttake.result import Cell, Cost, Estimate, Relation, Result
from besttake.sanitize import csv_cell
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
    """Outcomes read from other harnesses: the ``result`` computed from them, and the ``recordings`` that were read.

    ``out`` is the directory that holds ``result.json`` and ``outcomes.csv``, or None if nothing was written.
    """

    result: Result
    recordings: tuple[Recording, ...]
    out: Path | None

    def to_json(self) -> str:
        """Return the result as JSON text, in the schema of ``result.json``."""
        return self.result.to_json()

    def _table(self) -> Table:
        result, rows = self.result, []
        for cell in (*result.cells, *(result.policies if len(result.cells) > len(result.policies) else ())):
            first, best, room = rates(cell)
            agree, kappa = (cell.retest.agreement, cell.retest.kappa) if cell.retest else (None, None)
            group = "all" if cell.group == "*" else cell.group
            known = (_rate(first), _rate(best), in_points(room), _rate(agree), plain(kappa))
            rows.append((cell.policy, group, cell.starts, cell.seeds, *known))
        columns: Head = ["policy", "tasks", *right("starts", "seeds", "pass@1", "pass@N", "headroom")]
        columns += right("agree", "kappa", extra=True)
        episodes = sum(len(recording.episodes) for recording in self.recordings)
        heading = f"{count(episodes, 'outcome')} of {count(len(self.recordings), 'recording')}"
        return Table(heading, columns, rows, self.result.notes)


def _rate(estimate: Estimate | None) -> Entry:
    if estimate is None or estimate.value is None:
        return Entry("not known", "none")
    return Entry(percent(estimate.value), value=estimate.value)


def ingest(
    paths: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    policy_name: str | Mapping[str, str] = "",
    columns: Mapping[str, str] | None = None,
    worth: float = 3.0,
    command: str = "",
) -> IngestResult:
    """Compute headroom from outcomes that another harness has recorded, without playing a take.

    Several files of one policy count as repeated seeds of the same starts.

    Args:
        paths: Result files, or directories that contain them. The supported formats are listed in docs/ingest.md.
        out: Directory for ``result.json`` and ``outcomes.csv`` (default: write nothing).
        policy_name: Name of the policy, if the files do not tell: one name for all of them, or one per file or
            folder, as ``{"results/a": "pi0", "results/b": "smolvla"}``.
        columns: Columns of a table that have other names, as ``{"success": "won", "start": "scene"}``.
        worth: Smallest effect worth acting on, in percentage points.
        command: The command line to record in the result, if there was one.

    Raises:
        IngestError: A file cannot be read, or the policy it belongs to is ambiguous.

    Examples:
        >>> besttake.ingest("results/").result.policies[0].headroom.headroom  # doctest: +SKIP
    """
    check_worth(worth)
    names = {} if isinstance(policy_name, str) else policy_name
    recordings, notes = read(as_paths(paths), columns, names)
    recordings, how_named = name_policies(recordings, policy_name)
    recordings, shared = once_by_seed(recordings)
    named = [
        replace(one, episodes=tuple(replace(episode, env=episode.env or "outcomes") for episode in one.episodes))
        for one in recordings
    ]
    with one_thread():
        result = _result(named, [*how_named, *shared, *notes], worth / 100, command)
    directory = Path(out) if out is not None else None
    if directory is not None:
        _write(directory, result, named)
    return IngestResult(result, tuple(named), directory)


def _result(recordings: Sequence[Recording], notes: list[str], worth: float, command: str) -> Result:
    cells = [group.cell_data() for group in _groups(recordings)]
    measured = [_cell(data, worth) for data in cells]
    episodes = [episode for recording in recordings for episode in recording.episodes]
    done = [episode for episode in episodes if episode.success is not None]
    return Result(
        besttake=version(),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        command=command,
        digest="",
        plan={"ingested": [recording.path for recording in recordings]},
        versions={name: v for recording in recordings for name, v in recording.versions.items()},
        library=None,
        worth=worth,
        cells=measured,
        policies=[_policy(name, cells, measured, worth) for name in dict.fromkeys(data.policy for data in cells)],
        relation=Relation(reason=_NO_RELATION),
        cost=Cost(
            takes=len(done), errors=len(episodes) - len(done), steps=sum(episode.steps or 0 for episode in done),
            policy_calls=0, frames_scored=0, frames_encoded=0, seconds={},
        ),
        notes=[UNKNOWN, *notes],
    )  # fmt: skip


@dataclass
class _Group:
    """The episodes of one policy in one env by start: ``starts[task, start]``."""

    policy: str
    env: str
    starts: dict[tuple[str, str], list[Episode]] = field(default_factory=dict)

    def cell_data(self) -> CellData:
        """The episodes as arrays (starts, seeds); the k-th episode of a start is its k-th take."""
        ordered = sorted(self.starts, key=lambda start: (_natural(start[0]), _natural(start[1])))
        shape = (len(ordered), max(map(len, self.starts.values())))
        outcomes, lengths = np.full(shape, np.nan), np.full(shape, np.nan)
        for s, start in enumerate(ordered):
            for n, episode in enumerate(sorted(self.starts[start], key=_order)):
                outcomes[s, n] = np.nan if episode.success is None else episode.success
                lengths[s, n] = np.nan if episode.steps is None else episode.steps
        first: dict[str, int] = {}
        units = tuple((self.env, task, i - first.setdefault(task, i)) for i, (task, _) in enumerate(ordered))
        return CellData(
            policy=self.policy, env=self.env, group=self.env, units=units,
            arms={BASE: ArmTakes(outcomes, lengths, {})}, windows=_WINDOWS, scorer="manifold",
            planned=outcomes.size, errors=sum(e.success is None for own in self.starts.values() for e in own),
        )  # fmt: skip


def _groups(recordings: Sequence[Recording]) -> list[_Group]:
    groups: dict[tuple[str, str], _Group] = {}
    for recording in recordings:
        for episode in recording.episodes:
            group = groups.setdefault((episode.policy, episode.env), _Group(episode.policy, episode.env))
            group.starts.setdefault((episode.task, episode.start), []).append(episode)
    return [groups[name] for name in sorted(groups, key=lambda name: tuple(map(_natural, name)))]


def _policy(name: str, cells: Sequence[CellData], measured: Sequence[Cell], worth: float) -> Cell:
    own = [(data, cell) for data, cell in zip(cells, measured, strict=True) if data.policy == name]
    if len(own) == 1:
        return own[0][1].model_copy(update={"group": "*"})
    return _cell(merge_cells(name, [data for data, _ in own]), worth)


def _cell(data: CellData, worth: float) -> Cell:
    """The measured cell, less what outcomes cannot tell."""
    outcomes = data.arms[BASE].outcomes
    seeds = int(outcomes.shape[1])
    cell = measure_cell(data, Settings(seeds, seeds, worth))
    update: dict[str, Any] = {"selectors": None, "ranking": None, "arms": None, "notes": []}
    if seeds == 1:
        update |= {"verdict": None, "notes": [_ALONE]}
    counts = np.isfinite(outcomes).sum(axis=1)
    if seeds > 1 and counts.min() < counts.max():
        few, many = counts.min(), counts.max()
        update["notes"] = [
            f"starts have {few} to {many} outcomes; each counts with those it has, but only those with {many} can rule"
            " headroom out"
        ]
    return worded(cell.model_copy(update=update))


def _write(directory: Path, result: Result, recordings: Sequence[Recording]) -> None:
    if (directory / "run.json").exists():
        raise IngestError(f"{directory} holds a diagnosis; choose another directory with `out`")
    directory.mkdir(parents=True, exist_ok=True)
    result.save(directory / "result.json")
    _write_outcomes(directory / "outcomes.csv", recordings)


def _write_outcomes(path: Path, recordings: Sequence[Recording]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow((*OWN, "file"))
        for recording in recordings:
            for episode in recording.episodes:
                values = [*(getattr(episode, name) for name in OWN), recording.path]
                table.writerow([int(v) if isinstance(v, bool) else csv_cell(v) for v in values])


def _order(episode: Episode) -> tuple[Any, ...]:
    """The order of takes of one start, which does not depend on the order of files and rows."""
    won = -1 if episode.success is None else int(episode.success)
    steps = -1 if episode.steps is None else episode.steps
    return _natural(episode.seed), won, steps, episode.error


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers in the order of numbers, before words."""
    try:
        number = float(text)
    except ValueError:
        return (1, 0.0, text)
    return (0, number, text) if math.isfinite(number) else (1, 0.0, text)
