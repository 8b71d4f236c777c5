"""Tables: CSV, TSV, Parquet, JSON lines and JSON, one row per episode, columns named by the user or by common names.

JSON may be nested: what stands beside a list of episodes holds for each of them, as the suite and task of FastWAM's
``worker_000.json`` or of GR00T's lines do. A list of lists has the columns 0, 1, 2, and so on.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from besttake import files
from besttake.errors import listed, one_line
from besttake.recordings.episodes import (
    Episode,
    IngestError,
    Recording,
    UnknownFormat,
    is_timeout,
    kind_of,
    lines_of,
    open_text,
    outcome_at,
    read_json,
    start_in,
    suite_in,
    task_in,
    whole,
)
from besttake.sanitize import FORMULA

_COUNTS = ("episode", "episode_id", "episode_idx", "episode_index", "episode_ix")
"""A column of these names may count the episodes of a run, or its starts."""
NAMES: dict[str, tuple[str, ...]] = {
    "success": ("success", "succeeded", "is_success", "successful", "task_success", "outcome", "result"),
    "task": ("task", "task_name", "task_description", "instruction", "language_instruction", "task_id", "task_idx"),
    "start": (
        "start", "start_index", "start_id", "start_idx", "init_state_id", "init_state_idx", "init_state_index",
        "init_state", "initial_state", "initial_state_id", "init_id", "init_idx", "init_index", "init",
        "episode_seed", *_COUNTS, "env_seed",
    ),
    "seed": (
        "seed", "policy_seed", "take", "trial", "trial_id", "trial_idx", "repeat", "rollout", "rollout_id", "run",
        "run_id",
    ),
    "policy": ("policy", "policy_name", "model", "model_name", "model_label", "checkpoint", "ckpt", "method"),
    "env": ("env", "env_id", "suite", "task_suite", "task_suite_name", "benchmark", "environment"),
    "steps": ("steps", "length", "episode_length", "num_steps", "n_steps", "elapsed_steps"),
    "error": ("error", "failure_reason"),
    "env_seed": ("env_seed", "environment_seed"),
    "state": ("init_state_hash", "initial_state_hash", "state_hash"),
    "group": ("category", "group", "perturbation"),
    "values": ("values",),
}  # fmt: skip
"""The names by which a column is recognised if the user names none; the first one in a table counts."""
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".json")
OWN = ("policy", "env", "task", "start", "seed", "success", "steps", "error")
"""The columns of ``outcomes.csv``, which `ingest` writes; the last one after them is ``file``."""
_IDS = ("task_id", "task_idx")
_REPEATS = re.compile(r"seed|rep|trial|attempt|rollout|take|run(?:_?(?:id|idx|index|number))?$")
_LINES = ("jsonl", "ndjson", "json")
_NUMBERED = {True: "success_episodes", False: "failure_episodes"}
_ENDED = "episode_successes"
_ABOUT = ("env_info", "metrics")
"""Values in these JSON objects hold for the episodes beside them, or for the episode that contains them."""
_GROOT = "libero_sim/"
"""GR00T's env, whose reset does not restore the initial state of a start (its ``libero_env.py``)."""
_MOST_NAMES = 10_000
_MOST_UNREAD = 40
_MOST_NAMED = 3
_DELIMITERS = ",;\t"
Row = Mapping[Any, Any]


def read_table(path: Path, columns: Mapping[str, str] | None = None) -> list[Recording]:
    """Read the episodes of a table. ``columns`` maps our names (`NAMES`) to its columns: ``{"success": "won"}``."""
    kind = kind_of(path).removeprefix(".")
    levels, _, column = (columns or {}).get("start", "").rpartition("/")
    named = {ours: theirs for ours, theirs in (columns or {}).items() if ours != "start"}
    named |= {"start": column} if column else {}
    in_path = start_in(str(path), levels)
    reads = {"parquet": _parquet, "jsonl": _json_lines, "ndjson": _json_lines, "json": _json}

    def table() -> Iterator[tuple[int, Row]]:
        return reads[kind](path, named) if kind in reads else _csv(path)

    rows = table()
    try:
        first = next(rows, None)
        if first is None:
            if kind == "json":
                raise UnknownFormat(f"{path}: no list of episodes with an outcome ({', '.join(NAMES['success'])})")
            raise IngestError(f"{path}: the table has no rows")
        # Objects of JSON may have different keys: only some may have an error or a seed.
        names = _names_in(path, table()) if kind in _LINES else [str(name) for name in first[1]]
        chosen = _columns(path, names, named, in_path)
        if levels and not column:
            chosen.pop("start", None)
        own = tuple(names) == (*OWN, "file")
        asides: dict[str, list[str]] = {} if own else {name: [] for name in _unread(names, chosen)}
        others = _other_starts(names, chosen, named, in_path)
        episodes, ids, left_out, unpaired = [], [], [], 0
        for number, row in chain((first,), rows):
            failed = any(_text(row.get(column)) for column in chosen.get("error", ()))
            # Lines may also hold settings, a summary or the beginning of an episode.
            if kind in _LINES and chosen["success"][0] not in row and not failed:
                left_out.append(number)
                continue
            episode = _episode(path, number, row, chosen, own, in_path)
            if row.get(_ENDED) is True:  # of no start that other takes could share
                episode, unpaired = replace(episode, start=f"{episode.start} to end in {path}"), unpaired + 1
            elif not row.keys().isdisjoint(_NUMBERED.values()):  # they stand in the summary beside it, too
                parts = (path.resolve().parent, episode.seed, episode.env, episode.task, episode.start)
                episode = replace(episode, uid="/".join(map(str, parts)))
            if others:
                episode = replace(episode, others={name: _text(row.get(name)) for name in others})
            episodes.append(episode)
            ids.append(next((_text(row.get(name)) for name in _IDS if name in row), ""))
            for column, values in asides.items():
                values.append(_text(row.get(column)))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise IngestError(f"{path}: cannot be read as a table ({one_line(error)}); save it as CSV in UTF-8") from error
    _check_repeats(path, episodes, asides)
    place = path.resolve()
    words = "/".join([*place.parent.parts, path.stem])
    told = {ours: theirs if ours != "start" or len(others) < 2 else (ours,) for ours, theirs in chosen.items()}
    notes = [*_notes(path, told, left_out)]
    if unpaired:
        notes.append(f"{path.name}: {unpaired} successes are listed in the order in which episodes ended, which is not "
                     "the order of their starts: no take shares a start with another")  # fmt: skip
    resets = "task" if str(first[1].get("env_name", "")).startswith(_GROOT) else ""
    return [Recording(str(path), kind, tuple(_told_apart(episodes, ids)), notes=tuple(notes), origin=str(place),
                      words=words, resets=resets)]  # fmt: skip


def _notes(path: Path, chosen: Mapping[str, tuple[str, ...]], left_out: Sequence[int]) -> Iterator[str]:
    read = ", ".join(f"{ours} from {' and '.join(map(repr, theirs))}" for ours, theirs in chosen.items()
                     if theirs != (ours,))  # fmt: skip
    if read:
        yield f"{path.name}: read {read}"
    if left_out:
        yield f"{path.name}: left out what holds no outcome, lines {listed(left_out, _MOST_NAMED)}"
    for ours, numbered in {"start": True, "task": bool(task_in(str(path)))}.items():
        if ours not in chosen and numbered:
            yield f"the {ours} of tables without a column for it is the number in their path, as in {ours}_3/"


def _unescaped(text: str) -> str:
    return text[1:] if len(text) > 1 and text[0] == "'" and text[1] in FORMULA else text


def _csv(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield (number, row) of a CSV; the delimiter is the one most frequent in its header."""
    with open_text(path, newline="") as file:
        delimiter = max(_DELIMITERS, key=next(_bounded(file, path), "").count)
        file.seek(0)
        reader = csv.reader(_bounded(file, path), delimiter=delimiter, strict=True)
        names = [name.strip() for name in next(reader, [])]
        if len(set(names)) < len(names):
            again = next(name for name in names if names.count(name) > 1)
            raise IngestError(f"{path}: two columns are called {again!r}; give each column a name of its own")
        for number, cells in enumerate(reader, start=1):
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(names) and any(cell.strip() for cell in cells[len(names) :]):
                raise IngestError(f"{path}: row {number} has {len(cells)} cells, and the table {len(names)} columns")
            yield number, dict(zip(names, cells, strict=False))


def _bounded(file: Any, path: Path) -> Iterator[str]:
    while line := file.readline(1 << 20):
        if len(line) == 1 << 20:
            raise UnknownFormat(f"{path}: a line is longer than any that a table of outcomes has")
        yield line


def _parquet(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, Row]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            # Pictures and actions of a data set are no outcomes: only columns of plain values are read.
            plain = [f.name for f in file.schema_arrow if not pyarrow.types.is_nested(f.type)
                     and not pyarrow.types.is_binary(f.type) and not pyarrow.types.is_large_binary(f.type)]  # fmt: skip
            for batch in file.iter_batches(batch_size=4096, columns=plain):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (OSError, pyarrow.lib.ArrowException, ValueError) as error:
        raise IngestError(f"{path}: not a readable Parquet file ({one_line(error, 120)})") from error


def _json_lines(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, Row]]:
    """Yield (line, row) of JSON lines, one row per episode; a line without an episode is one row."""
    for number, line in lines_of(path):
        if not line.strip():
            continue
        try:
            row = files.read_json(line)
        except (ValueError, RecursionError) as error:
            raise IngestError(f"{path}: line {number} is damaged JSON ({one_line(error, 120)})") from error
        if not isinstance(row, dict):
            raise UnknownFormat(f"{path}: line {number} is not an object, as a line of outcomes is")
        for episode in [*_episodes_in(row, {}, columns)] or [row]:
            yield number, episode


def _json(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, Row]]:
    data = read_json(path)
    if isinstance(data, list) and data and all(isinstance(row, list) for row in data):
        return enumerate(({str(i): value for i, value in enumerate(row)} for row in data), start=1)
    return enumerate(_episodes_in(data, {}, columns), start=1)


def _episodes_in(value: Any, above: Row, columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the episodes in nested JSON, each with the plain values of all objects ``above`` it."""
    if isinstance(value, list):
        for item in value:
            yield from _episodes_in(item, above, columns)
    if not isinstance(value, dict):
        return
    kept = {columns.get("values", "values")}
    inner = [one for name in _ABOUT if isinstance(one := value.get(name), dict)]
    said = dict(above)
    for one in (*inner, value):
        said |= {k: _only(v) for k, v in one.items() if k in kept or not isinstance(_only(v), list | dict)}
    outcomes = {won: value[name] for won, name in _NUMBERED.items() if isinstance(value.get(name), list)}
    ended = value.get(_ENDED)
    if outcomes:
        for won, own in outcomes.items():
            yield from ({**said, "success": won, "start": number, _NUMBERED[won]: True} for number in own)
    elif isinstance(ended, list):
        lengths = value.get("episode_lengths")
        for i, won in enumerate(ended):
            steps = lengths[i] if isinstance(lengths, list) and i < len(lengths) else None
            yield {**said, "success": won, "start": i, "steps": steps, _ENDED: len(ended) > 1}
    elif {columns.get("success"), *NAMES["success"]} & value.keys():
        yield said
    else:
        for part in value.values():
            yield from _episodes_in(part, said, columns)


def _only(value: Any) -> Any:
    """Unpack a list of one value, which ManiSkill writes for a single env."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _names_in(path: Path, rows: Iterator[tuple[int, Row]]) -> list[str]:
    """Return the names in all rows of JSON, without keeping the rows: they may hold actions and pictures."""
    names: dict[str, None] = {}
    for number, row in rows:
        names.update(dict.fromkeys(row))
        if len(names) > _MOST_NAMES:
            raise UnknownFormat(f"{path}: more than {_MOST_NAMES} names in {number} lines are no table of outcomes")
    return [name for name in names if name != _ENDED]


def _columns(path: Path, present: Sequence[str], named: Mapping[str, str], in_path: str) -> dict[str, tuple[str, ...]]:
    """Match our columns with those of the table; several may name the policy (a model and its checkpoint).

    ``in_path`` is the start that the path says, which a table without a column for it needs.
    """
    for name, column in named.items():
        if name not in NAMES:
            raise IngestError(f"`columns` {name}={column}: {name!r} is not one of {', '.join(NAMES)}")
        if column not in present:
            raise IngestError(f"{path}: no column {column!r} for {name}; it has {listed(present, 20)}")
    lower = {column.strip().lower(): column for column in present}
    taken = {column for name, column in named.items() if name != "group"}  # a suite may group tasks and tell them apart
    chosen: dict[str, tuple[str, ...]] = {name: (column,) for name, column in named.items()}
    for name, common in NAMES.items():
        matches = tuple(lower[c] for c in common if c in lower and lower[c] not in taken)
        if name not in chosen and matches:
            chosen[name] = matches if name == "policy" else matches[:1]
            taken.update(chosen[name])
    lacks = [name for name in ("success", *(() if in_path else ("start",))) if name not in chosen]
    if lacks:
        # Other programs write JSON with a success rate, too: without a start it is no damaged table.
        kind = UnknownFormat if len(lacks) == 2 or kind_of(path) == ".json" else IngestError
        what = {"success": "whether an episode succeeded", "start": "from which start it ran"}
        in_folder = ", or start=scene/ for the number in paths such as scene_3/" if "start" in lacks else ""
        given = [f"{name}={next((c for c in present if name in c.lower()), 'NAME')}" for name in lacks]
        raise kind(
            f"{path}: no column says {' nor '.join(what[name] for name in lacks)}; name it with `columns`, for example "
            f"{' and '.join(given)} (columns: {listed(present, 20)}){in_folder}"
        )
    return chosen


def _other_starts(
    names: Sequence[str], chosen: Mapping[str, tuple[str, ...]], named: Mapping[str, str], in_path: str
) -> list[str]:
    """Return all columns that may name the start, if the chosen one only counts episodes and the user named none.

    Where the path says a start, too, any column is only one candidate.
    """
    if "start" in named or "start" not in chosen:
        return []
    if chosen["start"][0].strip().lower() not in _COUNTS:
        return [chosen["start"][0]] if in_path else []
    return [name for name in names if name.strip().lower() in NAMES["start"]]


def _unread(names: Sequence[str], chosen: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the columns that are not used and whose names do not suggest repetitions."""
    taken = {column for columns in chosen.values() for column in columns}
    unread = [column for column in names if column not in taken and not _REPEATS.search(column.lower())]
    return [column for column in unread if column.lower() not in _IDS][:_MOST_UNREAD]


def _check_repeats(path: Path, episodes: Sequence[Episode], asides: Mapping[str, Sequence[str]]) -> None:
    """Raise IngestError if an unused column divides the takes of every start: it may name policies or tasks."""
    starts: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, episode in enumerate(episodes):
        starts[episode.policy, episode.env, episode.task, episode.start].append(i)
    repeated = [rows for rows in starts.values() if len(rows) > 1]
    for column, values in asides.items():
        names = set(values)
        # Other columns (times, file names, errors) have different values at each start.
        if not repeated or not 2 <= len(names) <= max(map(len, repeated)):
            continue
        counted = [Counter(values[i] for i in rows) for rows in repeated]
        even = sum(own.keys() == names and len(set(own.values())) == 1 for own in counted)
        numbers = any(names == {str(n + first) for n in range(len(names))} for first in (0, 1))  # of repetitions
        if even >= 0.9 * len(repeated) and not numbers:
            raise IngestError(
                f"{path}: every start has takes of each {column!r} ({listed(sorted(names), 4)}): say with `columns` "
                f"what it is, policy={column}, env={column} or task={column}; or seed={column}, if they are repeats"
            )


def _episode(
    path: Path, number: int, row: Row, columns: Mapping[str, tuple[str, ...]], own: bool, in_path: str
) -> Episode:
    def text(name: str) -> str:
        if name not in columns:
            return ""
        values = [_text(row.get(column)) for column in columns[name]]
        joined = " / ".join(value for value in values if value)
        return _unescaped(joined) if own else joined

    error = text("error")
    late = is_timeout(error)
    won = outcome_at(f"{path}: row {number}", row.get(columns["success"][0]))
    start = text("start") if "start" in columns else in_path
    if not start:
        raise IngestError(f"{path}: row {number} does not say its start ({columns['start'][0]} is empty)")
    return Episode(
        task=text("task") or task_in(str(path)) or "task", start=start, success=False if late else won,
        policy=text("policy"), env=text("env") or suite_in(str(path)), seed=text("seed"), steps=whole(text("steps")),
        error=error, timeout=late, env_seed=text("env_seed"), state=text("state"), group=text("group"),
        values=_values(row.get(columns["values"][0])) if "values" in columns else (),
    )  # fmt: skip


def _values(logged: Any) -> tuple[float, ...]:
    """Parse values that were logged along an episode: a list, or the text of one."""
    listed = json.loads(logged) if isinstance(logged, str) and logged.strip() else logged or ()
    return tuple(float(value) for value in listed)


def _text(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()


def _told_apart(episodes: Sequence[Episode], ids: Sequence[str]) -> Iterator[Episode]:
    """Number tasks that share an instruction but have different ids, as in libero_90."""
    numbers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for episode, number in zip(episodes, ids, strict=True):
        numbers[episode.env, episode.task].add(number)
    for episode, number in zip(episodes, ids, strict=True):
        several = len(numbers[episode.env, episode.task]) > 1
        yield replace(episode, task=f"{episode.task} ({number})") if several and number else episode
