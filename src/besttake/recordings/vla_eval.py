"""vla-eval: its SQLite recording, and the JSON of ``vla-eval export`` (0.8), of runs and merged shards (0.1).

Layouts: ``vla_eval/recording.py`` and ``results/export.py`` of vla-eval 0.8.0; ``results/merge.py`` and the
orchestrator of 0.1.0, whose files ``NAME_shard0of4.json`` stay beside the file that ``vla-eval merge`` makes of them.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake import files
from besttake.errors import one_line
from besttake.recordings.episodes import Episode, IngestError, Recording, UnknownFormat, outcome_at, whole

# As vla-eval's own export: when an episode was run again, its last result counts.
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
            return [
                _recording(
                    path,
                    "vla-eval recording",
                    str(evaluation["eval_id"]),
                    _object(files.read_json(evaluation["metadata"])),
                    [_recorded(row) for row in database.execute(_EPISODES, (evaluation["eval_id"],))],
                )
                for evaluation in database.execute("select eval_id, metadata from eval_metadata").fetchall()
            ]
    except (sqlite3.Error, ValueError, TypeError, RecursionError, OverflowError) as error:
        # Other programs keep databases, too (a BestTake run its takes).
        kind = UnknownFormat if "no such table" in str(error) else IngestError
        raise kind(
            f"{path}: not a vla-eval recording ({one_line(error)}); give a recording-<id>.sqlite of vla-eval 0.8"
        ) from error


def is_export(data: Any) -> bool:
    """Whether parsed JSON is an aggregate that vla-eval wrote."""
    return isinstance(data, dict) and "benchmark" in data and isinstance(data.get("tasks"), list)


def read_export(path: Path, data: Mapping[str, Any]) -> list[Recording]:
    """Read the aggregate JSON of one benchmark, or of one shard of it."""
    try:
        rows = []
        for task in data["tasks"]:
            # `metrics` came with 0.1; before it, success stood in the episode itself.
            rows += [
                {"metrics": {k: e[k] for k in ("success",) if k in e}, **e, "task_name": task["task"]}
                for e in map(_object, task.get("episodes") or ())
            ]
        return [_recording(path, "vla-eval export", str(data.get("eval_id") or ""), data, rows)]
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise IngestError(
            f"{path}: not the JSON of a vla-eval evaluation ({one_line(error)}); export it again with vla-eval"
        ) from error


def _recorded(row: sqlite3.Row) -> dict[str, Any]:
    context = _object(files.read_json(row["context"])) if row["context"] else {}
    metrics = files.read_json(row["metrics"]) if row["metrics"] else {}
    return {**context, **{name: row[name] for name in _COLUMNS}, "metrics": metrics}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} where an object is needed")
    return value


def _recording(path: Path, kind: str, name: str, about: Mapping[str, Any], rows: list[dict[str, Any]]) -> Recording:
    benchmark = str(about.get("benchmark") or "vla-eval")
    server = str((about.get("server_info") or {}).get("model_server") or "")
    episodes = tuple(_episode(path, row, benchmark) for row in rows)
    versions = {"vla-eval": str(about["harness_version"])} if about.get("harness_version") else {}
    notes = []
    if about.get("partial"):
        notes.append(f"{path.name}: vla-eval marked this evaluation as unfinished")
    folder = path.resolve().parent
    # One run of vla-eval has one server: its benchmarks, its shards and the file merged of them are of one policy.
    run = name.removesuffix(f"-{benchmark}") if name else path.name
    if not name and (about.get("shard") or about.get("merge_info")):
        run = f"shards of {benchmark}"
    words = "/".join(folder.parts)
    return Recording(str(path), kind, episodes, name, versions, tuple(notes), server, f"{folder}/{run}", words)


def _episode(path: Path, row: Mapping[str, Any], benchmark: str) -> Episode:
    task = str(row.get("task_name") or "unknown")
    metrics = _object(row.get("metrics") or {})
    reason = str(row.get("failure_reason") or "")
    # A wrapped count (throughput mode) names the start that was really reset; the plain one is its place in the run.
    start = _start(row.get("episode_idx", row.get("episode_id")))
    if not reason and "success" not in metrics:
        known = ", ".join(map(str, metrics)) or "none"
        raise IngestError(f"{path}: an episode of {task!r} has no metric 'success' (metrics: {known})")
    won = None if reason else outcome_at(f"{path}: episode {start} of {task!r}", metrics["success"])
    detail = str(row.get("failure_detail") or "").strip().splitlines()
    return Episode(
        task=task,
        start=start,
        success=won,
        env=benchmark,
        steps=None if reason else whole(row.get("steps")),
        error=f"{reason}: {detail[-1]}" if reason and detail else reason,
        uid=_uid(row, task),
    )


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
