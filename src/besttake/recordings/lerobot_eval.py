"""lerobot-eval: ``eval_info.json``, of today (``per_task``, as of 0.6.1) and the older kind (``per_episode``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake.recordings.episodes import Episode, IngestError, Recording

_BY_ORDER = (
    "lerobot-eval does not record which start an episode had: episodes of several files were paired by their place, "
    "which holds where starts do not depend on --seed or --eval.batch_size"
)


def is_info(data: Any) -> bool:
    """Whether parsed JSON is an ``eval_info.json``."""
    return isinstance(data, dict) and ("per_task" in data or "per_episode" in data)


def read_info(path: Path, data: Mapping[str, Any]) -> list[Recording]:
    """The episodes of one evaluation."""
    try:
        if "per_task" in data:
            episodes = [
                Episode(f"{task['task_group']}/{task['task_id']}", str(i), _won(won), env=str(task["task_group"]))
                for task in data["per_task"]
                for i, won in enumerate(task["metrics"]["successes"])
            ]
            notes: tuple[str, ...] = (_BY_ORDER,)
        else:
            seeded = all(episode.get("seed") is not None for episode in data["per_episode"])
            episodes = [
                Episode("task", str(episode["seed"] if seeded else episode["episode_ix"]), _won(episode["success"]))
                for episode in data["per_episode"]
            ]
            notes = () if seeded else (_BY_ORDER,)
    except (KeyError, TypeError) as error:
        raise IngestError(
            f"{path}: not an eval_info.json of lerobot-eval (no {error}); give the file that lerobot-eval wrote"
        ) from error
    return [Recording(str(path), "lerobot-eval", tuple(episodes), notes=notes)]


def _won(value: Any) -> bool | None:
    """A success that may be a bool, a number, or NaN for an episode that gave none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return bool(value)
