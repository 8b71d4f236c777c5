"""Files from anywhere: whatever they hold, a reader gives episodes or one line; and their order changes nothing."""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from besttake.errors import BestTakeError
from besttake.recordings.episodes import IngestError
from besttake.recordings.read import may_hold_outcomes, read, read_file
from besttake.result import Result
from besttake.verbs.ingest import ingest

DATA = Path(__file__).parent / "data"
QUICK = settings(
    max_examples=40, deadline=60_000, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["true", "no"])
KEYS = (
    "benchmark", "tasks", "task", "episodes", "metrics", "success", "episode_id", "eid", "server_info", "per_task",
    "task_group", "task_id", "successes", "per_episode", "seed", "episode_ix", "env_info", "env_id", "episode_seed",
    "reset_kwargs", "failure_reason", "elapsed_sec", "shard", "merge_info", "start", "policy",
)  # fmt: skip
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)


def gives_episodes_or_one_line(path: Path) -> None:
    try:
        recordings = read_file(path, {})
    except BestTakeError as error:
        assert "\n" not in str(error).strip()[:400]
        assert str(path) in str(error)
        return
    for recording in recordings:
        for episode in recording.episodes:
            assert episode.success in (True, False, None)
            assert isinstance(episode.start, str)
            assert isinstance(episode.task, str)


@QUICK
@given(JSON)
def test_any_json_is_episodes_or_one_line(tmp_path: Path, value: Any) -> None:
    (tmp_path / "o.json").write_text(json.dumps(value))
    gives_episodes_or_one_line(tmp_path / "o.json")
    (tmp_path / "o.jsonl").write_text("\n".join([json.dumps(value)] * 2))
    gives_episodes_or_one_line(tmp_path / "o.jsonl")


@QUICK
@given(st.binary(max_size=300), st.sampled_from([".csv", ".tsv", ".json", ".jsonl", ".parquet", ".log", ".sqlite"]))
def test_any_bytes_are_episodes_or_one_line(tmp_path: Path, data: bytes, suffix: str) -> None:
    for content in (data, b"success,start\n" + data, b"Task suite: s\nStarting episode 1...\nSuccess: " + data):
        (tmp_path / f"o{suffix}").write_bytes(content)
        gives_episodes_or_one_line(tmp_path / f"o{suffix}")


@pytest.mark.parametrize("source", sorted(p for p in DATA.rglob("*") if p.is_file() and may_hold_outcomes(p)), ids=str)
def test_a_damaged_recording_is_episodes_or_one_line(tmp_path: Path, source: Path) -> None:
    chance, whole = random.Random(source.name), source.read_bytes()
    for _ in range(12):
        data = bytearray(whole[: chance.randrange(1, len(whole))] if chance.random() < 0.3 else whole)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        copy = tmp_path / source.name
        copy.write_bytes(data)
        gives_episodes_or_one_line(copy)


ROWS = st.lists(
    st.fixed_dictionaries({
        "policy": st.sampled_from(["a", "b"]), "task": st.sampled_from(["t", "nan", "1"]),
        "start": st.integers(-2, 3), "seed": st.integers(0, 2), "success": st.booleans(),
        "steps": st.integers(1, 3),
    }),
    min_size=1, max_size=30, unique_by=lambda row: (row["policy"], row["task"], row["start"], row["seed"]),
)  # fmt: skip


@settings(QUICK, max_examples=12)
@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 3))
def test_shuffling_files_and_rows_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], chance: random.Random, files: int
) -> None:
    def written(order: list[dict[str, Any]]) -> Result:
        folder = tmp_path_factory.mktemp("rows")
        parts = [order[i::files] for i in range(files)]
        chance.shuffle(parts)
        for i, part in enumerate(part for part in parts if part):
            with (folder / f"{chance.randrange(10**9)}_{i}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(part[0]))
                writer.writeheader()
                writer.writerows(part)
        result = ingest(sorted(folder.iterdir(), key=lambda _: chance.random())).result
        shutil.rmtree(folder)
        return result

    shuffled = list(rows)
    chance.shuffle(shuffled)
    first, second = written(rows), written(shuffled)
    assert (first.cells, first.policies, first.cost) == (second.cells, second.policies, second.cost)


def test_a_huge_line_and_a_huge_number_are_refused(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("success,start\n" + "x" * (3 << 20))
    with pytest.raises(IngestError, match="longer than any"):
        read([tmp_path / "o.csv"])
    (tmp_path / "o.json").write_text('{"per_episode": [{"success": 1e999, "episode_ix": 0}]}')
    with pytest.raises(IngestError, match="neither yes nor no"):
        read([tmp_path / "o.json"])
    (tmp_path / "o.log").write_text("x" * (3 << 20))
    with pytest.raises(IngestError, match="longer than any"):
        read([tmp_path / "o.log"])
