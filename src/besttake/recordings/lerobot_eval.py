"""lerobot-eval: ``eval_info.json``, of today (``per_task``, as of 0.6.1) and the older kind (``per_episode``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake.recordings.episodes import Episode, IngestError, Recording, outcome_at

BY_ORDER = (
    "lerobot-eval does not record which start an episode had: episodes of several evaluations were paired by their "
    "place, which holds where starts do not depend on --seed or --eval.batch_size"
)


def is_info(data: Any) -> bool:
    """Whether parsed JSON is an ``eval_info.json``."""
    return isinstance(data, dict) and ("per_task" in data or "per_episode" in data)


def read_info(path: Path, data: Mapping[str, Any]) -> list[Recording]:
    """The episodes of one evaluation."""
    try:
        episodes, by_order = _tasks(path, data["per_task"]) if "per_task" in data else _old(path, data["per_episode"])
    except (KeyError, TypeError, AttributeError) as error:
        raise IngestError(
            f"{path}: not an eval_info.json of lerobot-eval (no {error}); give the file that lerobot-eval wrote"
        ) from error
    name = "" if path.name == "eval_info.json" else path.stem
    words = "/".join([*path.resolve().parent.parts, name])
    notes = (BY_ORDER,) if by_order else ()
    return [Recording(str(path), "lerobot-eval", episodes, notes=notes, origin=str(path.resolve()), words=words)]


def _tasks(path: Path, tasks: Any) -> tuple[tuple[Episode, ...], bool]:
    episodes = []
    for task in _list(tasks, "per_task"):
        group, name = str(task["task_group"]), f"{task['task_group']}/{task['task_id']}"
        for i, won in enumerate(_list(task["metrics"]["successes"], "successes")):
            episodes.append(Episode(name, str(i), outcome_at(f"{path}: episode {i} of {name}", won), env=group))
    return tuple(episodes), True


def _old(path: Path, recorded: Any) -> tuple[tuple[Episode, ...], bool]:
    rows = _list(recorded, "per_episode")
    seeded = all(row.get("seed") is not None for row in rows)
    name = "seed" if seeded else "episode_ix"
    won = [outcome_at(f"{path}: episode {i}", row["success"]) for i, row in enumerate(rows)]
    return tuple(Episode("task", str(row[name]), w) for row, w in zip(rows, won, strict=True)), not seeded


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"list called {name}")
    return value
