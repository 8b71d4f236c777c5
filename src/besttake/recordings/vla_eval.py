"""vla-eval: its SQLite recording, and the JSON that ``vla-eval export`` makes of it (version 0.8)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake.recordings.episodes import Episode, IngestError, Recording

# As vla-eval's own export: when an episode was run again, its last result counts.
_EPISODES = """
select task_name, episode_id, status, metrics, steps, context, failure_reason, failure_detail
from episode_results where rowid in (
    select max(rowid) from episode_results where eval_id = ?
    group by task_name, episode_id, json_extract(context, '$.task_idx'),
             case when json_extract(context, '$.task_idx') is null then rowid end
)
order by rowid
"""


def is_recording(path: Path) -> bool:
    """Whether ``path`` is an SQLite file."""
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def read_recording(path: Path) -> list[Recording]:
    """One source per benchmark of a ``recording-<id>.sqlite``. The file is opened to read only."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return [
                _recording(
                    path,
                    "vla-eval recording",
                    evaluation["eval_id"],
                    json.loads(evaluation["metadata"]),
                    [_recorded(row) for row in database.execute(_EPISODES, (evaluation["eval_id"],))],
                )
                for evaluation in database.execute("select eval_id, metadata from eval_metadata").fetchall()
            ]
    except (sqlite3.DatabaseError, ValueError) as error:
        raise IngestError(
            f"{path}: not a vla-eval recording ({error}); give a recording-<id>.sqlite of vla-eval 0.8"
        ) from error


def is_export(data: Any) -> bool:
    """Whether parsed JSON is an aggregate that vla-eval wrote."""
    return isinstance(data, dict) and "benchmark" in data and isinstance(data.get("tasks"), list)


def read_export(path: Path, data: Mapping[str, Any]) -> list[Recording]:
    """The aggregate JSON of one benchmark."""
    episodes = [
        {**episode, "task_name": task["task"]} for task in data["tasks"] for episode in task.get("episodes", ())
    ]
    return [_recording(path, "vla-eval export", str(data.get("eval_id", "")), data, episodes)]


def _recorded(row: sqlite3.Row) -> dict[str, Any]:
    context = json.loads(row["context"]) if row["context"] else {}
    metrics = json.loads(row["metrics"]) if row["metrics"] else {}
    names = ("task_name", "episode_id", "steps", "failure_reason", "failure_detail")
    return {**context, **{name: row[name] for name in names}, "metrics": metrics}


def _recording(path: Path, kind: str, name: str, about: Mapping[str, Any], rows: list[dict[str, Any]]) -> Recording:
    benchmark = str(about.get("benchmark") or "vla-eval")
    policy = str((about.get("server_info") or {}).get("model_server") or "")
    episodes = tuple(_episode(path, row, benchmark, policy) for row in rows)
    versions = {"vla-eval": str(about["harness_version"])} if about.get("harness_version") else {}
    notes = []
    if about.get("partial"):
        notes.append(f"{path.name}: vla-eval marked this evaluation as unfinished")
    return Recording(str(path), kind, episodes, name, versions, tuple(notes))


def _episode(path: Path, row: Mapping[str, Any], benchmark: str, policy: str) -> Episode:
    task = str(row.get("task_name") or "unknown")
    metrics = row.get("metrics") or {}
    reason = str(row.get("failure_reason") or "")
    if not reason and "success" not in metrics:
        known = ", ".join(map(str, metrics)) or "none"
        raise IngestError(f"{path}: an episode of {task!r} has no metric 'success' (metrics: {known})")
    detail = str(row.get("failure_detail") or "").strip().splitlines()
    # A wrapped count (throughput mode) names the start that was really reset; the plain one is its place in the run.
    start = row.get("episode_idx", row.get("episode_id"))
    steps = row.get("steps")
    return Episode(
        task=task,
        start=str(start),
        success=None if reason else bool(metrics["success"]),
        policy=policy,
        env=benchmark,
        steps=int(steps) if steps is not None and not reason else None,
        error=f"{reason}: {detail[-1]}" if reason and detail else reason,
    )
