"""Results of lerobot-eval: ``eval_info.json``, and the data set that ``--eval.recording=true`` writes.

``eval_info.json`` is read in its present form (``per_task``, as of 0.6.1) and in the older one (``per_episode``).

Recordings have the layout of ``lerobot/scripts/lerobot_eval.py`` of lerobot 0.6.1:
``OUTPUT/recordings/GROUP_ID[/env_3]``, one data set of format v3 per task, and one per simulator if several run at
once. An episode succeeded if any of its steps has ``next.success``. Episodes that reached the step limit of the
evaluation are not saved, so ``eval_info.json`` is the better source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake.errors import one_line
from besttake.files import links_out
from besttake.recordings.episodes import (
    Episode,
    IngestError,
    Recording,
    UnknownFormat,
    files_under,
    outcome_at,
    read_json,
)

BY_ORDER = (
    "lerobot-eval does not record which start an episode had: episodes of several evaluations were paired by their "
    "place, which holds where starts do not depend on --seed or --eval.batch_size"
)


def is_info(data: Any) -> bool:
    """Whether parsed JSON is an ``eval_info.json``."""
    return isinstance(data, dict) and ("per_task" in data or "per_episode" in data)


def read_info(path: Path, data: Mapping[str, Any]) -> list[Recording]:
    """Read the episodes of one evaluation."""
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


SUCCESS = "next.success"
_TASK = re.compile(r"^(?P<group>.+)_(?P<id>\d+)$")
_ENV = re.compile(r"^env_(\d+)$")
_CUT = (
    "lerobot-eval saves only episodes that the env itself ended: those cut off by the evaluation's step limit are not "
    "in a recording, and eval_info.json has them"
)


def read_data_set(root: Path) -> list[Recording]:
    """Read the episodes of a data set with the feature ``next.success``."""
    if (link := next(links_out(root), None)) is not None:
        raise IngestError(f"{link} is a link that leads out of the data set; copy the file into it")
    info = read_json(root / "meta" / "info.json")
    features = info.get("features") if isinstance(info, dict) else None
    if not isinstance(features, dict) or SUCCESS not in features:
        raise UnknownFormat(
            f"{root}: a LeRobot data set without {SUCCESS}, so it does not say which episodes succeeded"
        )
    wins, steps = _outcomes(root)
    where = root.resolve()
    simulator = _ENV.match(where.name)
    folder = where.parent if simulator else where
    many = sum(bool(_ENV.match(p.name)) for p in folder.iterdir() if p.is_dir()) if simulator else 1
    first = int(simulator[1]) if simulator else 0
    named = _TASK.match(folder.name)
    group, task = (named["group"], f"{named['group']}/{named['id']}") if named else (folder.name, folder.name)
    episodes = tuple(
        Episode(task, str(first + place * many), wins[number], env=group, steps=steps[number])
        for place, number in enumerate(sorted(wins))
    )
    recorded = folder.parent.name == "recordings"
    evaluation = folder.parents[1] if recorded else folder
    return [
        Recording(
            str(root), "LeRobot data set", episodes, notes=(BY_ORDER, _CUT) if recorded else (BY_ORDER,),
            origin=str(evaluation / "eval_info.json") if recorded else str(where), words="/".join(evaluation.parts),
        )
    ]  # fmt: skip


def _outcomes(root: Path) -> tuple[dict[int, bool], dict[int, int]]:
    """Whether each episode succeeded, and its steps, read a few thousand rows at a time."""
    import pyarrow.lib
    import pyarrow.parquet

    wins: dict[int, bool] = {}
    steps: dict[int, int] = {}
    data = root / "data"
    for path in files_under(data) if data.is_dir() else ():
        if path.suffix != ".parquet":
            continue
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=8192, columns=["episode_index", SUCCESS]):
                    numbers, values = (batch.column(name).to_pylist() for name in ("episode_index", SUCCESS))
                    for episode, value in zip(numbers, values, strict=True):
                        wins[int(episode)] = wins.get(int(episode), False) or _step(path, value)
                        steps[int(episode)] = steps.get(int(episode), 0) + 1
        except (OSError, pyarrow.lib.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise IngestError(f"{path}: not the data of a LeRobot data set ({one_line(error, 120)})") from error
    if not wins:
        raise IngestError(f"{root}: the data set has no episode")
    return wins, steps


def _step(path: Path, value: Any) -> bool:
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(value, bool):
        raise IngestError(f"{path}: {SUCCESS} is {value!r:.40}, and a step either succeeded or did not (true or false)")
    return value
