"""Tables: CSV, TSV and Parquet, one row per episode, columns named by the user or by common names."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake.recordings.episodes import Episode, IngestError, Recording

NAMES: dict[str, tuple[str, ...]] = {
    "success": ("success", "succeeded", "is_success", "successful", "outcome", "result"),
    "task": ("task", "task_name", "task_id", "instruction"),
    "start": ("start", "start_index", "init", "init_state", "init_id", "initial_state", "episode", "episode_id"),
    "seed": ("seed", "take", "trial", "repeat", "rollout", "run"),
    "policy": ("policy", "model", "checkpoint", "method"),
    "env": ("env", "suite", "benchmark", "environment"),
    "steps": ("steps", "length", "episode_length", "num_steps"),
    "error": ("error", "failure_reason"),
}
"""The names that a column may have when the user names none; the first that is there counts."""
SUFFIXES = (".csv", ".tsv", ".parquet")
_YES = {"1", "1.0", "true", "yes", "success", "succeeded", "s", "y", "t"}
_NO = {"0", "0.0", "false", "no", "fail", "failure", "failed", "f", "n"}


def read_table(path: Path, columns: Mapping[str, str] | None = None) -> list[Recording]:
    """Episodes of a table. ``columns`` maps our words (`NAMES`) to the table's, e.g. ``{"success": "won"}``."""
    rows = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    if not rows:
        raise IngestError(f"{path}: the table has no rows")
    chosen = _columns(path, list(rows[0]), columns or {})
    episodes = tuple(_episode(path, number, row, chosen) for number, row in enumerate(rows, start=1))
    read = ", ".join(f"{name} from {column!r}" for name, column in chosen.items() if name != column)
    notes = (f"{path.name}: read {read}",) if read else ()
    return [Recording(str(path), path.suffix.removeprefix("."), episodes, notes=notes)]


def _csv(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            sample = file.read(8192)
            file.seek(0)
            try:
                dialect: Any = csv.Sniffer().sniff(sample, delimiters=",;\t")
            except csv.Error:
                dialect = csv.excel_tab if path.suffix == ".tsv" else csv.excel
            return [dict(row) for row in csv.DictReader(file, dialect=dialect)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise IngestError(f"{path}: cannot be read as a table ({error}); save it as CSV in UTF-8") from error


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.lib
    import pyarrow.parquet

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.lib.ArrowException) as error:
        raise IngestError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error
    return rows


def _columns(path: Path, present: list[str], named: Mapping[str, str]) -> dict[str, str]:
    for name, column in named.items():
        if name not in NAMES:
            raise IngestError(f"`columns` {name}={column}: {name!r} is not one of {', '.join(NAMES)}")
        if column not in present:
            raise IngestError(f"{path}: no column {column!r} for {name}; it has {', '.join(map(str, present))}")
    lower = {str(column).strip().lower(): column for column in present}
    taken = set(named.values())
    chosen = dict(named)
    for name, common in NAMES.items():
        match = next((lower[c] for c in common if c in lower and lower[c] not in taken), None)
        if name not in chosen and match is not None:
            chosen[name] = match
            taken.add(match)
    for needed, why in (("success", "whether an episode succeeded"), ("start", "from which start it ran")):
        if needed not in chosen:
            raise IngestError(
                f"{path}: no column says {why}; name it with `columns`, {needed}=NAME"
                f" (columns: {', '.join(map(str, present))})"
            )
    return chosen


def _episode(path: Path, number: int, row: Mapping[str, Any], columns: Mapping[str, str]) -> Episode:
    def text(name: str) -> str:
        value = row.get(columns[name]) if name in columns else None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return "" if value is None else str(value).strip()

    steps = text("steps")
    return Episode(
        task=text("task") or "task",
        start=text("start"),
        success=_success(path, number, row.get(columns["success"])),
        policy=text("policy"),
        env=text("env"),
        seed=text("seed"),
        steps=int(float(steps)) if _is_number(steps) else None,
        error=text("error"),
    )


def _success(path: Path, number: int, value: Any) -> bool | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    text = str(value).strip().lower()
    if text in ("", "nan", "none", "null"):
        return None
    if text in _YES or text in _NO:
        return text in _YES
    raise IngestError(
        f"{path}: row {number} has success = {value!r}, which is neither yes nor no; use 1 and 0, or true and false"
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
