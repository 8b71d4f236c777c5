"""Result files of evaluation harnesses: vla-eval and lerobot-eval.

vla-eval: its SQLite recording, and the JSON of ``vla-eval export`` (0.8), of runs and merged shards (0.1). Layouts:
``vla_eval/recording.py`` and ``results/export.py`` of vla-eval 0.8.0; ``results/merge.py`` and the orchestrator of
0.1.0, whose files ``NAME_shard0of4.json`` stay beside the file that ``vla-eval merge`` makes of them.

lerobot-eval: ``eval_info.json`` in its present form (``per_task``, as of 0.6.1) and the older one (``per_episode``).
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from besttake import files
from besttake.errors import one_line
from besttake.recordings.episodes import (
    Episode,
    IngestError,
    Recording,
    UnknownFormat,
    is_timeout,
    outcome_at,
    read_json,
    whole,
)

# As in vla-eval's own export, the last result counts if an episode was run again.
_EPISODES = """
select sid, eid, task_name, episode_id, status, metrics, steps, elapsed_sec, context, failure_reason, failure_detail
from episode_results where rowid in (
    select max(rowid) from episode_results where eval_id = ?
    group by task_name, episode_id, json_extract(context, '$.task_idx'),
             case when json_extract(context, '$.task_idx') is null then rowid end
)
order by rowid
"""
_COLUMNS = ("sid", "eid", "task_name", "episode_id", "steps", "elapsed_sec", "failure_reason", "failure_detail")


def is_recording(path: Path) -> bool:
    """Whether ``path`` is an SQLite file."""
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def read_recording(path: Path) -> list[Recording]:
    """Read a ``recording-<id>.sqlite``, one recording per benchmark. The file is opened read-only."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            recordings = []
            for one in database.execute("select eval_id, metadata from eval_metadata").fetchall():
                rows = [_recorded(row) for row in database.execute(_EPISODES, (one["eval_id"],))]
                about = _object(files.read_json(one["metadata"]))
                recordings.append(_recording(path, "vla-eval recording", str(one["eval_id"]), about, rows))
            return recordings
    except (sqlite3.Error, ValueError, TypeError, RecursionError, OverflowError) as error:
        # Other programs keep databases, too (a BestTake run its takes).
        kind = UnknownFormat if "no such table" in str(error) else IngestError
        raise kind(
            f"{path}: not a vla-eval recording ({one_line(error)}); give a recording-<id>.sqlite of vla-eval 0.8"
        ) from error


def read_results(path: Path) -> list[Recording]:
    """Read the JSON file of a harness, recognised by its keys; return nothing for any other file."""
    data = read_json(path)
    if isinstance(data, dict):
        if "benchmark" in data and isinstance(data.get("tasks"), list):
            return [_export(path, data)]
        if "per_task" in data or "per_episode" in data:
            return [_info(path, data)]
    return []


def _export(path: Path, data: Mapping[str, Any]) -> Recording:
    """The aggregate JSON of one vla-eval benchmark, or of one shard of it."""
    rows = []
    for task in data["tasks"]:
        # `metrics` came with 0.1; before it, success stood in the episode itself.
        rows += [
            {"metrics": {k: e[k] for k in ("success",) if k in e}, **e, "task_name": task["task"]}
            for e in map(_object, task.get("episodes") or ())
        ]
    return _recording(path, "vla-eval export", str(data.get("eval_id") or ""), data, rows)


def _recorded(row: sqlite3.Row) -> dict[str, Any]:
    context = _object(files.read_json(row["context"])) if row["context"] else {}
    metrics = files.read_json(row["metrics"]) if row["metrics"] else {}
    return {**context, **{name: row[name] for name in _COLUMNS}, "metrics": metrics}


def _object(value: Any, kind: type[dict[str, Any]] | type[list[Any]] = dict) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.40} where a {kind.__name__} is needed")
    return value


def _recording(path: Path, kind: str, name: str, about: Mapping[str, Any], rows: list[dict[str, Any]]) -> Recording:
    benchmark = str(about.get("benchmark") or "vla-eval")
    server = str((about.get("server_info") or {}).get("model_server") or "")
    settings = (about.get("config") or {}).get("params") or {}
    env_seed = str(settings.get("seed") or "")
    episodes = tuple(replace(_episode(path, row, benchmark), env_seed=env_seed) for row in rows)
    versions = {"vla-eval": str(about["harness_version"])} if about.get("harness_version") else {}
    notes = []
    if about.get("partial"):
        notes.append(f"{path.name}: vla-eval marked this evaluation as unfinished")
    folder = path.resolve().parent
    # A run of vla-eval has one server: its benchmarks, its shards and their merged file are of one policy.
    run = name.removesuffix(f"-{benchmark}") if name else path.name
    if not name and (about.get("shard") or about.get("merge_info")):
        run = f"shards of {benchmark}"
    words = "/".join(folder.parts)
    resets = "start" if "libero" in benchmark.lower() else ""  # the initial state of that number
    return Recording(str(path), kind, episodes, versions, tuple(notes), server, f"{folder}/{run}", words, resets)


def _episode(path: Path, row: Mapping[str, Any], benchmark: str) -> Episode:
    task = str(row.get("task_name") or "unknown")
    metrics = _object(row.get("metrics") or {})
    reason = str(row.get("failure_reason") or "")
    # In throughput mode `episode_idx` is the start that was reset, and `episode_id` only counts.
    start = _start(row.get("episode_idx", row.get("episode_id")))
    if not reason and "success" not in metrics:
        known = ", ".join(map(str, metrics)) or "none"
        raise IngestError(f"{path}: an episode of {task!r} has no metric 'success' (metrics: {known})")
    late = is_timeout(reason)
    won = None if reason else outcome_at(f"{path}: episode {start} of {task!r}", metrics["success"])
    detail = str(row.get("failure_detail") or "").strip().splitlines()
    return Episode(
        task=task, start=start, success=False if late else won, timeout=late, env=benchmark,
        steps=None if reason else whole(row.get("steps")),
        error=f"{reason}: {detail[-1]}" if reason and detail else reason, uid=_uid(row, task),
    )  # fmt: skip


def _start(value: Any) -> str:
    """The number of an initial state. Before 0.1 an episode was called ``TASK_ep3``."""
    match = re.search(r"_ep(\d+)$", value) if isinstance(value, str) else None
    return match[1] if match else str(value)


def _uid(row: Mapping[str, Any], task: str) -> str:
    if row.get("eid"):
        return f"{row.get('sid')}/{row['eid']}"
    if row.get("elapsed_sec") is None:
        return ""
    return f"~{task}/{row.get('episode_id')}/{row.get('steps')}/{row['elapsed_sec']}"


BY_ORDER = (
    "lerobot-eval does not record which start an episode had: episodes of several evaluations were paired by their "
    "place, which holds where starts do not depend on --seed or --eval.batch_size"
)


def _info(path: Path, data: Mapping[str, Any]) -> Recording:
    """An ``eval_info.json`` of lerobot-eval."""
    if "per_task" in data:
        episodes, by_order = _by_task(path, data["per_task"]), True
    else:
        rows = _object(data["per_episode"], list)
        by_order = any(row.get("seed") is None for row in rows)
        start = "episode_ix" if by_order else "seed"
        episodes = [
            Episode("task", str(row[start]), outcome_at(f"{path}: episode {i}", row["success"]))
            for i, row in enumerate(rows)
        ]
    name = "" if path.name == "eval_info.json" else path.stem
    words = "/".join([*path.resolve().parent.parts, name])
    notes = (BY_ORDER,) if by_order else ()
    return Recording(str(path), "lerobot-eval", tuple(episodes), notes=notes, origin=str(path.resolve()), words=words)


def _by_task(path: Path, tasks: Any) -> list[Episode]:
    episodes = []
    for task in _object(tasks, list):
        group, name = str(task["task_group"]), f"{task['task_group']}/{task['task_id']}"
        for i, won in enumerate(_object(task["metrics"]["successes"], list)):
            episodes.append(Episode(name, str(i), outcome_at(f"{path}: episode {i} of {name}", won), env=group))
    return episodes
