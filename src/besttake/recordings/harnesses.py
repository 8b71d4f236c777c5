"""Result files of evaluation harnesses: vla-eval, lerobot-eval and ManiSkill.

vla-eval: its SQLite recording, and the JSON of ``vla-eval export`` (0.8), of runs and merged shards (0.1). Layouts:
``vla_eval/recording.py`` and ``results/export.py`` of vla-eval 0.8.0; ``results/merge.py`` and the orchestrator of
0.1.0, whose files ``NAME_shard0of4.json`` stay beside the file that ``vla-eval merge`` makes of them.

lerobot-eval: ``eval_info.json`` in its present form (``per_task``, as of 0.6.1) and the older one (``per_episode``),
and the data set that ``--eval.recording=true`` writes (``lerobot/scripts/lerobot_eval.py`` of lerobot 0.6.1):
``OUTPUT/recordings/GROUP_ID[/env_3]``, one data set of format v3 per task, and one per simulator if several run at
once. An episode succeeded if any of its steps has ``next.success``. Episodes that reached the step limit of the
evaluation are not saved, so ``eval_info.json`` is the better source.

ManiSkill: the JSON beside a trajectory file (``mani_skill/utils/wrappers/record.py``, ``RecordEpisode``, of ManiSkill
3.0.1): ``env_info`` and ``episodes``, each with ``episode_seed``, ``elapsed_steps``, ``reset_kwargs`` and, where the
task has one, ``success``.
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
from besttake.recordings.episodes import (
    Episode,
    IngestError,
    Recording,
    UnknownFormat,
    files_under,
    is_timeout,
    outcome_at,
    read_json,
    whole,
)

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
    """Read the JSON file of a harness, which its keys tell; nothing if it is none."""
    data = read_json(path)
    if isinstance(data, dict):
        if "benchmark" in data and isinstance(data.get("tasks"), list):
            return [_export(path, data)]
        if "per_task" in data or "per_episode" in data:
            return [_info(path, data)]
        if isinstance(data.get("env_info"), dict) and isinstance(data.get("episodes"), list):
            return [_trajectories(path, data)]
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
    resets = "start" if "libero" in benchmark.lower() else ""  # the initial state of that number
    return Recording(str(path), kind, episodes, name, versions, tuple(notes), server, f"{folder}/{run}", words, resets)


def _episode(path: Path, row: Mapping[str, Any], benchmark: str) -> Episode:
    task = str(row.get("task_name") or "unknown")
    metrics = _object(row.get("metrics") or {})
    reason = str(row.get("failure_reason") or "")
    # A wrapped count (throughput mode) names the start that was really reset; the plain one is its place in the run.
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


_BY_ORDER = (
    "lerobot-eval does not record which start an episode had: episodes of several evaluations were paired by their "
    "place, which holds where starts do not depend on --seed or --eval.batch_size"
)


def _info(path: Path, data: Mapping[str, Any]) -> Recording:
    """An ``eval_info.json`` of lerobot-eval."""
    if "per_task" in data:
        episodes, by_order = _by_task(path, data["per_task"]), True
    else:
        rows = _list(data["per_episode"], "per_episode")
        by_order = any(row.get("seed") is None for row in rows)
        start = "episode_ix" if by_order else "seed"
        episodes = [
            Episode("task", str(row[start]), outcome_at(f"{path}: episode {i}", row["success"]))
            for i, row in enumerate(rows)
        ]
    name = "" if path.name == "eval_info.json" else path.stem
    words = "/".join([*path.resolve().parent.parts, name])
    notes = (_BY_ORDER,) if by_order else ()
    return Recording(str(path), "lerobot-eval", tuple(episodes), notes=notes, origin=str(path.resolve()), words=words)


def _by_task(path: Path, tasks: Any) -> list[Episode]:
    episodes = []
    for task in _list(tasks, "per_task"):
        group, name = str(task["task_group"]), f"{task['task_group']}/{task['task_id']}"
        for i, won in enumerate(_list(task["metrics"]["successes"], "successes")):
            episodes.append(Episode(name, str(i), outcome_at(f"{path}: episode {i} of {name}", won), env=group))
    return episodes


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"list called {name}")
    return value


_SUCCESS = "next.success"
_LEROBOT_TASK = re.compile(r"^(?P<group>.+)_(?P<id>\d+)$")
_LEROBOT_ENV = re.compile(r"^env_(\d+)$")
_LEROBOT_CUT = (
    "lerobot-eval saves only episodes that the env itself ended: those cut off by the evaluation's step limit are not "
    "in a recording, and eval_info.json has them"
)


def read_data_set(root: Path) -> list[Recording]:
    """Read the episodes of a data set with the feature ``next.success``."""
    if (link := next(files.links_out(root), None)) is not None:
        raise IngestError(f"{link} is a link that leads out of the data set; copy the file into it")
    info = read_json(root / "meta" / "info.json")
    features = info.get("features") if isinstance(info, dict) else None
    if not isinstance(features, dict) or _SUCCESS not in features:
        raise UnknownFormat(
            f"{root}: a LeRobot data set without {_SUCCESS}, so it does not say which episodes succeeded"
        )
    wins, steps = _outcomes(root)
    where = root.resolve()
    simulator = _LEROBOT_ENV.match(where.name)
    folder = where.parent if simulator else where
    many = sum(bool(_LEROBOT_ENV.match(p.name)) for p in folder.iterdir() if p.is_dir()) if simulator else 1
    first = int(simulator[1]) if simulator else 0
    named = _LEROBOT_TASK.match(folder.name)
    group, task = (named["group"], f"{named['group']}/{named['id']}") if named else (folder.name, folder.name)
    episodes = tuple(
        Episode(task, str(first + place * many), wins[number], env=group, steps=steps[number])
        for place, number in enumerate(sorted(wins))
    )
    recorded = folder.parent.name == "recordings"
    evaluation = folder.parents[1] if recorded else folder
    return [
        Recording(
            str(root), "LeRobot data set", episodes, notes=(_BY_ORDER, _LEROBOT_CUT) if recorded else (_BY_ORDER,),
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
                for batch in file.iter_batches(batch_size=8192, columns=["episode_index", _SUCCESS]):
                    numbers, values = (batch.column(name).to_pylist() for name in ("episode_index", _SUCCESS))
                    for episode, value in zip(numbers, values, strict=True):
                        wins[int(episode)] = wins.get(int(episode), False) or _step(path, value)
                        steps[int(episode)] = steps.get(int(episode), 0) + 1
        except (OSError, pyarrow.lib.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise IngestError(f"{path}: not the data of a LeRobot data set ({one_line(error, 120)})") from error
    if not wins:
        raise IngestError(f"{root}: the data set has no episode")
    return wins, steps


def _step(path: Path, value: Any) -> bool:
    value = _only(value)
    if not isinstance(value, bool):
        raise IngestError(f"{path}: {_SUCCESS} is {value!r:.40}, and a step succeeded or did not (true or false)")
    return value


def _trajectories(path: Path, data: Mapping[str, Any]) -> Recording:
    """The JSON of a ManiSkill trajectory file. A start is the seed that the env was reset with."""
    env = str(data["env_info"].get("env_id") or "ManiSkill")
    episodes, without, unknown = [], 0, 0
    for number, episode in enumerate(data["episodes"]):
        if "success" not in _object(episode):
            without += 1
            continue
        seed = _seed(episode)
        if seed is None:
            unknown += 1
            continue
        won = outcome_at(f"{path}: episode {number}", _only(episode["success"]))
        episodes.append(Episode(env, str(seed), won, env=env, steps=whole(_only(episode.get("elapsed_steps")))))
    notes = []
    if without:
        notes.append(f"{path.name}: {without} episodes have no success and were left out")
    if unknown:
        notes.append(f"{path.name}: {unknown} episodes do not say the seed of their reset and were left out")
    if source := data.get("source_type"):
        notes.append(f"{path.name}: ManiSkill says that these episodes come from {source!s:.60}")
    place = path.resolve()
    words = "/".join([*place.parent.parts, path.stem])
    kind = "ManiSkill trajectories"
    return Recording(str(path), kind, tuple(episodes), notes=tuple(notes), origin=str(place), words=words)


def _seed(episode: Mapping[str, Any]) -> int | None:
    reset = episode.get("reset_kwargs")
    given = _only(reset.get("seed")) if isinstance(reset, dict) else None
    seed = given if given is not None else _only(episode.get("episode_seed"))
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def _only(value: Any) -> Any:
    """The one value of a list of one, which ManiSkill writes for one env."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
