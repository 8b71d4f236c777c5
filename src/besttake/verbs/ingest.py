"""Compute headroom, test-retest agreement and pass@k from outcomes that other tools recorded."""

from __future__ import annotations

import csv
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from besttake.arms import BASE
from besttake.config import check_worth
from besttake.core.agreement import sources
from besttake.core.headroom import mean, start_pass_at_k
from besttake.core.policy_pool import pools
from besttake.files import as_paths, version
from besttake.measure.arrays import ArmTakes, CellData, Settings
from besttake.measure.cell import measure_cell
from besttake.recordings.combine import FOLDER, check_numbered, name_policies, once_by_seed, seeded, tasks_by_folder
from besttake.recordings.episodes import Episode, IngestError, Recording
from besttake.recordings.logs import LIBERO, LogFormat
from besttake.recordings.read import read
from besttake.recordings.starts import choose_starts, success_value, values_by_take
from besttake.recordings.tabular import OWN
from besttake.reporting.numbers import count, percent
from besttake.reporting.result_tables import rates
from besttake.reporting.table import Entry, Head, Table, Tabular, in_points, plain, right
from besttake.reporting.words import with_headline
from besttake.result import Cell, Cost, Estimate, Relation, Result, StartAudit
from besttake.sanitize import csv_cell
from besttake.takes.scores import ScoreName
from besttake.threads import one_thread
from besttake.types import F64, I64

UNKNOWN = (
    "outcomes alone: {}what cooling or retrieval would gain, and the fit to demonstrations are not known; "
    "`besttake diagnose` measures them"
)
_ALONE = "one outcome per start: headroom is not known; ingest further runs of the same starts together with this one"
_NO_RELATION = "Outcomes alone hold no gain of selection, so it cannot be set against headroom."
_WINDOWS = ("common", "episode")
_MEAN, _LAST = "mean of the values", "last value"
_HARDLY = 0.2
"""If takes agree beyond chance by less than this, they hardly share a start."""
_MOST_TASKS = 40
"""With more tasks than this in a cell, tables have one line per group of tasks."""


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
        for policy in result.policies:
            cells = [cell for cell in result.cells if cell.policy == policy.policy]
            for cell in (policy, *cells) if len(cells) > 1 else cells:
                pass_1, pass_n, headroom = rates(cell)
                group = "all" if cell.group == "*" else cell.group
                gap = _rate(None) if headroom is None or headroom.value is None else in_points(headroom)
                rows.append((
                    cell.policy, group, cell.starts, cell.headroom.n if cell.headroom else 0, _rate(pass_1),
                    _rate(pass_n), gap, plain(cell.audit.sources.start if cell.audit else None),
                ))  # fmt: skip
        columns: Head = ["policy", "tasks", *right("starts", "N", "pass@1", "pass@N", "headroom")]
        columns += right("kappa", extra=True)
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
    patterns: Sequence[str] = (),
    timeouts: Literal["failures", "missing"] = "failures",
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
        columns: Columns of a table that have other names, as ``{"success": "won", "start": "scene"}``; ``group`` is
            the column by which tasks are grouped. The start ``scene/`` is the number in paths such as ``scene_3/``, and
            ``scene/id`` the column ``id`` within it. The task ``folder/`` is the folder, as in ``open_the_drawer/``.
        patterns: Regular expressions with named groups for the lines of a log, or one YAML file that holds them.
        timeouts: How to count episodes that ran out of time.
        worth: Smallest effect worth acting on, in percentage points.
        command: The command line to record in the result, if there was one.

    Raises:
        IngestError: A file cannot be read, or the policy or start that it belongs to is ambiguous.

    Examples:
        >>> besttake.ingest("results/").result.policies[0].headroom.headroom  # doctest: +SKIP
    """
    check_worth(worth)
    names = {} if isinstance(policy_name, str) else policy_name
    by_folder = {ours for ours, theirs in (columns or {}).items() if theirs == FOLDER and ours in ("task", "seed")}
    in_table = {ours: theirs for ours, theirs in (columns or {}).items() if ours not in by_folder}
    recordings, notes = read(as_paths(paths), in_table, names, LogFormat.of(patterns) if patterns else LIBERO)
    unnamed = {(one.path, one.origin) for one in recordings if any(not episode.policy for episode in one.episodes)}
    recordings, name_notes = name_policies(recordings, policy_name)
    recordings = tasks_by_folder(recordings) if "task" in by_folder else recordings
    recordings, start_notes = choose_starts(seeded(recordings), (columns or {}).get("start", ""))
    check_numbered(recordings, unnamed, {policy_name} if isinstance(policy_name, str) else {*policy_name.values()})
    recordings, overlap_notes = once_by_seed(recordings, repeats="seed" in by_folder)
    recordings = [
        replace(recording, episodes=tuple(_complete(episode, timeouts == "failures") for episode in recording.episodes))
        for recording in recordings
    ]
    episodes = [episode for recording in recordings for episode in recording.episodes]
    with one_thread():
        all_notes = [*name_notes, *start_notes, *_error_notes(episodes, timeouts), *overlap_notes, *notes]
        result = _result(recordings, all_notes, worth / 100, command)
    directory = Path(out) if out is not None else None
    if directory is not None:
        _write(directory, result, recordings)
    return IngestResult(result, tuple(recordings), directory)


def _error_notes(episodes: Sequence[Episode], timeouts: str) -> list[str]:
    """Say how many episodes ended in an error, and how they count."""
    late = sum(episode.timeout for episode in episodes)
    crashed = sum(bool(episode.error) and episode.success is None and not episode.timeout for episode in episodes)
    notes = [f"{count(late, 'episode')} ran out of time and count as {timeouts}"] if late else []
    return notes + ([f"{count(crashed, 'episode')} ended in another error and count as missing"] if crashed else [])


def _complete(episode: Episode, timeouts_fail: bool) -> Episode:
    """The episode with an env, and without an outcome if it ran out of time and timeouts are not failures."""
    success = None if episode.timeout and not timeouts_fail else episode.success
    if episode.env and success is episode.success:
        return episode
    return replace(episode, env=episode.env or "outcomes", success=success)


def _result(recordings: Sequence[Recording], notes: list[str], worth: float, command: str) -> Result:
    by_policy = _starts_by_policy(recordings)
    resets = {
        e.policy: recording.resets for recording in recordings if recording.resets for e in recording.episodes[:1]
    }
    cells, policies = [], []
    for policy, starts in by_policy.items():
        by_env: dict[str, Starts] = defaultdict(dict)
        for key, takes in starts.items():
            by_env[key[0]][key] = takes
        parts = [_cell(policy, env, by_env[env], worth, resets.get(policy, "")) for env in sorted(by_env, key=_natural)]
        whole = _cell(policy, "*", starts, worth, resets.get(policy, "")) if len(parts) > 1 else parts[0]
        cells += parts
        policies.append(whole.model_copy(update={"group": "*"}))
    episodes = [episode for recording in recordings for episode in recording.episodes]
    done = [episode for episode in episodes if episode.success is not None]
    scored = all(cell.selectors is not None for cell in policies)
    outcomes = {policy: values_by_take(starts.values(), success_value) for policy, starts in by_policy.items()}
    return Result(
        besttake=version(),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        command=command,
        digest="",
        plan={"ingested": [recording.path for recording in recordings]},
        versions={name: v for recording in recordings for name, v in recording.versions.items()},
        library=None,
        worth=worth,
        cells=cells,
        policies=policies,
        relation=Relation(reason=_NO_RELATION),
        cost=Cost(
            takes=len(done), errors=len(episodes) - len(done), steps=sum(episode.steps or 0 for episode in done),
            policy_calls=0, frames_scored=0, frames_encoded=0, seconds={},
        ),
        pools=pools({policy: [*starts] for policy, starts in by_policy.items()}, outcomes, {}),
        notes=[UNKNOWN.format("" if scored else "what a score would pick, "), *notes],
    )  # fmt: skip


Starts = dict[tuple[str, str, str], list[Episode]]
"""The episodes of each start (env, task, start) of a policy, in the order of its takes."""


def _starts_by_policy(recordings: Sequence[Recording]) -> dict[str, Starts]:
    """Group the episodes of each policy by start, in an order that does not depend on files and rows."""
    groups: dict[str, Starts] = defaultdict(lambda: defaultdict(list))
    for recording in recordings:
        for episode in recording.episodes:
            groups[episode.policy][episode.env, episode.task, episode.start].append(episode)
    return {
        policy: {key: sorted(own[key], key=_order) for key in sorted(own, key=lambda key: tuple(map(_natural, key)))}
        for policy, own in sorted(groups.items(), key=lambda item: _natural(item[0]))
    }


def _chosen_from(counts: I64) -> int:
    """Return the number of takes N that uses the most outcomes, where starts with fewer than N takes are left out."""
    return max(range(1, int(counts.max(initial=1)) + 1), key=lambda n: (int((counts >= n).sum()) * (n - 1), n))


def _cell(policy: str, env: str, starts: Starts, worth: float, resets: str) -> Cell:
    """Measure one cell on the starts that have enough outcomes."""
    outcomes = values_by_take(starts.values(), success_value)
    counts = np.isfinite(outcomes).sum(axis=1)
    n = _chosen_from(counts)
    enough = counts >= n
    if not enough.any():
        n, enough = 1, counts > 0
    used = {key: takes for (key, takes), kept in zip(starts.items(), enough, strict=True) if kept} or starts
    data = _data(policy, env, used, sum(take.success is None for takes in starts.values() for take in takes))
    cell = measure_cell(data, Settings(data.arms[BASE].outcomes.shape[1], n, worth, data.scorer))
    update: dict[str, Any] = {"arms": None, "rejection": None, "notes": [], "audit": _audit(starts, resets)}
    if not data.scored:
        update |= {"selectors": None, "ranking": None}
    few = len(starts) - len(used)
    if n == 1:
        update |= {"verdict": None, "notes": [_ALONE]}
    elif few:
        overall = percent(mean(start_pass_at_k(outcomes, 1)))
        left_out = f"the others count in no number here (success over all starts: {overall})"
        update["notes"] = [f"{len(used)} of {len(starts)} starts have {n} outcomes or more; {left_out}"]
        if 2 * len(used) < len(starts):
            update |= {"verdict": None}
            update["notes"].append("most starts have too few outcomes for a verdict")
    if cell.headroom is not None and counts[enough].min() < counts[enough].max():
        update["headroom"] = cell.headroom.model_copy(update={"curve": cell.headroom.curve[:n]})
    return with_headline(cell.model_copy(update=update))


def _data(policy: str, env: str, starts: Starts, errors: int) -> CellData:
    """Turn episodes into arrays. If there are more than `_MOST_TASKS` tasks, groups of tasks count as tasks."""
    grouped = len({key[:2] for key in starts}) > _MOST_TASKS
    counts: Counter[tuple[str, str]] = Counter()
    units = []
    for (suite, task, _), takes in starts.items():
        label = (takes[0].group or "all tasks") if grouped else task
        units.append((suite, label, counts[suite, label]))
        counts[suite, label] += 1
    outcomes = values_by_take(starts.values(), success_value)
    lengths = values_by_take(
        starts.values(), lambda take: take.steps if take.steps is not None else len(take.values) or None
    )
    return CellData(
        policy=policy, env=", ".join(dict.fromkeys(key[0] for key in starts)) if env == "*" else env, group=env,
        units=tuple(units), arms={BASE: ArmTakes(outcomes, lengths, _scores(starts))}, windows=_WINDOWS, scorer=_LAST,
        planned=int(np.isfinite(outcomes).sum()) + errors, errors=errors,
    )  # fmt: skip


def _scores(starts: Starts) -> dict[ScoreName, F64]:
    """The mean and the last logged value of each take, over all of it or until the shortest of its start ends."""
    if not any(take.values for takes in starts.values() for take in takes):
        return {}
    shortest = [(takes, min(len(take.values) for take in takes)) for takes in starts.values()]
    ends = {id(take): end for takes, end in shortest for take in takes}

    def score(summary: Callable[[tuple[float, ...]], float], window: str) -> F64:
        def value(take: Episode) -> float | None:
            logged = take.values[: ends[id(take)]] if window == "common" else take.values
            return summary(logged) if logged else None

        return values_by_take(starts.values(), value)

    kinds: dict[str, Callable[[tuple[float, ...]], float]] = {_MEAN: lambda v: sum(v) / len(v), _LAST: lambda v: v[-1]}
    return {ScoreName(name, window): score(kind, window) for name, kind in kinds.items() for window in _WINDOWS}


def _audit(starts: Starts, resets: str) -> StartAudit:
    """Check whether the takes of a start really begin in the same state."""
    outcomes = values_by_take(starts.values(), success_value)
    numbers: dict[str, float] = defaultdict(lambda: float(len(numbers)))
    seeds, envs = (
        values_by_take(starts.values(), lambda e, name=name: numbers[text] if (text := getattr(e, name)) else None)  # type: ignore[misc]
        for name in ("seed", "env_seed")
    )
    agreement = sources(outcomes, [key[:2] for key in starts], envs, seeds)
    low, high = agreement.start.low, agreement.start.high
    shared = {name: _shared(starts, name) for name in ("env_seed", "state")}
    doubt = "state" if shared["state"] == "varies" else "resets" if resets == "task" else ""
    if not doubt and low is not None and high is not None and low <= 0:
        doubt = "chance" if high < _HARDLY else "few"
    if not doubt and agreement.start.value is None and max(map(len, starts.values())) > 1:
        doubt = "" if resets == "start" or shared["state"] else "unknown"
    return StartAudit(resets=resets, sources=agreement, doubt=doubt, **shared)


def _shared(starts: Starts, name: str) -> str:
    """``"same"`` if all takes of each start have the same value of ``name``, else ``"varies"``; empty if unrecorded."""
    values = [{getattr(take, name) for take in takes} - {""} for takes in starts.values() if len(takes) > 1]
    return "" if not any(values) else "varies" if any(len(different) > 1 for different in values) else "same"


def _write(directory: Path, result: Result, recordings: Sequence[Recording]) -> None:
    if (directory / "run.json").exists():
        raise IngestError(f"{directory} holds a diagnosis; choose another directory with `out`")
    directory.mkdir(parents=True, exist_ok=True)
    result.save(directory / "result.json")
    with (directory / "outcomes.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow((*OWN, "file"))
        for recording in recordings:
            for episode in recording.episodes:
                values = [*(getattr(episode, name) for name in OWN), recording.path]
                table.writerow([int(v) if isinstance(v, bool) else csv_cell(v) for v in values])


def _order(episode: Episode) -> tuple[Any, ...]:
    """Return a sort key for the takes of one start that does not depend on the order of files and rows."""
    won = -1 if episode.success is None else int(episode.success)
    steps = -1 if episode.steps is None else episode.steps
    return _natural(episode.seed), won, steps, episode.error


def _natural(text: str) -> tuple[int, float, str]:
    """Return a sort key that puts numbers in numerical order, before words."""
    try:
        number = float(text)
    except ValueError:
        return (1, 0.0, text)
    return (0, number, text) if math.isfinite(number) else (1, 0.0, text)
